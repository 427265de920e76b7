// Whatever a strategy file holds, in either form: it is refused by an Error, or written again to
// the same strategy.

#include <cstdint>
#include <cstdlib>
#include <string>

#include "autodist/base/error.h"
#include "autodist/strategy/strategy.h"

namespace {

template <typename Read>
void read_and_write(const std::string& bytes, Read read) {
  using namespace autodist;
  try {
    const strategy::Strategy strategy = read(bytes);
    if (!(strategy::deserialize(strategy::serialize(strategy), "again") == strategy)) std::abort();
  } catch (const Error&) {
    return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace autodist;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read_and_write(bytes, [](const std::string& each) { return strategy::deserialize(each, "f"); });
  read_and_write(bytes, [](const std::string& each) { return strategy::from_text(each, "f"); });
  return 0;
}
