#include "autodist/search/placement/throughput_search.h"

#include <algorithm>

#include "autodist/search/placement/annealing.h"
#include "autodist/search/placement/ideal_dp.h"
#include "autodist/search/placement/lanes.h"
#include "autodist/search/placement/linear_dp.h"
#include "autodist/search/placement/multilevel.h"

namespace autodist::search::placement {
namespace {

// Of a descent, which may go round in circles: a move changes the loads of third devices, too.
constexpr int kMostPasses = 100;
constexpr std::size_t kLanes = 8;
constexpr std::size_t kRounds = 4;
constexpr std::size_t kMostUnrolled = 40;
constexpr std::size_t kMostIdealsInSearch = 4000;

// A generator of its own for every lane of every round.
std::mt19937_64 generator_of(std::uint64_t seed, std::uint64_t round, std::uint64_t lane) {
  std::seed_seq sequence{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                         static_cast<std::uint32_t>(round), static_cast<std::uint32_t>(lane)};
  return std::mt19937_64(sequence);
}

struct Start {
  ThroughputAnswer answer;
  std::vector<std::uint32_t> order;
};

// Linear pieces of the known orders and of random unrollings, best first.
std::vector<Start> linear_starts(const ThroughputProblem& problem, const TaskGraph& graph,
                                 const ThroughputSearchOptions& options) {
  // A cut of n groups costs n² steps; the count is a function of the graph alone.
  const double share = 500.0 / static_cast<double>(problem.groups() + 1);
  const auto unrollings = static_cast<std::size_t>(
      std::clamp(kMostUnrolled * share * share, 4.0, static_cast<double>(kMostUnrolled)));
  const std::size_t named = std::size(kAllOrders);
  std::vector<Start> starts(named + unrollings);
  run_lanes(starts.size(), options.threads, [&](std::size_t i) {
    // The named orders at least are always tried: they take seconds at most.
    if (i >= named && options.stop && options.stop()) return;
    std::mt19937_64 random = generator_of(options.seed, 0, i);
    const std::vector<std::uint32_t> tasks =
        i < named ? traversal(graph, kAllOrders[i], random) : unrolled(graph, random);
    starts[i].order = group_order(problem, graph, tasks);
    auto cut = cut_linearly(problem, starts[i].order);
    if (cut) {
      const std::string name = i < named ? to_string(kAllOrders[i]) : "an unrolled order";
      starts[i].answer = judged(problem, std::move(*cut), "linear pieces of " + name);
    }
  });
  std::stable_sort(starts.begin(), starts.end(), [](const Start& a, const Start& b) {
    return a.answer.largest_load < b.answer.largest_load;
  });
  std::erase_if(starts, [](const Start& start) { return start.order.empty(); });
  return starts;
}

// Where nothing linear fits the memory, the annealer starts from tasks dealt by free memory.
std::vector<DeviceIndex> dealt_by_memory(const ThroughputProblem& problem) {
  std::vector<double> held(problem.devices.size(), 0);
  std::vector<DeviceIndex> assignment;
  for (std::uint32_t group = 0; group < problem.groups(); ++group) {
    DeviceIndex best = 0;
    double best_room = -kNotSupported;
    for (DeviceIndex device = 0; device < problem.devices.size(); ++device) {
      if (problem.cost_on(group, device) == kNotSupported) continue;
      const double room = problem.devices[device].cpu
                              ? -problem.cost_on(group, device)
                              : problem.devices[device].memory - held[device];
      if (room > best_room) {
        best_room = room;
        best = device;
      }
    }
    held[best] += problem.memory[group];
    assignment.push_back(best);
  }
  return assignment;
}

// Hot runs forget their start, cold ones polish it. Which is better depends on the graph, so lanes
// differ.
struct Temperatures {
  double hot;
  double cold;
};
constexpr Temperatures kTemperatures[kLanes] = {{1, 3e-4},   {0.1, 3e-3}, {1, 1e-2},
                                                {0.3, 1e-3}, {0.1, 3e-4}, {3, 1e-2},
                                                {0.3, 3e-4}, {0.03, 1e-3}};

class Rounds {
 public:
  Rounds(const ThroughputProblem& problem, const ThroughputSearchOptions& options,
         const std::vector<Start>& starts, ThroughputAnswer best)
      : problem_(problem), options_(options), best_(std::move(best)) {
    for (const Start& start : starts) {
      if (orders_.size() < kLanes && !start.order.empty()) orders_.push_back(start.order);
      if (start.answer.largest_load != kNotSupported) pool_.push_back(start.answer);
    }
    if (pool_.empty()) pool_.push_back(judged(problem, dealt_by_memory(problem), "memory"));
    if (best_.assignment.empty()) best_ = pool_.front();
  }

  ThroughputAnswer run() {
    for (std::size_t round = 1; round <= kRounds && !best_.stopped; ++round) anneal_round(round);
    return best_;
  }

 private:
  // Rounds get longer: the last ones work on what the first have found.
  [[nodiscard]] std::uint64_t moves_of(std::size_t round) const {
    const std::uint64_t parts = kRounds * (kRounds + 1) / 2;
    return options_.moves * round / parts / kLanes;
  }

  [[nodiscard]] const std::vector<DeviceIndex>& start_of(std::size_t round,
                                                         std::size_t lane) const {
    if (round > 1 && lane % 2 == 1) return best_.assignment;
    return pool_[(lane + (round - 1) * kLanes) % pool_.size()].assignment;
  }

