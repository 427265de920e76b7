// Whatever a safetensors file holds: it is refused by an Error, or its tensors are written again to
// a file that reads back as the same.

#include <cstdint>
#include <cstdlib>
#include <string>

#include "autodist/base/error.h"
#include "autodist/exec/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace autodist;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try {
    const exec::Safetensors file = exec::read_safetensors(bytes, "fuzz");
    if (!(exec::read_safetensors(exec::write_safetensors(file), "again").tensors == file.tensors)) {
      std::abort();
    }
  } catch (const Error&) {
    return 0;
  }
  return 0;
}
