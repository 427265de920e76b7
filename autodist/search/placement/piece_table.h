// How pieces of a graph, one behind the other, are dealt to devices: the table of the dynamic
// programming that linear_dp.cc and ideal_dp.cc have in common.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "autodist/search/placement/throughput.h"

namespace autodist::search::placement {

// For every place up to which pieces are dealt, and every count of devices of each kind that have
// one, the least largest load.
class PieceTable {
 public:
  // Devices with the same figures: it does not matter which of them gets a piece.
  struct Kind {
    ThroughputDevice figures;
    std::vector<DeviceIndex> devices;
    std::size_t step = 1;  // by which a state's number grows when one more of them has a piece
  };

  // Nothing is dealt at place 0, everything at `last`.
  PieceTable(const ThroughputProblem& problem, std::size_t last) : last_(last) {
    for (DeviceIndex device = 0; device < problem.devices.size(); ++device) {
      const ThroughputDevice& figures = problem.devices[device];
      const auto same = std::find_if(kinds_.begin(), kinds_.end(),
                                     [&](const Kind& kind) { return kind.figures == figures; });
      if (same == kinds_.end()) {
        kinds_.push_back({figures, {device}});
      } else {
        same->devices.push_back(device);
      }
    }
    for (Kind& kind : kinds_) {
      kind.step = states_;
      states_ *= kind.devices.size() + 1;
    }
    best_.assign((last + 1) * states_, {kNever, 0, 0});
    best_[0].load = 0;
  }

  [[nodiscard]] const std::vector<Kind>& kinds() const { return kinds_; }

  // The least largest load with which everything is dealt so far; kNever before it is.
  [[nodiscard]] double least() const { return best_[last_ * states_ + best_state()].load; }
  // Whether pieces that begin at this place may lower it: it was reached with a smaller load.
  [[nodiscard]] bool may_lower(std::size_t place) const {
    const double known = least();
    const auto row = best_.begin() + static_cast<std::ptrdiff_t>(place * states_);
    return std::any_of(row, row + static_cast<std::ptrdiff_t>(states_),
                       [&](const Cell& cell) { return cell.load < known; });
  }

  // The piece between two places, with this load, to a further device of the kind.
  void deal(std::size_t from, std::size_t to, std::uint32_t kind, double load) {
    const std::size_t count = kinds_[kind].devices.size();
    const std::size_t step = kinds_[kind].step;
    for (std::size_t state = 0; state < states_; ++state) {
      const Cell& before = best_[from * states_ + state];
      if (before.load == kNever || state / step % (count + 1) == count) continue;
      Cell& after = best_[to * states_ + state + step];
      const double largest = std::max(before.load, load);
      if (largest < after.load) after = {largest, static_cast<std::uint32_t>(from), kind};
    }
  }

  // Calls piece(from, to, device) for the pieces of the least largest load, the last one first.
  // False: there is no way to deal everything.
  template <typename Piece>
  bool trace(Piece piece) const {
    std::size_t state = best_state();
    if (best_[last_ * states_ + state].load == kNever) return false;
    std::vector<std::size_t> used(kinds_.size(), 0);
    for (std::size_t to = last_; to > 0;) {
      const Cell& cell = best_[to * states_ + state];
      const Kind& kind = kinds_[cell.kind];
      piece(cell.from, to, kind.devices[used[cell.kind]++]);
      to = cell.from;
      state -= kind.step;
    }
    return true;
  }

 private:
  struct Cell {
    double load;
    std::uint32_t from;  // where the last piece begins
    std::uint32_t kind;
  };

  // Of the last place; the first of equals.
  [[nodiscard]] std::size_t best_state() const {
    const auto row = best_.end() - static_cast<std::ptrdiff_t>(states_);
    const auto least = std::min_element(
        row, best_.end(), [](const Cell& a, const Cell& b) { return a.load < b.load; });
    return static_cast<std::size_t>(least - row);
  }

  std::size_t last_;
  std::vector<Kind> kinds_;
  std::size_t states_ = 1;
  std::vector<Cell> best_;
};

}  // namespace autodist::search::placement
