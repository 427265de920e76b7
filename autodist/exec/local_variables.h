// This rank's copies of the variables, and the results that have come back for them and wait.
//
// A result waits as it came until the step has read the old version for the last time. Parameters
// that come later still go in one by one, while a cache holds them; whatever else is left is
// installed when every slice of the variable is there, so that no op sees half a version. A stale
// variable may be read at any time: it has room for the results of as many more steps, which are
// installed whole, one after the other. When each of these may happen is the protocol's to say
// (protocol/rank.h).
//
// Of a variable on a device the host has room for whatever comes in. New parameters are copied from
// there, of a table the rows that are new; of an averaged gradient its own rule makes them on the
// device, where its state is then, if the rule has formulas for tensors. All of it on a queue for
// copies, after the last op that reads the old version.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autodist/comm/transport.h"
#include "autodist/exec/device/queue.h"
#include "autodist/exec/device/staging.h"
#include "autodist/exec/loss_scaler.h"
#include "autodist/exec/norms.h"
#include "autodist/exec/optimizer_kernels.h"
#include "autodist/exec/signal.h"
#include "autodist/exec/sparse_rows.h"
#include "autodist/exec/tensor_watch.h"
#include "autodist/program/program.h"
#include "autodist/program/slice_layout.h"

namespace autodist::exec {

class LocalVariables {
 public:
  // `bindings`: the model's own tensors, by variable. The other arguments outlive the object.
  LocalVariables(const program::Program& program, const Norms& norms, const LossScaler& scaler,
                 const UserRules* user_rules, const capture::Bindings& bindings, Staging& staging,
                 Signal& signal);
  // Unless the rank has failed or is leaving, await_device().
  ~LocalVariables();
  LocalVariables(const LocalVariables&) = delete;
  LocalVariables& operator=(const LocalVariables&) = delete;

  // A combined slice has come back, with what its contributors said (encoded, rider.h). `goes_in`:
  // nobody reads its variables before they have their new version, so parameters are written at
  // once. Any thread. Throws Error(kUsage) where somebody has written to such a variable.
  void take(program::SliceId slice, std::uint64_t step, std::int64_t samples, comm::Payload payload,
            std::string news, bool goes_in);

  // Puts the version in that the step makes, of which all results are here. By one thread. Throws
  // Error(kUsage) where somebody has written to the variable.
  void install(ir::VariableId variable, std::uint64_t step);

  // Until all versions have come to the device: they come from memory that goes with this.
  void await_device() const;

  // Whose slices are not here yet: "slice 3 of rank 1 (10.0.0.2)", for messages.
  [[nodiscard]] std::string missing_results(ir::VariableId variable, std::uint64_t step) const
      AD_ASSERTS_HELD(signal_);

  // Writes a slice of parameters into its variables, whose versions stay. By the compute thread,
  // or by the merging thread while the other one waits for it; no result is on its way, and nobody
  // reads them.
  void overwrite(program::SliceId slice, const comm::Payload& parameters);
  // Writes some rows of a table, by their numbers in it, under the conditions of overwrite().
  void overwrite_rows(ir::VariableId variable, const std::vector<Rows>& parts) {
    copy_rows_to_tensor(locals_[variable.value], parts);
  }

  // The tensor has got other values from outside; the version stays. By the compute thread, between
  // steps.
  void reload(ir::VariableId variable);
  // Who writes to the tensors beside this. Its notes are the compute thread's.
  [[nodiscard]] TensorWatch& watch() { return watch_; }
  // Throws Error(kUsage) where somebody has written to it without settling it first.
  void check_untouched(ir::VariableId variable) const;

  // For variables without slices, each once: applies its rule to a gradient (row-major or, where
  // the variable is trained by rows, sparse; on the host or, where the variable is updated there,
  // on its device, for the current queue; scaled here by the clip's factor).
  struct WholeUpdate {
    ir::VariableId variable;
    torch::Tensor gradient;
    std::int64_t samples = 0;
    std::string news;
  };
  void update_whole(std::uint64_t step, std::vector<WholeUpdate> updates);

  // State of the rules that run at this rank, by variable and piece (of all its slices, in order;
  // one piece where has_whole_state()). Empty where the owner updates. Between steps, or by the
  // thread that installs; of a device a copy, which put_states() brings back after it was written
  // to.
  [[nodiscard]] std::vector<UpdateState>& states(ir::VariableId variable);
  void put_states(ir::VariableId variable);
  [[nodiscard]] bool has_whole_state(ir::VariableId variable) const {
    const Local& local = locals_[variable.value];
    return local.sources.empty() || local.updated_on_device;
  }
  // Whether this rank's rule runs on the device that the variable is on.
  [[nodiscard]] bool is_updated_on_device(ir::VariableId variable) const {
    return locals_[variable.value].updated_on_device;
  }

  // Of rules that run on the device.
  [[nodiscard]] Bytes device_state_bytes() const;

