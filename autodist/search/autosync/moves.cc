#include "autodist/search/autosync/moves.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "autodist/search/builders/parts.h"

namespace autodist::search {
namespace {

using strategy::AllReduceAlgorithm;

// What every server holds so far, for its rate.
class Shares {
 public:
  explicit Shares(const Space& space) : space_(space), bytes_(space.servers().size()) {}

  void add(std::uint32_t server, double bytes) { bytes_[server] += bytes; }
  // The server furthest below its share, the first of equals.
  std::uint32_t give(double bytes) {
    std::uint32_t least = 0;
    for (std::uint32_t i = 1; i < bytes_.size(); ++i) {
      if (bytes_[i] * space_.rate(least) < bytes_[least] * space_.rate(i)) least = i;
    }
    bytes_[least] += bytes;
    return least;
  }

 private:
  const Space& space_;
  std::vector<double> bytes_;
};

Shares shares_of(const Space& space, const Point& point) {
  Shares shares(space);
  for_each_variable(space.graph(), [&](ir::VariableId id) {
    const Choice& choice = point.choices[id.value];
    if (choice.kind != ChoiceKind::kServers) return;
    const double each = byte_count(space.graph(), id) / static_cast<double>(choice.places.size());
    for (std::uint32_t place : choice.places) shares.add(place, each);
  });
  return shares;
}

std::size_t draw_weighted(std::mt19937_64& random, const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (sum <= 0) return draw(random, weights.size());
  double at = draw_unit(random) * sum;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    at -= weights[i];
    if (at < 0) return i;
  }
  return weights.size() - 1;
}

// One variable's shard elsewhere, or its group that of a neighbour in the graph's order.
void move_place(const Space& space, std::size_t variable, Point& point, std::mt19937_64& random) {
  Choice& choice = point.choices[variable];
  std::uint32_t& place = choice.places[draw(random, choice.places.size())];
  if (choice.kind == ChoiceKind::kServers) {
    place = static_cast<std::uint32_t>(draw(random, space.servers().size()));
    return;
  }
  const std::size_t other =
      draw(random, 2) == 0 ? variable + 1 : variable + point.choices.size() - 1;
  const Choice& next = point.choices[other % point.choices.size()];
  const bool joins = next.kind == ChoiceKind::kAllReduce && next.places != choice.places;
  place = joins ? next.places.front() : static_cast<std::uint32_t>(variable);
}

}  // namespace

std::size_t draw(std::mt19937_64& random, std::size_t count) { return random() % count; }

double draw_unit(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) / 9007199254740992.0;  // 2^53
}

std::vector<std::vector<ir::VariableId>> classes_of(const ir::Graph& graph) {
  std::map<std::tuple<std::vector<std::int64_t>, bool, int, bool>, std::vector<ir::VariableId>> by;
  for_each_variable(graph, [&](ir::VariableId id) {
    const ir::Variable& variable = graph.variable(id);
    by[{ir::shape_of(graph, id), variable.sparse_gradient, static_cast<int>(variable.update.rule),
        variable.gradient.has_value()}]
        .push_back(id);
  });
  std::vector<std::vector<ir::VariableId>> classes;
  for (auto& [key, variables] : by) classes.push_back(std::move(variables));
  const auto bytes = [&](const std::vector<ir::VariableId>& variables) {
    return byte_count(graph, variables.front()) * static_cast<double>(variables.size());
  };
  std::stable_sort(classes.begin(), classes.end(),
                   [&](const auto& a, const auto& b) { return bytes(a) > bytes(b); });
  return classes;
}

void deal(const Space& space, Point& point) {
  struct Shard {
    double bytes = 0;
    std::uint32_t* place = nullptr;
  };
  std::vector<Shard> shards;
  for_each_variable(space.graph(), [&](ir::VariableId id) {
    Choice& choice = point.choices[id.value];
    if (choice.kind != ChoiceKind::kServers) return;
    const double each = byte_count(space.graph(), id) / static_cast<double>(choice.places.size());
    for (std::uint32_t& place : choice.places) shards.push_back({each, &place});
  });
  std::stable_sort(shards.begin(), shards.end(),
                   [](const Shard& a, const Shard& b) { return a.bytes > b.bytes; });
  Shares shares(space);
  for (const Shard& shard : shards) *shard.place = shares.give(shard.bytes);
}

bool set_class(const Space& space, const std::vector<ir::VariableId>& variables,
               const Choice& choice, Point& point) {
  Point changed = point;
  // All-reduced, they hold nothing on servers: the shares are those of all other variables.
  for (ir::VariableId id : variables) changed.choices[id.value].kind = ChoiceKind::kAllReduce;
  Shares shares = shares_of(space, changed);
  // A single server that was asked for by name is kept; shards are dealt.
  const bool named = variables.size() == 1 && choice.places.size() == 1;
  for (ir::VariableId id : variables) {
    Choice& own = changed.choices[id.value];
    own = choice;
    const double each = byte_count(space.graph(), id) / static_cast<double>(choice.places.size());
    for (std::uint32_t& place : own.places) {
      if (choice.kind == ChoiceKind::kAllReduce) {
        place = id.value;
      } else if (!named) {
        place = shares.give(each);
      }
    }
    if (space.why_not(id, own)) return false;
  }
  if (changed == point) return false;
  point = std::move(changed);
  return true;
}