  void anneal_round(std::size_t round) {
    std::vector<Annealed> found(kLanes);
    run_lanes(kLanes, options_.threads, [&](std::size_t lane) {
      std::mt19937_64 random = generator_of(options_.seed, round, lane);
      AnnealingOptions annealing;
      annealing.moves = moves_of(round);
      // Every round gives each temperature to another start.
      const Temperatures& chosen = kTemperatures[(lane + 3 * (round - 1)) % kLanes];
      annealing.hot = chosen.hot;
      annealing.cold = chosen.cold;
      annealing.stop = options_.stop;
      found[lane] = anneal(problem_, start_of(round, lane), orders_, annealing, random);
    });
    for (Annealed& each : found) {
      best_.moves += each.moves;
      best_.stopped |= each.moves < moves_of(round);
      if (each.largest_load < best_.largest_load) {
        best_.largest_load = each.largest_load;
        best_.assignment = each.assignment;
        best_.found_by = "annealing";
      }
      if (each.largest_load == kNotSupported) continue;
      pool_.insert(pool_.begin(), judged(problem_, std::move(each.assignment), "annealing"));
    }
    std::stable_sort(pool_.begin(), pool_.end(),
                     [](const ThroughputAnswer& a, const ThroughputAnswer& b) {
                       return a.largest_load < b.largest_load;
                     });
  }

  const ThroughputProblem& problem_;
  const ThroughputSearchOptions& options_;
  ThroughputAnswer best_;
  std::vector<std::vector<std::uint32_t>> orders_;
  std::vector<ThroughputAnswer> pool_;
};

}  // namespace

ThroughputAnswer judged(const ThroughputProblem& problem, std::vector<DeviceIndex> assignment,
                        std::string found_by) {
  const ThroughputState state(problem, std::move(assignment));
  ThroughputAnswer answer;
  answer.assignment = state.assignment();
  answer.found_by = std::move(found_by);
  if (state.overflow() == 0) answer.largest_load = state.largest_load();
  return answer;
}

ThroughputAnswer place_on_one(const ThroughputProblem& problem) {
  ThroughputAnswer best;
  for (DeviceIndex device = 0; device < problem.devices.size(); ++device) {
    ThroughputAnswer answer =
        judged(problem, std::vector<DeviceIndex>(problem.groups(), device), "one device");
    if (best.assignment.empty() || answer.largest_load < best.largest_load) {
      best = std::move(answer);
    }
  }
  return best;
}

ThroughputAnswer place_linearly(const ThroughputProblem& problem, const TaskGraph& graph,
                                Order order, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  auto cut = cut_linearly(problem, group_order(problem, graph, traversal(graph, order, random)));
  if (!cut) return {};
  return judged(problem, std::move(*cut), "linear pieces of " + to_string(order));
}

ThroughputAnswer descend_along(const ThroughputProblem& problem, const TaskGraph& graph,
                               Order order, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::vector<std::uint32_t> groups =
      group_order(problem, graph, traversal(graph, order, random));
  ThroughputState state(problem, place_on_one(problem).assignment);
  std::uint64_t moves = 0;
  bool changed = true;
  for (int pass = 0; changed && pass < kMostPasses; ++pass) {
    changed = false;
    for (const std::uint32_t group : groups) {
      const DeviceIndex from = state.device_of(group);
      DeviceIndex best = from;
      double least = 0;  // change of the sum of squares
      for (DeviceIndex to = 0; to < problem.devices.size(); ++to) {
        if (to == from || problem.cost_on(group, to) == kNotSupported ||
            state.memory(to) + problem.memory[group] > problem.devices[to].memory) {
          continue;
        }
        ++moves;
        const ThroughputState::Loads loads = state.after_move(group, to);
        const double largest = std::max(loads.from, loads.to);
        const double before = std::max(state.load(from), state.load(to));
        const double change = largest * largest - before * before;
        if (largest < before && change < least) {
          least = change;
          best = to;
        }
      }
      if (best == from) continue;
      state.move(group, best);
      changed = true;
    }
    state.refresh();
  }
  ThroughputAnswer answer =
      judged(problem, state.assignment(), "descent along " + to_string(order));
  answer.moves = moves;
  return answer;
}

ThroughputAnswer anneal_in_lanes(const ThroughputProblem& problem,
                                 const ThroughputSearchOptions& options) {
  return Rounds(problem, options, {}, place_on_one(problem)).run();
}

ThroughputAnswer throughput_portfolio(const ThroughputProblem& problem, const TaskGraph& graph,
                                      const ThroughputSearchOptions& options) {
  ThroughputAnswer best = place_on_one(problem);
  const auto offer = [&](ThroughputAnswer answer) {
    if (answer.largest_load < best.largest_load) best = std::move(answer);
  };
  std::vector<Start> starts = linear_starts(problem, graph, options);
  if (!starts.empty()) offer(starts.front().answer);
  for (const Order order : kAllOrders) offer(descend_along(problem, graph, order, options.seed));
  auto ideals = cut_by_ideals(problem, graph, kMostIdealsInSearch);
  if (ideals) offer(judged(problem, std::move(*ideals), "ideals"));
  std::vector<ThroughputAnswer> coarse(kLanes);
  run_lanes(kLanes, options.threads, [&](std::size_t lane) {
    if (lane > 0 && options.stop && options.stop()) return;
    coarse[lane] =
        judged(problem, place_multilevel(problem, options.seed + lane), "multilevel coarsening");
  });
  for (ThroughputAnswer& each : coarse) {
    offer(each);
    // Starts of their own: they see what no order does.
    if (!each.assignment.empty()) starts.push_back({std::move(each), {}});
  }
  std::stable_sort(starts.begin(), starts.end(), [](const Start& a, const Start& b) {
    return a.answer.largest_load < b.answer.largest_load;
  });
  return Rounds(problem, options, starts, std::move(best)).run();
}

}  // namespace autodist::search::placement
