// This rank's copies of the variables: which version each has, what has come back for the next one,
// and when that may be put in.
//
// A result waits as it came until the step has read the old version for the last time. Parameters
// that come later still go in one by one, while a cache holds them; whatever else is left is
// installed when every slice of the variable is there. Only then has the variable a new version, so
// that no op sees half of one, nor one too early. A stale variable may be read at any time: it has
// room for the results of as many more steps, which are installed whole, one after the other.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/torch.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autodist/comm/transport.h"
#include "autodist/exec/loss_scaler.h"
#include "autodist/exec/norms.h"
#include "autodist/exec/optimizer_kernels.h"
#include "autodist/exec/signal.h"
#include "autodist/exec/slice_layout.h"
#include "autodist/exec/tensor_watch.h"
#include "autodist/ir/program.h"

namespace autodist::exec {

class LocalVariables {
 public:
  // `bindings`: the model's own tensors, by variable. `ready` is called, at most once per variable
  // and step and never under a lock, when install() may run. The other arguments outlive the
  // object.
  LocalVariables(const ir::Program& program, const NormPlan& plan, const Norms& norms,
                 const LossScaler& scaler, const UserRules* user_rules,
                 const capture::Bindings& bindings, std::uint64_t first_step, Signal& signal,
                 std::function<void(ir::VariableId)> ready);

  // Version v contains the updates of the steps 0 … v - 1. Any thread; whoever sees a version sees
  // its values.
  [[nodiscard]] std::uint64_t version(ir::VariableId variable) const {
    return locals_[variable.value].version.load(std::memory_order_acquire);
  }

  // Blocks until the variable has at least this version. Throws as Signal::wait; the time-out's
  // message names the slices that are missing and their owners.
  void wait_for_version(ir::VariableId variable, std::uint64_t version, Seconds limit);

  // From here until release() the variable is not written; waits for the end of an installation
  // that is under way (of a stale variable). By the compute thread. Throws as Signal::wait.
  void hold(ir::VariableId variable, Seconds limit);
  void release(ir::VariableId variable);
  [[nodiscard]] bool is_released(ir::VariableId variable) const;  // REQUIRES: the signal's lock

  // A combined slice has come back, with what its contributors said (encoded, rider.h). Any thread.
  // Throws Error(kUsage) where somebody has written to a variable that it goes into.
  void take_result(ir::SliceId slice, std::uint64_t step, std::int64_t samples,
                   comm::Payload payload, std::string news = "");
  // Variables that only waited for this norm may go on. Any thread.
  void norm_known(std::uint64_t step, NormId norm);

  // Puts the next version in. By one thread, after `ready`.
  void install(ir::VariableId variable);

  // Writes a slice of parameters into its variables, whose versions stay. By the compute thread,
  // between steps, while no result is on its way.
  void overwrite(ir::SliceId slice, const comm::Payload& parameters);

  // The tensor has got other values from outside; the version stays. By the compute thread, between
  // steps.
  void reload(ir::VariableId variable);
  // Who writes to the tensors beside this. Its notes are the compute thread's.
  [[nodiscard]] TensorWatch& watch() { return watch_; }
  // Throws Error(kUsage) where somebody has written to it without settling it first.
  void check_untouched(ir::VariableId variable) const;

  // For a variable without slices: applies the rule to a gradient (row-major or, where the variable
  // is trained by rows, sparse; on the host; scaled here by the clip's factor) and makes the next
  // version. REQUIRES: released; its norm is known.
  void update_whole(ir::VariableId variable, torch::Tensor gradient, std::int64_t samples,
                    const std::string& news);

  // State of the rules that run at this rank, by variable and piece (of all its slices, in order;
  // one piece where it has no slices). Empty where the owner updates.
  [[nodiscard]] std::vector<UpdateState>& states(ir::VariableId variable) {
    return locals_[variable.value].states;
  }

  [[nodiscard]] const torch::Tensor& tensor(ir::VariableId variable) const {
    return locals_[variable.value].tensor;
  }
  // A dense row-major copy on the host, or the tensor itself where it is that.
  [[nodiscard]] torch::Tensor dense(ir::VariableId variable) const;

 private:
  struct Source {  // where a part of a variable comes from
    ir::SliceId slice;
    PieceLayout piece;
  };
  struct Local {
    torch::Tensor tensor;
    torch::Tensor shadow;  // dense and on the host, where the tensor is not
    std::vector<Source> sources;
    std::vector<UpdateState> states;
    ir::UpdateAt update_at = ir::UpdateAt::kOwner;
    ir::UpdateRule rule;  // as declared, or as the news has it; where it runs here
    std::string news;     // that it follows
    std::optional<NormId> clip;
    std::uint32_t slices = 0;
    std::atomic<std::uint64_t> version{0};
    // Guarded by the signal's lock.
    std::vector<std::uint32_t> arrived;  // slices, by step, cyclically
    bool released = true;
    bool announced = false;  // from the call of ready() until the version is in
  };
  struct Result {
    std::int64_t samples = 0;
    comm::Payload payload;
    std::string news;
    std::vector<ir::VariableId> variables;
    std::uint32_t uninstalled = 0;  // variables
    bool is_in = false;             // the payload went into the variables as it came
  };

  template <typename T>
  static T& of_step(std::vector<T>& cycle, std::uint64_t step) {
    return cycle[step % cycle.size()];
  }
  Result& result(ir::SliceId slice, std::uint64_t step) {
    return of_step(results_[slice.value], step);
  }
  [[nodiscard]] bool claim(Local& local) const;
  [[nodiscard]] bool may_go_in(ir::SliceId slice, std::uint64_t step) const;
  [[nodiscard]] std::string describe_wait(ir::VariableId variable) const;
  [[nodiscard]] std::byte* bytes(Local& local) const;
  [[nodiscard]] double clip_factor_of(const Local& local, std::uint64_t step) const;
  void copy_rows(Local& local, ir::SliceId slice, const comm::Payload& payload) const;
  void update_rows(Local& local, const torch::Tensor& gradient, double lr_factor);
  void copy_results(Local& local, std::uint64_t step, std::size_t element_bytes);
  void update_pieces(Local& local, std::uint64_t step);
  void follow(ir::VariableId variable, const std::string& news);
  // Whether the next version can be installed at once.
  bool publish(ir::VariableId variable, std::uint64_t version);

  const ir::Program& program_;
  const Norms& norms_;
  const LossScaler& scaler_;
  const std::optional<NormId> flags_;
  const UserRules* user_rules_;
  Signal& signal_;
  std::function<void(ir::VariableId)> ready_;
  TensorWatch watch_;
  std::vector<Local> locals_;
  std::vector<std::vector<Result>> results_;             // by slice, then by step, cyclically
  std::vector<std::vector<const PieceLayout*>> pieces_;  // by slice; of the variables' sources
};

}  // namespace autodist::exec
