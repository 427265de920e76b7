// Many variables are far smaller than a slice (117 of ResNet-50's 161 are under 10 k parameters):
// on their own they cost a message each and carry next to nothing.

#include <algorithm>
#include <tuple>
#include <utility>

#include "autodist/passes/pass.h"
#include "autodist/passes/slice_table.h"
#include "autodist/program/loads.h"

namespace autodist::passes {
namespace {

// How many places apart two variables of one slice may stand in the order in which they are needed:
// a fused slice leaves with its last gradient and is as urgent as its first use, so it must not
// reach over much of the network (docs/decisions/012-fusion.md).
constexpr std::size_t kLikePlaces = 16;

class Fuser {
 public:
  explicit Fuser(const State& state) : state_(state), places_(state.program.variables.size()) {
    for (std::size_t i = 0; i < state.by_need.size(); ++i) {
      places_[state.by_need[i].value] = i;
    }
  }

  std::vector<program::Slice> fused(std::vector<program::Slice> slices) const {
    sort_slices(slices, [this](const program::Slice& slice) {
      return std::pair(key(slice), place(slice.pieces[0]));
    });
    std::vector<program::Slice> result;
    result.reserve(slices.size());
    bool open = false;  // whether the last of `result` takes more
    for (program::Slice& slice : slices) {
      const bool small =
          program::bytes_of(slice) < state_.options.fuse_below && may_be_fused(slice.exchange);
      if (open && small && fits(result.back(), slice)) {
        append(result.back(), slice.pieces[0]);
      } else {
        result.push_back(std::move(slice));
        open = small;
      }
      if (!small) open = false;
    }
    return result;
  }

 private:
  // Only slices that agree in all of this may travel as one.
  using Key = std::tuple<program::Rank, bool, DType, std::int64_t, std::uint32_t, bool,
                         program::Codec, bool, double, program::Route>;
  Key key(const program::Slice& slice) const {
    const auto& clip = state_.program.plan(variable(slice.pieces[0])).clip;
    const auto* found = std::get_if<program::Dense>(&slice.exchange.payload);
    const program::Dense dense = found == nullptr ? program::Dense{} : *found;
    const std::optional<std::uint32_t> lag = lag_of(slice.exchange);
    return std::make_tuple(slice.owner, !makes_parameters(slice.exchange), slice.dtype,
                           clip ? std::int64_t{clip->value} : -1, lag.value_or(0), lag.has_value(),
                           dense.up.codec, dense.up.error_feedback, dense.up.density, dense.route);
  }
  ir::VariableId variable(const program::Piece& piece) const {
    return state_.program.shard(piece.shard).variable;
  }
  std::size_t place(const program::Piece& piece) const { return places_[variable(piece).value]; }

  // REQUIRES: `next` comes after `slice` in the order of fused().
  bool fits(const program::Slice& slice, const program::Slice& next) const {
    return key(slice) == key(next) && slice.members == next.members &&
           place(next.pieces[0]) - place(slice.pieces[0]) <= kLikePlaces &&
           program::bytes_of(slice) + program::bytes_of(next) <=
               std::min(state_.options.fuse_below, state_.slice_limit());
  }

  static void append(program::Slice& slice, const program::Piece& piece) {
    program::Piece& last = slice.pieces.back();
    if (last.shard == piece.shard && last.end == piece.begin) {
      last.end = piece.end;
    } else {
      slice.pieces.push_back(piece);
    }
  }

  const State& state_;
  std::vector<std::size_t> places_;  // by variable: position in by_need
};

}  // namespace

void fuse(State& state) {
  state.program.slices = Fuser(state).fused(std::move(state.program.slices));
  name_slices(state.program);
}

}  // namespace autodist::passes
