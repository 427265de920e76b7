#include "autodist/search/placement/annealing.h"

#include <cmath>

#include "autodist/base/check.h"
#include "autodist/search/placement/random.h"

namespace autodist::search::placement {
namespace {

constexpr std::uint64_t kMovesBetweenChecks = 4096;
constexpr std::uint32_t kLargestCluster = 48;
constexpr double kOverflowWeight = 1e3;

// (x)^16 without a call.
double power(double x) {
  x *= x;
  x *= x;
  x *= x;
  return x * x;
}

class Walk {
 public:
  Walk(const ThroughputProblem& problem, const std::vector<DeviceIndex>& start,
       const std::vector<std::vector<std::uint32_t>>& orders, std::mt19937_64& random)
      : problem_(problem), orders_(orders), random_(random), state_(problem, start) {
    mark_.resize(problem.groups(), 0);
    scale_ = state_.largest_load();
    note_best();
  }

  Annealed run(const AnnealingOptions& options) {
    std::uint64_t done = 0;
    for (; done < options.moves; ++done) {
      if (done % kMovesBetweenChecks == 0) {
        if (options.stop && options.stop()) break;
        state_.refresh();
        rescale();
        const double progress = static_cast<double>(done) / static_cast<double>(options.moves);
        temperature_ = options.hot * std::pow(options.cold / options.hot, progress);
      }
      step();
    }
    best_.moves = done;
    return best_;
  }

 private:
  // The energy follows the best load: (load / scale)^16 is about 1 for the busiest device.
  void rescale() {
    if (best_.largest_load != kNotSupported) scale_ = best_.largest_load;
    energy_ = total_energy();
  }

  [[nodiscard]] double total_energy() const {
    double energy = 0;
    for (std::size_t device = 0; device < problem_.devices.size(); ++device) {
      energy += energy_of(state_.load(device), state_.memory(device), device);
    }
    return energy;
  }

  [[nodiscard]] double energy_of(double load, double memory, std::size_t device) const {
    const double limit = problem_.devices[device].memory;
    const double over = memory > limit ? kOverflowWeight * (memory / limit - 1) + 1 : 0;
    return power(load / scale_) + over;
  }

  void step() {
    const std::uint32_t kind = below(16, random_);
    if (kind < 8) {
      move_to_neighbour();
    } else if (kind < 11) {
      shift_cut();
    } else if (kind < 13) {
      swap();
    } else if (kind < 15) {
      move_cluster();
    } else {
      move_anywhere();
    }
  }

  [[nodiscard]] std::uint32_t any_group() { return below(problem_.groups(), random_); }
  [[nodiscard]] DeviceIndex any_device() {
    return static_cast<DeviceIndex>(below(problem_.devices.size(), random_));
  }

  // A group that shares a tensor with `group`, or `group` itself.
  std::uint32_t any_neighbour(std::uint32_t group) {
    const PackedLists::List nets = problem_.nets_of[group];
    if (nets.size() == 0) return group;
    const PackedLists::List pins = problem_.pins[nets[below(nets.size(), random_)]];
    return pins[below(pins.size(), random_)];
  }

  void move_to_neighbour() {
    for (int tries = 0; tries < 8; ++tries) {
      const std::uint32_t group = any_group();
      const DeviceIndex to = state_.device_of(any_neighbour(group));
      if (to == state_.device_of(group)) continue;
      try_move(group, to);
      return;
    }
  }

  void move_anywhere() {
    const std::uint32_t group = any_group();
    const DeviceIndex to = any_device();
    if (to != state_.device_of(group)) try_move(group, to);
  }

  [[nodiscard]] bool accepts(double change) {
    return change <= 0 || fraction(random_) < std::exp(-change / temperature_);
  }

  void try_move(std::uint32_t group, DeviceIndex to) {
    if (problem_.cost_on(group, to) == kNotSupported) return;
    const DeviceIndex from = state_.device_of(group);
    const ThroughputState::Loads loads = state_.after_move(group, to);
    const double held = problem_.memory[group];
    const double change = energy_of(loads.from, state_.memory(from) - held, from) +
                          energy_of(loads.to, state_.memory(to) + held, to) -
                          energy_of(state_.load(from), state_.memory(from), from) -
                          energy_of(state_.load(to), state_.memory(to), to);
    if (!accepts(change)) return;
    state_.move(group, to);
    energy_ += change;
    if (change < 0) note_best();
  }

