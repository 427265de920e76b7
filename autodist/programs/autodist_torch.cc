// `autodist-torch`: the half of the command line that computes. Started by `autodist`.

#include <c10/util/Exception.h>
#include <torch/csrc/jit/runtime/jit_exception.h>
#include <unistd.h>

#include <map>
#include <string>
#include <utility>

#include "autodist/app/blas_kernels.h"
#include "autodist/app/device_failure.h"
#include "autodist/app/torch/torch_verbs.h"
#include "autodist/base/error.h"
#include "autodist/studies/torch/bench.h"

namespace {

using namespace autodist;

// What libtorch refuses is a model or data that do not fit each other: a label that is no class, a
// shape that an op cannot take. Its first line says which; the rest is its own stack.
// A device that fails is another thing: who has started a training starts it again.
[[noreturn]] void refuse(const std::string& verb, const std::string& text) {
  app::fail_of_device(verb, text);
  fail(ErrorCode::kUsage, "{}: libtorch refuses what model and data ask for: {}", verb,
       text.substr(0, text.find('\n')));
}

app::Declare in_one_line(const std::string& verb, app::Declare declare) {
  return [verb, declare = std::move(declare)](CLI::App& options) -> app::Action {
    return [verb, action = declare(options)](app::Console& console) {
      try {
        return action(console);
      } catch (const c10::Error& error) {
        refuse(verb, error.what_without_backtrace());
      } catch (const torch::jit::JITException& error) {
        refuse(verb, error.what());
      }
    };
  };
}

}  // namespace

int main(int argc, char** argv) {
  using namespace autodist::app;
  // `autodist` has seen to it; a chief on another machine starts this program by itself.
  if (choose_blas_kernels()) ::execv("/proc/self/exe", argv);
  std::map<std::string, Declare> verbs{{"demo", declare_demo},
                                       {"capture", declare_capture},
                                       {"train", declare_train},
                                       {"plan", declare_plan_by_trials},
                                       {"export", declare_export},
                                       {"ckpt", declare_ckpt},
                                       {"bench", studies::declare_bench},
                                       {"dataset", declare_record}};
  for (auto& [verb, declare] : verbs) declare = in_one_line(verb, std::move(declare));
  return run_program(argc, argv, Binary::kTorch, verbs);
}
