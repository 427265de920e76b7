// Any bytes are a trace or an Error; what is read can be written and read again.

#include <cstddef>
#include <cstdint>
#include <string>

#include "autodist/base/error.h"
#include "autodist/program/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace autodist;
  try {
    const program::Trace trace =
        program::read_chrome_json(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
    program::read_chrome_json(program::to_chrome_json(trace), "written again");
  } catch (const Error&) {
  }
  return 0;
}
