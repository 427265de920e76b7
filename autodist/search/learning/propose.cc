#include "autodist/search/learning/propose.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/search/autosync/moves.h"
#include "autodist/search/autosync/seeds.h"

namespace autodist::search {
namespace {

constexpr std::size_t kFurthest = 8;   // moves away from a builder's point
constexpr std::size_t kAttempts = 20;  // per plan that is still missing

class Proposer {
 public:
  Proposer(std::shared_ptr<const ir::Graph> graph, const cluster::Cluster& cluster,
           passes::Options passes, std::uint64_t seed)
      : graph_(std::move(graph)),
        cluster_(cluster),
        passes_(std::move(passes)),
        space_(*graph_, cluster),
        neighbourhood_(space_),
        random_(seed) {
    passes_.verify_each = false;
    passes_.dump = nullptr;
  }

  std::vector<Proposal> propose(std::size_t count) {
    std::vector<Point> points;
    for (Candidate& seed : seed_candidates(*graph_, cluster_, space_)) {
      if (seed.point) points.push_back(*seed.point);
      if (proposals_.size() < count) take(seed.name, std::move(seed.strategy));
    }
    std::size_t number = 0;
    for (std::size_t i = 0; i < kAttempts * count && proposals_.size() < count; ++i) {
      const bool near = i % 2 == 0 && !points.empty();
      const Point point =
          near ? walk_from(points[draw(random_, points.size())]) : sample(space_, random_);
      take(fmt::format("{} {}", near ? "near" : "random", ++number), space_.strategy_of(point));
    }
    return std::move(proposals_);
  }

 private:
  Point walk_from(Point point) {
    const std::vector<double> evenly(point.choices.size());
    for (std::size_t moves = 1 + draw(random_, kFurthest); moves > 0; --moves) {
      point = neighbourhood_.draw_one(point, evenly, random_);
    }
    return point;
  }

  void take(std::string name, strategy::Strategy strategy) {
    strategy::fix_priorities(strategy, *graph_);
    const bool known = std::any_of(proposals_.begin(), proposals_.end(),
                                   [&](const auto& other) { return other.strategy == strategy; });
    if (known) return;
    try {
      passes::rewrite(graph_, strategy, cluster_, passes_, name);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInfeasible) throw;
      return;
    }
    proposals_.push_back({std::move(name), std::move(strategy)});
  }

  std::shared_ptr<const ir::Graph> graph_;
  const cluster::Cluster& cluster_;
  passes::Options passes_;
  Space space_;
  Neighbourhood neighbourhood_;
  std::mt19937_64 random_;
  std::vector<Proposal> proposals_;
};

}  // namespace

std::vector<Proposal> propose(const std::shared_ptr<const ir::Graph>& graph,
                              const cluster::Cluster& cluster, const passes::Options& passes,
                              std::size_t count, std::uint64_t seed) {
  return Proposer(graph, cluster, passes, seed).propose(count);
}

}  // namespace autodist::search
