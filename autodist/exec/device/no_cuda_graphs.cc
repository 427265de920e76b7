#include "autodist/base/error.h"
#include "autodist/exec/device/cuda_graphs.h"

namespace autodist::exec {

void record_cuda_graphs() {
  fail(
      ErrorCode::kEnvironment,
      "device: this build has no CUDA graphs: it was built without headers of CUDA. Install a CUDA "
      "build of torch with nvidia-cuda-crt and nvidia-cuda-cccl, and build again (docs/gpus.md).");
}

}  // namespace autodist::exec
