// From one point of the space to another: dealing shards out to servers by bandwidth, balanced
// groups, random points and neighbours. AutoSync's two heuristics (section 4) are starting points
// here, not rules.

#pragma once

#include <optional>
#include <random>
#include <vector>

#include "autodist/search/autosync/space.h"

namespace autodist::search {

// Drawn without the standard's distributions, which differ between libraries. Below `count` >= 1.
std::size_t draw(std::mt19937_64& random, std::size_t count);
double draw_unit(std::mt19937_64& random);  // [0, 1)

// Variables that stand in like layers: of one shape, kind of gradient and update rule, largest
// bytes first. BERT's 24 layers give one class per kind of weight.
std::vector<std::vector<ir::VariableId>> classes_of(const ir::Graph& graph);

// Bandwidth-proportional load balancing: the shards on servers of all variables, largest first,
// each to the server furthest below its share.
void deal(const Space& space, Point& point);

// `choice` for every variable of a class, as far as it is legal there: a group of its own each, or
// shards dealt on from what the servers have. True where something changed.
bool set_class(const Space& space, const std::vector<ir::VariableId>& variables,
               const Choice& choice, Point& point);

// Groups of about `bytes`, in the order in which gradients become complete (last variable first).
void regroup(const Space& space, double bytes, Point& point);

// In the order in which they are tried.
inline constexpr program::UpdateAt kPlacesOfUpdates[] = {program::UpdateAt::kOwner,
                                                         program::UpdateAt::kEveryRank};

// This algorithm, with this place of the update, for every all-reduced variable of `group`
// (nothing: of any) for which that is legal.
void reduce_by(const Space& space, strategy::AllReduceAlgorithm algorithm, program::UpdateAt at,
               Point& point, std::optional<std::uint32_t> group = {});

// A random legal point.
Point sample(const Space& space, std::mt19937_64& random);

// The neighbours of points.
class Neighbourhood {
 public:
  // `space` must outlive it.
  explicit Neighbourhood(const Space& space);

  [[nodiscard]] const std::vector<std::vector<ir::VariableId>>& classes() const { return classes_; }
  // Space::options, made once.
  [[nodiscard]] const std::vector<Choice>& options(ir::VariableId variable) const {
    return options_[variable.value];
  }

  // Every variable reduced alike, by each allowed algorithm and at each place of the update, or as
  // near to that as is legal for it: what builders have no word for.
  [[nodiscard]] std::vector<Point> uniform_points() const;

  // A legal point that differs in one variable, its class, a shard's place, how shards are dealt,
  // the algorithm of a group or the slice size. `weights` say how often each variable is picked
  // (all 0: evenly).
  [[nodiscard]] Point draw_one(const Point& point, const std::vector<double>& weights,
                               std::mt19937_64& random) const;

 private:
  [[nodiscard]] Choice all_reduce(ir::VariableId id, strategy::AllReduceAlgorithm algorithm,
                                  program::UpdateAt at) const;

  const Space& space_;
  std::vector<std::vector<ir::VariableId>> classes_;
  std::vector<std::uint32_t> class_of_;       // by variable
  std::vector<std::vector<Choice>> options_;  // by variable
};

}  // namespace autodist::search
