// `autodist-torch`: the half of the command line that computes. Started by `autodist`.

#include <unistd.h>

#include "autodist/app/blas_kernels.h"
#include "autodist/app/torch/torch_verbs.h"

int main(int argc, char** argv) {
  using namespace autodist::app;
  // `autodist` has seen to it; a chief on another machine starts this program by itself.
  if (choose_blas_kernels()) ::execv("/proc/self/exe", argv);
  return run_program(argc, argv, Program::kTorch,
                     {{"demo", declare_demo},
                      {"capture", declare_capture},
                      {"train", declare_train},
                      {"export", declare_export},
                      {"ckpt", declare_ckpt},
                      {"bench", declare_bench},
                      {"dataset", declare_record}});
}
