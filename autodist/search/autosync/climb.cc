#include "autodist/search/autosync/climb.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace autodist::search {
namespace {

class Climber {
 public:
  Climber(const Space& space, const Neighbourhood& neighbourhood, const Cost& cost,
          const Point& start, const Stop& stop)
      : space_(space), neighbourhood_(neighbourhood), cost_(cost), stop_(stop) {
    best_.point = start;
    best_.cost = cost(start).value();
  }

  // True where the point is better than the best so far.
  bool take(const Point& point) {
    const std::optional<double> cost = cost_(point);
    if (!cost || *cost >= best_.cost) return false;
    best_.cost = *cost;
    best_.point = point;
    return true;
  }
  [[nodiscard]] bool stopped() const { return stop_ && stop_(); }

  bool improve_slices() {
    bool better = false;
    for (const Bytes& size : space_.allowed().slice_bytes) {
      Point next = best_.point;
      next.slice_bytes = size;
      if (!(next == best_.point) && !stopped()) better = take(next) || better;
    }
    return better;
  }

  bool improve_groups() {
    bool better = false;
    for (const double mebibytes : {1.0, 4.0, 16.0, 64.0}) {
      Point next = best_.point;
      regroup(space_, mebibytes * (1 << 20), next);
      if (!(next == best_.point) && !stopped()) better = take(next) || better;
    }
    return better;
  }

  bool improve_deal() {
    Point next = best_.point;
    deal(space_, next);
    return !(next == best_.point) && take(next);
  }

  bool improve(const std::vector<ir::VariableId>& variables) {
    bool better = false;
    for (const Choice& choice : neighbourhood_.options(variables.front())) {
      if (stopped()) return better;
      // A class is dealt over the servers, so options that only name another server do the same
      // to it: the first of them stands for all.
      if (variables.size() > 1 && choice.kind == ChoiceKind::kServers &&
          choice.places.size() == 1 && choice.places.front() != 0) {
        continue;
      }
      Point next = best_.point;
      if (set_class(space_, variables, choice, next)) better = take(next) || better;
      if (variables.size() > 1) continue;
      next = best_.point;  // and as it is listed, not dealt
      next.choices[variables.front().value] = choice;
      if (!(next == best_.point)) better = take(next) || better;
    }
    return better;
  }

  void anneal(const std::vector<double>& weights, const Walk& walk, std::mt19937_64& random) {
    Point here = best_.point;
    double cost_here = best_.cost;
    for (std::uint32_t i = 0; i < walk.moves && !stopped(); ++i) {
      const double left = 1 - static_cast<double>(i) / walk.moves;
      const double heat = walk.temperature * left * left * best_.cost;
      Point next = neighbourhood_.draw_one(here, weights, random);
      const std::optional<double> cost = cost_(next);
      // Drawn whether needed or not, so that the sequence does not depend on rounding of costs.
      const double luck = draw_unit(random);
      if (!cost) continue;
      if (*cost > cost_here && luck >= std::exp((cost_here - *cost) / std::max(heat, 1e-300))) {
        continue;
      }
      here = std::move(next);
      cost_here = *cost;
      if (cost_here >= best_.cost) continue;
      best_.cost = cost_here;
      best_.point = here;
    }
  }

  [[nodiscard]] const ClimbResult& best() const { return best_; }

 private:
  const Space& space_;
  const Neighbourhood& neighbourhood_;
  const Cost& cost_;
  const Stop& stop_;
  ClimbResult best_;
};

}  // namespace

ClimbResult climb(const Space& space, const Neighbourhood& neighbourhood, const Guide& guide,
                  const Point& start, const Walk& walk, std::mt19937_64& random) {
  Climber climber(space, neighbourhood, guide.cost, start, guide.stop);
  for (std::uint32_t round = 0; round < walk.rounds && !climber.stopped(); ++round) {
    bool better = climber.improve_slices();
    for (const auto& variables : neighbourhood.classes()) {
      better = climber.improve(variables) || better;
    }
    better = climber.improve_groups() || better;
    better = climber.improve_deal() || better;
    if (!better) break;
  }
  std::vector<double> weights(start.choices.size());
  if (guide.exposed) weights = guide.exposed(climber.best().point);
  std::vector<std::uint32_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return weights[a] > weights[b]; });
  order.resize(std::min<std::size_t>(order.size(), walk.variables));
  for (std::uint32_t variable : order) climber.improve({ir::VariableId(variable)});
  climber.anneal(weights, walk, random);
  return climber.best();
}

std::optional<std::uint64_t> count_points(const Space& space, const Neighbourhood& neighbourhood,
                                          std::uint64_t most) {
  std::uint64_t count = std::max<std::uint64_t>(1, space.allowed().slice_bytes.size());
  for (std::size_t i = 0; i < space.graph().variables.size(); ++i) {
    count *= neighbourhood.options(ir::VariableId(i)).size();
    if (count > most) return {};
  }
  return count;
}

std::optional<ClimbResult> exhaust(const Space& space, const Neighbourhood& neighbourhood,
                                   const Cost& cost, const Stop& stop) {
  std::vector<Bytes> sizes = space.allowed().slice_bytes;
  if (sizes.empty()) sizes.emplace_back(0);
  const std::size_t variables = space.graph().variables.size();
  std::optional<ClimbResult> best;
  for (const Bytes& size : sizes) {
    Point point;
    point.slice_bytes = size;
    for (std::size_t i = 0; i < variables; ++i) {
      point.choices.push_back(neighbourhood.options(ir::VariableId(i)).front());
    }
    std::vector<std::size_t> at(variables);
    for (bool more = true; more;) {
      if (stop && stop()) return {};
      const std::optional<double> value = cost(point);
      if (value && (!best || *value < best->cost)) best = ClimbResult{point, *value};
      more = false;  // the next in the order of an odometer
      for (std::size_t i = 0; i < variables && !more; ++i) {
        const auto& options = neighbourhood.options(ir::VariableId(i));
        at[i] = (at[i] + 1) % options.size();
        point.choices[i] = options[at[i]];
        more = at[i] != 0;
      }
    }
  }
  return best;
}

}  // namespace autodist::search
