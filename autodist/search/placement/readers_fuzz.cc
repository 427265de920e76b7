// Whatever a task graph file holds: it is refused by an Error of one line, or is a verified graph.

#include <cstdint>
#include <cstdlib>
#include <string>

#include "autodist/base/error.h"
#include "autodist/search/placement/gzip.h"
#include "autodist/search/placement/readers.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace autodist;
  std::string text(reinterpret_cast<const char*>(data), size);
  try {
    constexpr std::size_t kMostBytes = 1 << 20;
    if (search::placement::is_gzip(text)) {
      text = search::placement::gunzip(text, "fuzz", kMostBytes);
    }
    verify(search::placement::parse_task_graph(text, "fuzz"), "fuzz");
  } catch (const Error& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) std::abort();
  }
  return 0;
}