  // On a device, by the compute thread: what is handed to `queue` from now on sees the version that
  // is installed, while the variable is held or nothing is on its way; and the next version is not
  // copied in before `mark`, of the last op that reads this one.
  void await_copy(ir::VariableId variable, const Queue& queue, WaitSite site) const {
    queue.wait_for(locals_[variable.value].installed, site);
  }
  void read_until(ir::VariableId variable, const Mark& mark) {
    locals_[variable.value].last_read = mark;
  }

  [[nodiscard]] const torch::Tensor& tensor(ir::VariableId variable) const {
    return locals_[variable.value].tensor;
  }
  // The installed version, dense and row-major on the host: not to be written to.
  [[nodiscard]] torch::Tensor dense(ir::VariableId variable) const;

 private:
  struct Source {  // where a part of a variable comes from
    program::SliceId slice;
    program::PieceLayout piece;
  };
  struct Local {
    torch::Tensor tensor;
    DType dtype = DType::kFloat32;
    // Dense and on the host, where the tensor is not: the version that is installed, if all of it
    // comes in; where it is updated on the device, the gradient that made it, if one came.
    torch::Tensor shadow;
    std::vector<torch::Tensor> staged;  // parts of a version, on their way to the device
    Mark installed;  // what the host held of the last version has come to the device
    Mark last_read;  // the ops that read the version before are done
    std::vector<Source> sources;
    std::vector<UpdateState> states;
    bool updated_on_device = false;
    std::vector<torch::Tensor> device_states;
    bool gets_parameters = true;  // else averaged gradients, which it applies
    bool gets_rows = false;       // of parameters
    ir::UpdateRule rule;          // as declared, or as the news has it; where it runs here
    std::string news;             // that it follows
    std::optional<NormId> clip;
  };
  // Written by take(), before the protocol hears of the result, and from then on the installing
  // thread's. What both look at is in uninstalled_.
  struct Result {
    std::int64_t samples = 0;
    comm::Payload payload;
    std::string news;
    bool is_in = false;  // the payload went into the variables as it came
  };

  template <typename Cycle>
  static auto& of_step(Cycle& cycle, std::uint64_t step) {
    return cycle[step % cycle.size()];
  }
  Result& result(program::SliceId slice, std::uint64_t step) {
    return of_step(results_[slice.value], step);
  }
  // To be written to.
  [[nodiscard]] std::byte* bytes(Local& local) const;
  [[nodiscard]] double clip_factor_of(const Local& local, std::uint64_t step) const;
  [[nodiscard]] UpdateStep update_of(const Local& local, std::uint64_t step) const;
  [[nodiscard]] Rows copy_rows(Local& local, program::SliceId slice,
                               const comm::Payload& payload) const;
  [[nodiscard]] Rows update_rows(Local& local, std::uint64_t step, const torch::Tensor& gradient);
  [[nodiscard]] static bool shadows_version(const Local& local) {
    return local.shadow.defined() && !local.updated_on_device;
  }
  // Returns the rows that are new, of a variable that gets rows.
  std::vector<Rows> copy_results(Local& local, std::uint64_t step);
  void update_pieces(Local& local, std::uint64_t step);
  void gather_gradient(Local& local, std::uint64_t step);
  // Variables that follow one rule, by one call for all. Gradients may be on the host.
  struct Together {
    std::vector<Local*> locals;
    std::vector<torch::Tensor> gradients;
    double clip_factor = 1;
    Bytes bytes{};  // of the variables
  };
  static void add_to_groups(std::vector<Together>& groups, Local& local, torch::Tensor gradient,
                            double clip_factor);
  void update_on_device(const Together& group, std::uint64_t step, const Queue& queue);
  void update_on_host(Local& local, std::uint64_t step, const torch::Tensor& gradient);
  void follow(ir::VariableId variable, const std::string& news);
  void copy_to_tensor(Local& local);
  void copy_rows_to_tensor(Local& local, const std::vector<Rows>& parts);
  void copy_piece_to_tensor(Local& local, const program::PieceLayout& piece,
                            const std::byte* slice);

  const program::Program& program_;
  const Norms& norms_;
  const LossScaler& scaler_;
  const UserRules* user_rules_;
  Staging& staging_;
  Signal& signal_;
  const Queue copies_;
  TensorWatch watch_;
  std::vector<Local> locals_;
  std::vector<std::vector<Result>> results_;  // by slice, then by step, cyclically
  // Variables that wait for the result, in the order of results_.
  std::vector<std::vector<std::uint32_t>> uninstalled_ AD_GUARDED_BY(signal_);
  std::vector<std::uint32_t> variable_counts_;  // how many variables a slice has parts of, by slice
  std::vector<std::vector<const program::PieceLayout*>>
      pieces_;  // by slice; of the variables' sources
};

}  // namespace autodist::exec
