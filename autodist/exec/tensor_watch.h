// Notices what somebody else writes into the tensors of variables between two steps.
//
// A variable that was settled (it has the newest version, and nothing arrives for it before the
// next step) is noted: its values' digest, compared when the step begins. That finds what no
// counter sees, such as NumPy's writes or replaced storage. Of the others libtorch's version
// counter, the place of the values and a few of them are compared, which costs next to nothing and
// finds most writes that no counter sees; a write found there may be lost half.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodist/base/mutex.h"
#include "autodist/capture/bindings.h"
#include "autodist/program/program.h"

namespace autodist::exec {

// Of a tensor's values in row-major order, wherever they are.
std::uint64_t digest_of_values(const torch::Tensor& tensor);

class TensorWatch {
 public:
  explicit TensorWatch(const capture::Bindings& bindings);

  // From here on the variable's values as they are now are those of the job. By the thread that
  // steps.
  void note(ir::VariableId variable);
  // The values that had this digest are those of the job; they may have changed since.
  void note(ir::VariableId variable, std::uint64_t digest);

  void forget(ir::VariableId variable);

  // Throws Error(kUsage) where the model's tensor has been frozen, with `name`.
  void check_trained(ir::VariableId variable, const std::string& name) const;
  // Throws Error(kUsage) where the model's tensor is of another type, shape or layout than the
  // variable, with `name`.
  void check_kind(ir::VariableId variable, const std::string& name) const;
  // The digest of a noted variable's values if they are others now; forgets the note. Values that
  // were put in the place of its storage go into the job's, and the model's tensor is that again;
  // if somebody else has kept the old storage, that stays as it is, and the job has another. By the
  // thread that steps. REQUIRES: check_kind().
  std::optional<std::uint64_t> take_change(ir::VariableId variable);
  // The job's tensor lies where the model's does from here on, where another of the job's steps has
  // taken values that lie elsewhere. By the thread that steps.
  void follow(ir::VariableId variable);
  [[nodiscard]] bool is_noted(ir::VariableId variable) const {
    return watched_[variable.value].digest.has_value();
  }

  // Whether somebody has written to it, or put other values in its place, since it was accepted.
  // Any thread that may write to the variable, as accept().
  [[nodiscard]] bool is_touched(ir::VariableId variable) const;
  void accept(ir::VariableId variable);
  // The job is about to write to it, until installed().
  void writes(ir::VariableId variable);
  // The job has written a whole version, and writes no more before writes(): some of its values are
  // compared from here on.
  void installed(ir::VariableId variable);

 private:
  struct Watched {
    torch::Tensor model;         // what the user has
    torch::Tensor handle;        // the job's, of the same storage
    bool requires_grad = false;  // the model's, when it was bound
    std::optional<std::uint64_t> digest;
    std::uint32_t writes = 0;           // libtorch's counter
    std::optional<std::uint64_t> some;  // of its values, a digest; guarded by mutex_
  };

  std::vector<Watched> watched_;  // by variable
  // Who looks at some values holds it, and so does who says that they are about to change.
  std::unique_ptr<Mutex> mutex_ = std::make_unique<Mutex>();
};

}  // namespace autodist::exec
