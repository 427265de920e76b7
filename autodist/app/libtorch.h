// Which libtorch this build is of. The light program says so without loading it.

#pragma once

#include <string>

namespace autodist::app {

struct LibtorchOfBuild {
  std::string version;    // "2.13.0+cpu"; "not built in" where nothing trains
  std::string folder;     // of pip's torch; "" where it is the system's
  std::string built_for;  // "CPU", "CUDA 13.0"

  // pip's has its own BLAS in it; the system's takes the system's.
  [[nodiscard]] bool brings_blas() const { return !folder.empty(); }
};
LibtorchOfBuild libtorch_of_build();

// The version of the torch that lies in this folder now; "" where there is none. It may be another
// than the one that was built on: pip upgrades in place.
std::string torch_version_in(const std::string& folder);

}  // namespace autodist::app