void regroup(const Space& space, double bytes, Point& point) {
  double open = 0;
  std::uint32_t group = static_cast<std::uint32_t>(point.choices.size());
  for (std::size_t i = point.choices.size(); i-- > 0;) {
    Choice& choice = point.choices[i];
    if (choice.kind != ChoiceKind::kAllReduce) continue;
    if (open == 0 || open >= bytes) {
      group = static_cast<std::uint32_t>(i);
      open = 0;
    }
    std::fill(choice.places.begin(), choice.places.end(), group);
    open += byte_count(space.graph(), ir::VariableId(i));
  }
}

void reduce_by(const Space& space, AllReduceAlgorithm algorithm, program::UpdateAt at, Point& point,
               std::optional<std::uint32_t> group) {
  for_each_variable(space.graph(), [&](ir::VariableId id) {
    const Choice& old = point.choices[id.value];
    if (old.kind != ChoiceKind::kAllReduce || (group && old.places.front() != *group)) return;
    Choice choice = old;
    choice.algorithm = algorithm;
    choice.update_at = at;
    if (!space.why_not(id, choice)) point.choices[id.value] = choice;
  });
}

Point sample(const Space& space, std::mt19937_64& random) {
  Point point;
  const auto& sizes = space.allowed().slice_bytes;
  if (!sizes.empty()) point.slice_bytes = sizes[draw(random, sizes.size())];
  for_each_variable(space.graph(), [&](ir::VariableId id) {
    const std::vector<Choice> options = space.options(id);
    Choice choice = options[draw(random, options.size())];
    for (std::uint32_t& place : choice.places) {
      place = static_cast<std::uint32_t>(draw(
          random, choice.kind == ChoiceKind::kServers ? space.servers().size()
                                                      : std::min<std::size_t>(20, id.value + 1)));
    }
    point.choices.push_back(std::move(choice));
  });
  return point;
}

Neighbourhood::Neighbourhood(const Space& space)
    : space_(space), classes_(classes_of(space.graph())) {
  class_of_.resize(space.graph().variables.size());
  options_.resize(space.graph().variables.size());
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    for (ir::VariableId id : classes_[i]) {
      class_of_[id.value] = static_cast<std::uint32_t>(i);
      options_[id.value] = space.options(id);
    }
  }
}

Choice Neighbourhood::all_reduce(ir::VariableId id, AllReduceAlgorithm algorithm,
                                 program::UpdateAt at) const {
  Choice choice;
  choice.kind = ChoiceKind::kAllReduce;
  choice.places = {id.value};
  for (const AllReduceAlgorithm by : {algorithm, AllReduceAlgorithm::kDirect}) {
    choice.algorithm = by;
    for (const program::UpdateAt where : {at, program::UpdateAt::kEveryRank}) {
      choice.update_at = where;
      if (!space_.why_not(id, choice)) return choice;
    }
  }
  return options(id).front();
}

std::vector<Point> Neighbourhood::uniform_points() const {
  std::vector<Point> points;
  for (const AllReduceAlgorithm algorithm : space_.allowed().algorithms) {
    for (const program::UpdateAt at : kPlacesOfUpdates) {
      Point point;
      for_each_variable(space_.graph(), [&](ir::VariableId id) {
        point.choices.push_back(all_reduce(id, algorithm, at));
      });
      if (points.empty() || !(points.back() == point)) points.push_back(std::move(point));
    }
  }
  return points;
}

Point Neighbourhood::draw_one(const Point& point, const std::vector<double>& weights,
                              std::mt19937_64& random) const {
  Point next = point;
  if (point.choices.empty()) return next;
  const std::size_t variable = draw_weighted(random, weights);
  const ir::VariableId id(variable);
  const std::vector<Choice>& options = options_[variable];
  const auto& sizes = space_.allowed().slice_bytes;
  const std::size_t kind = draw(random, 16);
  if (kind < 2) {
    next.choices[variable] = options[draw(random, options.size())];
  } else if (kind < 8) {
    set_class(space_, {id}, options[draw(random, options.size())], next);
  } else if (kind < 12) {
    set_class(space_, classes_[class_of_[variable]], options[draw(random, options.size())], next);
  } else if (kind < 14) {
    move_place(space_, variable, next, random);
  } else if (kind == 14 && point.choices[variable].kind == ChoiceKind::kAllReduce) {
    const auto& algorithms = space_.allowed().algorithms;
    const program::UpdateAt at = kPlacesOfUpdates[draw(random, 2)];
    reduce_by(space_, algorithms[draw(random, algorithms.size())], at, next,
              point.choices[variable].places.front());
  } else if (kind == 14) {
    deal(space_, next);
  } else if (!sizes.empty()) {
    next.slice_bytes = sizes[draw(random, sizes.size())];
  }
  return next;
}

}  // namespace autodist::search
