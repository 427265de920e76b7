// Sums that need parts from several owners: the joint norm of clipped gradients, and LAMB's two
// norms per variable. Each owner sends the sums of squares of its slices to everybody; whoever
// updates adds them in a fixed order, so all get the same bits.

#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "autodist/ir/program.h"

namespace autodist::exec {

// A clip, a LAMB variable that is updated at owners, or the flags of loss scaling.
using NormId = Id<struct NormTag>;

// The share of one piece, or of one whole variable, in a norm.
struct NormPart {
  NormId norm;
  std::uint32_t part = 0;  // the order of addition
};

// Which norms a Program needs and what their parts are. Clips come first, by their ids. A clip adds
// the slices' pieces in the order of the slice table, then the variables that no slice carries, in
// the order of variables. The flags of loss scaling are the last: a part per replica, above 0 where
// a gradient of its is not finite.
struct NormPlan {
  explicit NormPlan(const ir::Program& program);

  [[nodiscard]] static NormId of(ir::ClipId clip) { return NormId(clip.value); }

  std::vector<std::uint32_t> parts;                           // per norm: how many
  std::vector<std::vector<std::optional<NormPart>>> clipped;  // per slice and piece
  std::vector<std::vector<std::optional<NormPart>>> lamb;     // per slice and piece
  std::vector<std::optional<NormPart>> whole;  // per variable, where no slice carries it
  std::optional<NormId> flags;                 // where the Program scales the loss
};

struct SquaredSums {
  double first = 0;   // of the gradient; LAMB: of the parameters
  double second = 0;  // LAMB: of the update

  friend bool operator==(const SquaredSums& a, const SquaredSums& b) {
    return a.first == b.first && a.second == b.second;
  }
};

// min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ has it.
double clip_factor(double max_norm, double sum_of_squares);

// Collects the parts. Any thread. Holds two steps at a time: nobody reaches step k + 2 before
// everybody has used the norms of step k.
class Norms {
 public:
  explicit Norms(std::vector<std::uint32_t> parts);

  // True for exactly one caller per norm and step: the one that brings the last part.
  bool add(std::uint64_t step, NormPart part, SquaredSums sums);

  // The total, or nothing while parts are missing.
  [[nodiscard]] std::optional<SquaredSums> total(std::uint64_t step, NormId norm) const;

 private:
  struct Entry {
    std::uint64_t step = 0;
    std::uint32_t missing = 0;
    std::vector<SquaredSums> parts;
    std::vector<bool> present;
  };

  mutable std::mutex mutex_;
  std::vector<Entry> entries_[2];  // by parity of the step
};

}  // namespace autodist::exec
