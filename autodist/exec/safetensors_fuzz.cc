// Whatever a safetensors file holds: it is refused by an Error, or its tensors are written again to
// a file that reads back as the same.

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "autodist/base/error.h"
#include "autodist/exec/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace autodist;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  std::optional<exec::Safetensors> file;
  try {
    file = exec::read_safetensors(bytes, "fuzz");
  } catch (const Error&) {
    return 0;
  }
  const exec::Safetensors again = exec::read_safetensors(exec::write_safetensors(*file), "again");
  if (again.tensors != file->tensors || again.metadata != file->metadata) std::abort();
  return 0;
}
