// What a rank's protocol is told (events) and what it asks for (effects). All are plain values: the
// executor performs effects on bytes, the simulator in virtual time, and a test in every order.
//
//   Contributed ─▶ Contribute ─▶ ContributionArrived ─▶ Merge ─▶ Merged ─▶ Return ─▶ ResultArrived
//   ─▶ Take ─▶ Taken ─▶ Install ─▶ Installed ─▶ Open

#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "autodist/program/program.h"

namespace autodist::protocol {

using ir::VariableId;
using program::Rank;
using program::SliceId;
using Step = std::uint64_t;

// A sum that needs parts from several ranks: the joint norm of a clip, LAMB's norms of a variable,
// or the flags that loss scaling agrees by.
using NormId = Id<struct NormTag>;

// ---- Events

// This rank's gradient of a slice is complete, and in the form in which it travels.
struct Contributed {
  SliceId slice;
  Step step = 0;
};
struct ContributionArrived {
  Rank from;
  SliceId slice;
  Step step = 0;
};
// The work that Merge, Measure, Update, Install and GiveRows started is done.
struct Merged {
  SliceId slice;
};
struct Measured {
  SliceId slice;
};
struct Updated {
  SliceId slice;
};
struct Installed {
  VariableId variable;
};
struct RowsGiven {
  Rank to;
  SliceId slice;
  Step step = 0;
  bool with_result = false;
};
struct ResultArrived {
  SliceId slice;
  Step step = 0;
};
// The bytes that Take spoke of are where Install finds them.
struct Taken {
  SliceId slice;
  Step step = 0;
};
// The step reads the variable from here on.
struct Held {
  VariableId variable;
};
// The step reads it no more.
struct Released {
  VariableId variable;
};
// Another rank's sums of squares of a slice, or of a variable that no slice carries, are here: its
// parts of the norms.
struct SumsArrived {
  SliceId slice;
  Step step = 0;
  bool lamb = false;
};
struct WholeSumArrived {
  VariableId variable;
  Step step = 0;
};
// A computing rank has said whether its gradients of the step are finite. `from` may be this rank.
struct Flagged {
  Rank from;
  Step step = 0;
  bool finite = true;
};
// The averaged gradient of a variable that no slice carries is here, and its part of the clip's
// norm is known.
struct Averaged {
  VariableId variable;
  Step step = 0;
};
// The stream has updated a variable that no slice carries.
struct UpdatedHere {
  VariableId variable;
};
// The next step reads rows of a slice whose rows are fetched.
struct RowsWanted {
  SliceId slice;
  Step step = 0;
};
struct AskArrived {
  Rank from;
  SliceId slice;
  Step step = 0;
};
struct RowsArrived {
  SliceId slice;
};
using Event =
    std::variant<Contributed, ContributionArrived, Merged, Measured, Updated, Installed, RowsGiven,
                 ResultArrived, Taken, Held, Released, SumsArrived, WholeSumArrived, Flagged,
                 Averaged, UpdatedHere, RowsWanted, AskArrived, RowsArrived>;

// ---- Effects

// Sends this rank's contribution to whom it goes to (Job::for_each_contributed_to), itself left
// out.
struct Contribute {
  SliceId slice;
  Step step = 0;
};
// Sends the mean of what met here on towards the owner (Job::onward), as a contribution.
struct HandOn {
  SliceId slice;
  Step step = 0;
};
// Sends a result to those who get it from this rank (Job::for_each_returned_to).
struct Return {
  SliceId slice;
  Step step = 0;
};
// Sends a slice's result to one rank, never itself.
struct Answer {
  Rank to;
  SliceId slice;
  Step step = 0;
};
// Sends a slice's sums of squares to all other ranks: of its gradient, or LAMB's two.
struct TellSums {
  SliceId slice;
  Step step = 0;
  bool lamb = false;
};
// Sends the sum of squares of a variable that no slice carries to the ranks that only serve: the
// others have computed it themselves.
struct TellServers {
  VariableId variable;
  Step step = 0;
};
// Asks a slice's owner, another rank, for rows.
struct Ask {
  SliceId slice;
  Step step = 0;
};
// Sends rows that GiveRows has found, to another rank; in the same message the result of the step
// before, where that is still to be sent: ResultArrived stands before RowsArrived then.
struct SendRows {
  Rank to;
  SliceId slice;
  Step step = 0;
  bool with_result = false;
};
// Rows that GiveRows has found are this rank's own: RowsArrived follows.
struct TakeRows {
  SliceId slice;
  Step step = 0;
};

// Work. Adds up contributions in rank order; where the owner updates and nothing is awaited
// (Job::updates_at_once), it updates in the same piece of work. Of an asynchronous slice it applies
// the contribution of `from` to the step. The rank's own contributions are among them.
struct Merge {
  SliceId slice;
  Step step = 0;
  Rank from = {};  // of an asynchronous slice
};
// LAMB: both sums of squares of the slice, from the clipped gradient.
struct Measure {
  SliceId slice;
  Step step = 0;
};
// Applies the rule at the owner. Overwrites version `step`.
struct Update {
  SliceId slice;
  Step step = 0;
};
// Puts all results of a variable in their place, or applies the rule to them where every rank
// updates. Overwrites version `step`.
struct Install {
  VariableId variable;
  Step step = 0;
};
struct GiveRows {
  Rank to;
  SliceId slice;
  Step step = 0;
  bool with_result = false;
};

// Keeps a result for this rank, which came or was made here: Taken follows.
struct Take {
  SliceId slice;
  Step step = 0;
};
// Version v of a variable is here, which holds the steps before v; or all rows that were asked for.
struct Open {
  VariableId variable;
};
// All ranks have said whether their gradients are finite. Stands before all that follows from it.
struct Agreed {
  Step step = 0;
  bool overflow = false;
};
// All parts of a norm are known.
struct NormKnown {
  NormId norm;
  Step step = 0;
};
using Effect =
    std::variant<Contribute, HandOn, Return, Answer, TellSums, TellServers, Ask, SendRows, TakeRows,
                 Merge, Measure, Update, Install, GiveRows, Take, Open, Agreed, NormKnown>;

// Collects the effects of events, in their order. Its memory stays from one event to the next.
class Effects {
 public:
  template <typename Each>
  void add(const Each& effect) {
    if (size_ == items_.size()) items_.resize(2 * size_ + 16);
    items_[size_++] = effect;
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const Effect& operator[](std::size_t i) const { return items_[i]; }
  // Drops those from `size` on.
  void shrink_to(std::size_t size) { size_ = size; }

 private:
  std::vector<Effect> items_;
  std::size_t size_ = 0;
};

}  // namespace autodist::protocol
