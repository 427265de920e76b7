// Whatever a strategy file holds, in either form: it is refused by an Error, or written again in
// both forms to the same strategy.

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "autodist/base/error.h"
#include "autodist/strategy/strategy.h"

namespace {

template <typename Read>
void read_and_write(const std::string& bytes, Read read) {
  using namespace autodist;
  std::optional<strategy::Strategy> strategy;
  try {
    strategy = read(bytes);
  } catch (const Error&) {
    return;
  }
  if (!(strategy::deserialize(strategy::serialize(*strategy), "raw") == *strategy)) std::abort();
  if (!(strategy::from_text(strategy::to_text(*strategy), "text") == *strategy)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace autodist;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read_and_write(bytes, [](const std::string& each) { return strategy::deserialize(each, "f"); });
  read_and_write(bytes, [](const std::string& each) { return strategy::from_text(each, "f"); });
  return 0;
}
