// Applies a declared update rule to a contiguous run of elements: a whole parameter, a shard or one
// slice of it.
//
// Every rule but LAMB is elementwise, so a parameter that is updated slice by slice, each slice
// with its own UpdateState, gets the same bits as one that is updated whole. LAMB scales a
// variable's step by two norms: sum_lamb_norms over all its slices first, then apply_lamb with the
// totals.
//
// The formulas (update_formulas.h) and the order of their arithmetic are those of torch.optim 1.13
// (sgd, adam, adamw, adagrad, adadelta, adamax, nadam, radam, rmsprop), of McMahan et al. 2013, "Ad
// click prediction: a view from the trenches", algorithm 1, as in TensorFlow's ApplyFtrl (ftrl),
// and of You et al. 2020, "Large batch optimization for deep learning", algorithm 2 with phi(z) = z
// (lamb). Products and sums are rounded one by one; libtorch's vector kernels fuse some, hence
// differences of an ulp.
//
// Plain pointers, no tensors. Nothing here is shared: any number of threads may update different
// slices at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "autodist/base/dtype.h"
#include "autodist/exec/weighted_sum.h"
#include "autodist/ir/optimizer.h"

namespace autodist::exec {

// What a user's elementwise rule gets. It must treat every element alike and by itself, or the
// result depends on how a parameter is sliced.
struct UserUpdate {
  void* parameters = nullptr;      // of `dtype`; updated in place
  const void* gradient = nullptr;  // of `dtype`
  DType dtype = DType::kFloat32;
  std::vector<void*> states;  // as many as declared, zero at first, of state_dtype(dtype)
  std::int64_t elements = 0;
  std::int64_t step = 0;  // updates before this one
  double lr = 0;          // the rule's learning rate times the schedule's factor
  const std::map<std::string, double>* options = nullptr;
};

// The rules that a program brings along, by the name that an UpdateRule of kind kUser gives.
class UserRules {
 public:
  using Update = std::function<void(const UserUpdate&)>;
  struct Entry {
    int states = 0;
    Update update;
  };

  // REQUIRES: a new name, states >= 0, a callable update.
  void add(const std::string& name, int states, Update update);

  // Throws Error(kUsage) with the nearest known name for one that was not added.
  [[nodiscard]] const Entry& find(const std::string& name) const;

 private:
  std::map<std::string, Entry> entries_;
};

// Accumulators are kept in the parameter's type as torch does, but f16 and bf16 ones in f32: in
// eight bits of mantissa a second moment with beta2 = 0.999 never moves.
DType state_dtype(DType parameters);

// The names of a rule's accumulators, torch's own: {"exp_avg", "exp_avg_sq"} for adam. Options
// decide (momentum, amsgrad, centered). A user's rule has "state0", "state1", … `user_rules` may be
// null for the other rules.
std::vector<std::string> state_names(const ir::UpdateRule& rule, const UserRules* user_rules);

// The accumulators of `elements` elements: what a checkpoint stores beside the parameter.
class UpdateState {
 public:
  // As before the first update: zeros, or the rule's initial value. Throws Error(kUsage) where
  // `dtype` is not floating or a user's rule is unknown.
  UpdateState(const ir::UpdateRule& rule, std::int64_t elements, DType dtype,
              const UserRules* user_rules = nullptr);

  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] std::int64_t elements() const { return elements_; }
  [[nodiscard]] std::size_t bytes_per_state() const;

  // The elements of one accumulator. REQUIRES: index < names().size().
  [[nodiscard]] void* data(std::size_t index);
  [[nodiscard]] const void* data(std::size_t index) const;

 private:
  std::vector<std::string> names_;
  DType dtype_;
  std::int64_t elements_;
  // One allocation each, so that a checkpoint can write one without copying.
  std::vector<std::vector<std::byte>> arrays_;
};

// One update by a rule. All that it points to is the caller's.
struct UpdateStep {
  const ir::UpdateRule& rule;
  double lr_factor = 1;                   // multiplies the rule's lr
  std::int64_t updates_before = 0;        // by the rule: 0 at the first
  const UserRules* user_rules = nullptr;  // of a rule of kind kUser
};

// Elements that lie one after the other, and their gradient. Types are f32, f64, f16 and bf16; f16
// and bf16 are computed in f32 and rounded once, at the end.
struct ParameterRun {
  void* parameters = nullptr;
  const void* gradient = nullptr;
  std::int64_t elements = 0;
  DType dtype = DType::kFloat32;
};

// One update in place.
// REQUIRES: `state` was made for this rule, dtype and number of elements; the rule is not LAMB.
void apply(const UpdateStep& update, const ParameterRun& run, UpdateState& state);

// LAMB's first phase: advances the moments and returns this slice's part of ||w||² and
// ||r + weight_decay w||². The parameters stay as they are. REQUIRES: as apply, but LAMB.
SquaredSums sum_lamb_norms(const UpdateStep& update, const ParameterRun& run, UpdateState& state);

// LAMB's second phase, with the sums over the whole variable. The ratio of the norms is 1 where
// either is zero. The gradient, which the moments in `state` hold, may be null. REQUIRES:
// sum_lamb_norms of this step came before.
void apply_lamb(const UpdateStep& update, const ParameterRun& run, const UpdateState& state,
                const SquaredSums& norms);

}  // namespace autodist::exec