  // Applies a list of moves, and takes them back unless they are accepted.
  void try_all(DeviceIndex to) {
    before_.clear();
    for (const std::uint32_t group : chosen_) {
      if (problem_.cost_on(group, to) == kNotSupported) return;
    }
    for (const std::uint32_t group : chosen_) {
      before_.push_back(state_.device_of(group));
      state_.move(group, to);
    }
    finish_trial();
  }

  void finish_trial() {
    const double energy = total_energy();
    if (accepts(energy - energy_)) {
      const bool better = energy < energy_;
      energy_ = energy;
      if (better) note_best();
      return;
    }
    for (std::size_t i = chosen_.size(); i-- > 0;) state_.move(chosen_[i], before_[i]);
  }

  void swap() {
    const std::uint32_t one = any_group();
    const std::uint32_t other = any_group();
    const DeviceIndex a = state_.device_of(one);
    const DeviceIndex b = state_.device_of(other);
    if (a == b || problem_.cost_on(one, b) == kNotSupported ||
        problem_.cost_on(other, a) == kNotSupported) {
      return;
    }
    chosen_.assign({one, other});
    before_.assign({a, b});
    state_.move(one, b);
    state_.move(other, a);
    finish_trial();
  }

  // From a place where two neighbours of an order lie on different devices, some of the second's
  // follow the first.
  void shift_cut() {
    if (orders_.empty()) return;
    const std::vector<std::uint32_t>& order = orders_[below(orders_.size(), random_)];
    if (order.size() < 2) return;
    const bool forwards = below(2, random_) == 0;
    const auto at = [&](std::uint32_t i) { return order[forwards ? i : order.size() - 1 - i]; };
    const auto size = static_cast<std::uint32_t>(order.size());
    for (int tries = 0; tries < 16; ++tries) {
      const std::uint32_t cut = below(size - 1, random_);
      const DeviceIndex to = state_.device_of(at(cut));
      const DeviceIndex from = state_.device_of(at(cut + 1));
      if (to == from) continue;
      std::uint32_t length = 1;
      while (length < kLargestCluster && below(8, random_) != 0) ++length;
      chosen_.clear();
      for (std::uint32_t i = cut + 1; i < size && chosen_.size() < length; ++i) {
        if (state_.device_of(at(i)) != from) break;
        chosen_.push_back(at(i));
      }
      try_all(to);
      return;
    }
  }

  // Grown from a group along tensors, on its device; goes to the device of a neighbour outside.
  void move_cluster() {
    const std::uint32_t seed = any_group();
    const DeviceIndex from = state_.device_of(seed);
    const std::uint32_t wanted = 2 + below(kLargestCluster >> below(4, random_), random_);
    DeviceIndex to = from;
    ++stamp_;
    chosen_.assign({seed});
    mark_[seed] = stamp_;
    for (std::size_t at = 0; at < chosen_.size() && chosen_.size() < wanted; ++at) {
      for (const std::uint32_t net : problem_.nets_of[chosen_[at]]) {
        for (const std::uint32_t pin : problem_.pins[net]) {
          if (state_.device_of(pin) != from) {
            to = state_.device_of(pin);
          } else if (mark_[pin] != stamp_ && chosen_.size() < wanted) {
            mark_[pin] = stamp_;
            chosen_.push_back(pin);
          }
        }
      }
    }
    if (to == from || below(8, random_) == 0) to = any_device();
    if (to != from) try_all(to);
  }

  void note_best() {
    const double largest = state_.largest_load();
    if (largest >= best_.largest_load || state_.overflow() > 0) return;
    best_.largest_load = largest;
    best_.assignment = state_.assignment();
  }

  const ThroughputProblem& problem_;
  const std::vector<std::vector<std::uint32_t>>& orders_;
  std::mt19937_64& random_;
  ThroughputState state_;
  double scale_ = 1;
  double energy_ = 0;
  double temperature_ = 1;
  std::vector<std::uint32_t> chosen_;
  std::vector<DeviceIndex> before_;
  std::vector<std::uint32_t> mark_;
  std::uint32_t stamp_ = 0;
  Annealed best_;
};

}  // namespace

Annealed anneal(const ThroughputProblem& problem, const std::vector<DeviceIndex>& start,
                const std::vector<std::vector<std::uint32_t>>& orders,
                const AnnealingOptions& options, std::mt19937_64& random) {
  AD_CHECK(options.hot > 0 && options.cold > 0) << "temperatures are positive";
  return Walk(problem, start, orders, random).run(options);
}

}  // namespace autodist::search::placement
