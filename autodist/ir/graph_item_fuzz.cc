// Whatever a graph_item holds: it is refused by an Error, or written again to the same item, shown,
// and made a graph to plan with or refused.

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "autodist/base/error.h"
#include "autodist/ir/graph_item.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace autodist;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  ir::looks_like_graph_item(bytes);
  std::optional<ir::GraphItem> item;
  try {
    item = ir::deserialize_graph_item(bytes, "fuzz");
  } catch (const Error&) {
    return 0;
  }
  if (!(ir::deserialize_graph_item(ir::serialize(*item), "again") == *item)) std::abort();
  ir::to_text(*item, 10);
  try {
    ir::variables_of(*item, "fuzz");
  } catch (const Error&) {
  }
  return 0;
}
