#include "autodist/search/autosync/autosync.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "autodist/search/autosync/alike.h"
#include "autodist/search/autosync/analytic.h"
#include "autodist/search/autosync/batch_shares.h"
#include "autodist/search/autosync/climb.h"
#include "autodist/search/autosync/seeds.h"
#include "autodist/search/builders/parts.h"
#include "autodist/sim/memory.h"

namespace autodist::search {
namespace {

using strategy::AllReduceAlgorithm;

constexpr std::size_t kStarts = 3;           // points from which the arithmetic climbs
constexpr std::size_t kUniform = 3;          // points of one way for all variables, judged early
constexpr double kSameScore = 1e-4;          // relative
constexpr double kRulesOut = 1.1;            // of the best step: a score above it
constexpr double kForgets = 0.8;             // of the longest simulation, per further one
constexpr double kHopeless = 1.02;           // of the best step: simulated no further
constexpr double kHopelessBuilder = 1.05;    // of the best builder's
constexpr std::uint32_t kIdle = 100;         // draws of nothing new: there is little left
constexpr std::uint64_t kExhaust = 20'000;   // points up to which all are scored
constexpr std::uint32_t kRefinements = 400;  // of random neighbours, by the simulator
constexpr double kUsed = 0.3;                // of a budget in seconds, by further ones
constexpr double kProven = 2e-3;             // above the problem's bound: good enough
constexpr double kLeftForAlike = 0.1;        // of a budget
constexpr std::size_t kBases = 4;            // whose neighbours are tried in turn
constexpr double kNear = 1.05;               // of the best step: may be such a base
constexpr int kFurther = 4;                  // changes on the way to a point that is new
constexpr int kDraws = 4;                    // per refinement, the one of best score is simulated

// Several micro-batches give sums of products, which no two factors are.
Allowed allowed_in(Allowed allowed, const passes::Options& passes) {
  if (passes.micro_batches != 1) {
    std::erase(allowed.algorithms, AllReduceAlgorithm::kSufficientFactors);
  }
  return allowed;
}

// Arithmetic adds up loads. What rings and trees differ in, how long what is passed on waits at
// every stop, it cannot see: they are left to the simulator.
Allowed climbed(Allowed allowed) {
  for (const AllReduceAlgorithm relay : {AllReduceAlgorithm::kRing, AllReduceAlgorithm::kTree}) {
    std::erase(allowed.algorithms, relay);
  }
  return allowed;
}

class Search {
 public:
  Search(const std::shared_ptr<const ir::Graph>& graph, const cluster::Cluster& cluster,
         const passes::Options& passes, const Judge::Costs& costs, const SearchOptions& options,
         const Clock& clock)
      : graph_(graph),
        cluster_(cluster),
        options_(options),
        clock_(clock),
        begun_(clock.now()),
        space_(*graph, cluster, allowed_in(options.allowed, passes), passes.batch),
        neighbourhood_(space_),
        climbed_space_(*graph, cluster, climbed(space_.allowed()), passes.batch),
        climbed_(climbed_space_),
        passes_(passes),
        judge_(graph, cluster, passes, costs, options.simulation, options.correct),
        slow_judge_(
            graph, cluster, passes,
            [costs](const program::Program& program) {
              return sim::with_slow_engine(costs(program));
            },
            options.simulation),
        random_(options.seed) {}

  Found run() {
    program::Program program = seed_program(judge_, *graph_, cluster_);
    costs_ = judge_.costs_of(program);
    reserves_ = cores_are_shared();
    candidates_ = seed_candidates(sim::with_times(program, costs_), cluster_, space_);
    analytic_.emplace(space_, program, costs_, passes_);
    share_batch(std::move(program));
    score_seeds();
    judge_seeds();
    const std::vector<std::size_t> found = climb_by_score();
    judge_in_turn(found);
    refine();
    judge_others();
    refine_further();
    return result();
  }

 private:
  // Devices that are not alike get the parts of the batch for which they compute as long, unless
  // one lacks the memory; refine_shared() looks whether these are worse.
  void share_batch(program::Program program) {
    const Bytes missing = sim::missing_bytes(sim::memory_of(program, costs_));
    program.batch_shares = balanced_parts(
        program, [this](const program::Program& any) { return judge_.costs_of(any); });
    if (program.batch_shares.empty()) return;
    shared_costs_ = judge_.costs_of(program);
    if (sim::missing_bytes(sim::memory_of(program, shared_costs_)) > missing) return;
    shares_ = by_replica(program.batch_shares, program, cluster_);
    shared_.emplace(space_, program, shared_costs_, passes_);
  }
  [[nodiscard]] Point with_shares(Point point) const {
    point.batch_shares = shares_;
    return point;
  }
  [[nodiscard]] const Analytic& analytic_of(const Point& point) const {
    return point.batch_shares.empty() ? *analytic_ : *shared_;
  }

  [[nodiscard]] Score score(const Point& point) {
    ++scores_;
    Analytic::Loads& loads = point.batch_shares.empty() ? loads_ : shared_loads_;
    return analytic_of(point).score(point, loads);
  }

  void score_seeds() {
    for (Candidate& candidate : candidates_) {
      if (candidate.point) candidate.scored = score(*candidate.point).step;
    }
  }

  [[nodiscard]] std::vector<std::size_t> builders_by_score() const {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (candidates_[i].builder && candidates_[i].refused.empty()) order.push_back(i);
    }
    sort_by_score(order);
    return order;
  }

  void sort_by_score(std::vector<std::size_t>& candidates) const {
    std::stable_sort(candidates.begin(), candidates.end(), [&](std::size_t a, std::size_t b) {
      return candidates_[a].scored < candidates_[b].scored;
    });
  }

  [[nodiscard]] std::optional<std::size_t> find(const Point& point) const {
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (candidates_[i].point && *candidates_[i].point == point) return i;
    }
    return {};
  }

  std::size_t add(const std::string& name, const Point& point) {
    if (const auto known = find(point)) return *known;
    Candidate candidate;
    candidate.name = name;
    candidate.point = point;
    candidate.strategy = space_.strategy_of(point);
    candidate.scored = score(point).step;
    candidates_.push_back(std::move(candidate));
    return candidates_.size() - 1;
  }

  // Numbers of the candidates reached, best score first.
  std::vector<std::size_t> climb_by_score() {
    const Cost cost = [this](const Point& point) -> std::optional<double> {
      return score(point).rank;
    };
    const Stop stop = [this] { return stopped() || late(Seconds{}); };
    if (count_points(space_, neighbourhood_, kExhaust)) {
      if (const auto best = exhaust(space_, neighbourhood_, cost, stop)) {
        exhausted_ = true;
        return {add(next_name(), with_shares(best->point))};
      }
    }
    add_uniform_points();
    std::vector<std::size_t> reached;
    const Guide guide{
        cost, [this](const Point& point) { return analytic_of(point).exposed(point); }, stop};
    for (const auto& [scored, start] : best_starts()) {
      std::mt19937_64 random(random_());
      const ClimbResult best = climb(climbed_space_, climbed_, guide, start, walk(), random);
      reached.push_back(add(next_name(), best.point));
      // Where it began, too: the arithmetic may err.
      reached.push_back(add(next_name(), start));
    }
    sort_by_score(reached);
    return reached;
  }

  void add_uniform_points() {
    // Of what arithmetic hardly tells apart (an algorithm that few variables can have) the first.
    std::map<double, Point> by_score;
    for (const Point& point : neighbourhood_.uniform_points()) {
      const Point shared = with_shares(point);
      const double scored = score(shared).rank;
      const auto near = by_score.lower_bound(scored * (1 - kSameScore));
      if (near != by_score.end() && near->first <= scored * (1 + kSameScore)) continue;
      by_score.emplace(scored, shared);
    }
    for (const auto& [scored, point] : by_score) {
      if (uniform_.size() < kUniform) uniform_.push_back(add(next_name(), point));
    }
  }

  // Among uniform points and the best builders'.
  [[nodiscard]] std::vector<std::pair<Score, Point>> best_starts() {
    std::vector<std::pair<Score, Point>> starts;
    const auto start_at = [&](const Point& point) {
      const Point shared = with_shares(point);
      starts.emplace_back(score(shared), shared);
    };
    for (const Point& point : climbed_.uniform_points()) start_at(point);
    const std::size_t most = starts.size() + kStarts;
    for (std::size_t builder : builders_by_score()) {
      if (starts.size() == most) break;
      if (candidates_[builder].point) start_at(*candidates_[builder].point);
    }
    std::stable_sort(starts.begin(), starts.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    starts.resize(std::min(starts.size(), kStarts));
    return starts;
  }

  // A fixed amount of arithmetic, less per variable where there are many.
  [[nodiscard]] Walk walk() const {
    Walk walk;
    const std::size_t size = graph_->variables.size() * (cluster_.nodes.size() + 4);
    walk.moves = static_cast<std::uint32_t>(
        std::clamp<std::size_t>(4'000'000 / std::max<std::size_t>(1, size), 200, 4000));
    return walk;
  }

  std::string next_name() { return fmt::format("found {}", ++names_); }

  [[nodiscard]] Seconds elapsed() const { return clock_.now() - begun_; }
  [[nodiscard]] bool stopped() const { return options_.stop && options_.stop(); }
  [[nodiscard]] bool late(Seconds further) const {
    const Seconds limit = options_.budget.seconds * usable();
    return limit > Seconds{} && elapsed() + further > limit;
  }
  [[nodiscard]] double usable() const { return reserves_ ? 1 - kLeftForAlike : 1; }
  // Whether another simulation may begin.
  [[nodiscard]] bool may_judge() const {
    if (simulations_ == 0) return true;
    if (stopped() || late(longest_)) return false;
    const auto limit = static_cast<double>(options_.budget.simulations) * usable();
    return limit == 0 || static_cast<double>(simulations_) < limit;
  }

  // False: nothing more may be judged.
  bool judge(std::size_t index) {
    if (candidates_[index].judgement || !candidates_[index].refused.empty()) return true;
    if (!may_judge()) {
      cut_short_ = true;
      return false;
    }
    simulate(index);
    return true;
  }

  void simulate(std::size_t index) {
    Candidate& candidate = candidates_[index];
    const Seconds from = clock_.now();
    candidate.judgement = judge_(candidate.strategy, candidate.refused, hopeless(candidate));
    longest_ = std::max(longest_ * kForgets, clock_.now() - from);
    if (candidate.judgement) ++simulations_;
    keep_best(index, best_);
    if (candidate.builder) keep_best(index, best_builder_);
    if (base_) keep_best(index, base_);
    report();
  }

  void keep_best(std::size_t index, std::optional<std::size_t>& best) const {
    const std::optional<Judgement>& judged = candidates_[index].judgement;
    if (judged && (!best || *judged < *candidates_[*best].judgement)) best = index;
  }

  // The step above which a candidate is of no interest: more than the best one's, for first steps
  // say little; builders are compared with the best of theirs, which is shown and must not be
  // missed. Corrected by measurements, the slower may be the better.
  [[nodiscard]] Seconds hopeless(const Candidate& candidate) const {
    const std::optional<std::size_t>& best = candidate.builder ? best_builder_ : best_;
    if (!best || options_.correct || !candidates_[*best].judgement->fits()) return {};
    return candidates_[*best].judgement->simulated *
           (candidate.builder ? kHopelessBuilder : kHopeless);
  }

  void report() const {
    if (!options_.progress) return;
    Progress progress{simulations_, scores_, elapsed(), {}, ""};
    if (best_) {
      progress.best = candidates_[*best_].judgement->step;
      progress.best_name = candidates_[*best_].name;
    }
    options_.progress(progress);
  }

  // Every builder that arithmetic does not rule out, however small the budget: no answer is worse
  // than what is known without a search.
  void judge_seeds() {
    for (const std::size_t builder : builders_by_score()) {
      if (best_ && (stopped() || is_ruled_out(builder))) continue;
      simulate(builder);
    }
  }

  // The best that arithmetic has found, then one way for all variables, then the others found.
  void judge_in_turn(const std::vector<std::size_t>& found) {
    if (!judge(found.front())) return;
    // These are simulated in less time than points without symmetry, and what is behind them is
    // left soon.
    for (std::size_t each : uniform_) {
      if (!is_ruled_out(each) && !judge(each)) return;
    }
    for (std::size_t each : found) {
      if (!judge(each)) return;
    }
  }

  void judge_others() {
    for (const std::size_t builder : builders_by_score()) {
      if (!judge(builder)) return;
    }
  }

  // Arithmetic leaves out what gets in each other's way, so it seldom says more than the simulator.
  [[nodiscard]] bool is_ruled_out(std::size_t candidate) const {
    return best_ && candidates_[candidate].point && candidates_[*best_].judgement->fits() &&
           candidates_[candidate].scored > candidates_[*best_].judgement->simulated * kRulesOut;
  }

  // By the simulator: around the best, then around what is nearly as good and from where changes
  // one by one may lead further (the best may need two at once), then random neighbours of the
  // best.
  void refine() {
    for (std::size_t bases = 0; bases < kBases; ++bases) {
      base_ = best_base();
      if (base_ && !refine_base()) return;
    }
    refine_at_random([](std::uint32_t done) { return done < kRefinements; });
  }

  // Near the best, the best of which no neighbours were tried.
  [[nodiscard]] std::optional<std::size_t> best_base() const {
    std::optional<std::size_t> base;
    for (std::size_t i = 0; best_ && i < candidates_.size(); ++i) {
      const std::optional<Judgement>& judged = candidates_[i].judgement;
      const Judgement& best = *candidates_[*best_].judgement;
      const bool near = judged && judged->fits() == best.fits() && judged->step < best.step * kNear;
      if (near && candidates_[i].point && !was_base(*judged)) keep_best(i, base);
    }
    return base;
  }

  // Plans that take as long as each other are taken for the same in other places (a table at
  // another server of the same kind), and so are their neighbours.
  [[nodiscard]] bool was_base(const Judgement& judged) const {
    const auto near = bases_.lower_bound(judged.step * (1 - kSameScore));
    return near != bases_.end() && *near <= judged.step * (1 + kSameScore);
  }

  // The classes that the step waits for and what all variables share, in turns while that helps.
  bool refine_base() {
    for (std::optional<std::size_t> before; before != base_ && !proven();) {
      before = base_;
      bases_.insert(candidates_[*base_].judgement->step);
      // What keeps a symmetric plan symmetric is simulated in a tenth of the time.
      const bool symmetric = candidates_[*base_].judgement->symmetric;
      if (!refine_classes(symmetric) || !refine_shared()) return false;
      if (symmetric && base_ == before && !refine_classes(false)) return false;
    }
    return true;
  }

  // Small problems leave much of a budget in seconds, and some of it may be used.
  void refine_further() {
    refine_at_random([this](std::uint32_t) {
      return elapsed() < options_.budget.seconds * kUsed && options_.budget.simulations == 0;
    });
  }

  template <typename GoesOn>
  void refine_at_random(GoesOn goes_on) {
    base_ = best_;
    if (!base_ || !candidates_[*base_].point) return;
    std::uint32_t idle = 0;
    for (std::uint32_t done = 0; goes_on(done) && !proven() && !stopped();) {
      const std::optional<Point> next = draw_best();
      if (!next && ++idle == kIdle) return;
      if (!next) continue;
      if (!try_point(*next)) return;
      idle = 0;
      ++done;
    }
  }

  // There is nothing left to find. The bound is of what is synchronous, in the simulator.
  [[nodiscard]] bool proven() const {
    if (options_.correct || space_.allowed().most_staleness > 0) return false;
    const Judgement& best = *candidates_[*best_].judgement;
    return best.fits() && best.step < best.problem_bound * (1 + kProven);
  }

  // Tries other values of what all variables have in common. False: nothing more may be judged.
  bool refine_shared() {
    for (const auto& shares : {shares_, std::vector<std::int64_t>{}}) {
      Point next = *candidates_[*base_].point;
      next.batch_shares = shares;
      if (!shares_.empty() && !try_point(next)) return false;
    }
    for (const Bytes& size : options_.allowed.slice_bytes) {
      Point next = *candidates_[*base_].point;
      next.slice_bytes = size;
      if (!try_point(next)) return false;
    }
    // Changed one after the other, variables of a group would leave it.
    for (const AllReduceAlgorithm algorithm : space_.allowed().algorithms) {
      for (const program::UpdateAt at : kPlacesOfUpdates) {
        Point next = *candidates_[*base_].point;
        reduce_by(space_, algorithm, at, next);
        if (!try_point(next)) return false;
      }
    }
    for (const double mebibytes : {0.25, 1.0, 4.0, 16.0}) {
      Point next = *candidates_[*base_].point;
      regroup(space_, mebibytes * (1 << 20), next);
      if (!try_point(next)) return false;
    }
    return true;
  }

  // Of some new neighbours of the base the one of least score; nothing where none was drawn.
  [[nodiscard]] std::optional<Point> draw_best() {
    std::optional<Point> best;
    double least = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
      std::optional<Point> next = draw_new();
      if (!next) continue;
      const double scored = score(*next).rank;
      if (best && scored >= least) continue;
      least = scored;
      best = std::move(next);
    }
    return best;
  }

  // Where a neighbour was judged before, a neighbour's neighbour, and so on.
  [[nodiscard]] std::optional<Point> draw_new() {
    const std::vector<double>& weights = candidates_[*base_].judgement->waits;
    Point next = *candidates_[*base_].point;
    for (int change = 0; change < kFurther; ++change) {
      next = neighbourhood_.draw_one(next, weights, random_);
      if (!find(next)) return next;
    }
    return {};
  }

  // Like variables together. `same_synchronizer`: with servers where they are with servers, with
  // all-reduces where they are with these.
  bool refine_classes(bool same_synchronizer) {
    std::vector<std::pair<double, std::size_t>> order;
    const std::vector<double> waits = candidates_[*base_].judgement->waits;
    for (std::size_t i = 0; i < neighbourhood_.classes().size(); ++i) {
      double longest = 0;
      for (ir::VariableId id : neighbourhood_.classes()[i]) {
        longest = std::max(longest, waits[id.value]);
      }
      order.emplace_back(-longest, i);
    }
    std::sort(order.begin(), order.end());
    constexpr std::size_t kMostClasses = 6;
    order.resize(std::min(order.size(), kMostClasses));
    for (const auto& [wait, index] : order) {
      const auto& variables = neighbourhood_.classes()[index];
      const double limit = 1.1 * score(*candidates_[*base_].point).rank;
      std::set<double> tried;
      for (const Choice& choice : neighbourhood_.options(variables.front())) {
        Point next = *candidates_[*base_].point;
        const ChoiceKind synchronizer = next.choices[variables.front().value].kind;
        if (same_synchronizer && choice.kind != synchronizer) continue;
        if (!set_class(space_, variables, choice, next)) continue;
        // Choices of one score differ in what arithmetic does not see, such as the axis of a cut:
        // one of them is simulated.
        const double scored = score(next).rank;
        if (scored <= limit && tried.insert(scored).second && !try_point(next)) return false;
      }
    }
    return true;
  }

  bool try_point(const Point& point) {
    const std::size_t before = candidates_.size();
    const std::size_t index = add("", point);
    if (index == before) candidates_[index].name = next_name();
    return judge(index);
  }

  Found result() {
    Found found(std::move(candidates_));
    choose(found);
    found.exhausted = exhausted_;
    found.finished = !cut_short_ && !stopped();
    found.simulations = simulations_;
    found.scores = scores_;
    found.elapsed = elapsed();
    found.log10_points = space_.log10_points();
    return found;
  }

  // Where ranks compute on the cores that the engine needs, how slow that makes it decides more
  // than what the simulator hardly tells apart. Where measurements correct the simulator, they
  // include that slowness already.
  [[nodiscard]] bool cores_are_shared() const {
    return !options_.correct &&
           std::any_of(costs_.devices.begin(), costs_.devices.end(),
                       [](const sim::DeviceCost& each) { return each.on_host; });
  }

  // The answer: of what is alike that which suffers least from a slow engine.
  void choose(Found& found) {
    if (!reserves_) return;
    reserves_ = false;
    const std::vector<std::size_t> among = alike(found);
    std::size_t answer = among.empty() ? 0 : among.front();
    Seconds least;
    for (const std::size_t i : among) {
      if (!may_judge()) break;
      const Seconds from = clock_.now();
      std::string refused;
      const auto slow = slow_judge_(found.candidates[i].strategy, refused, least);
      longest_ = std::max(longest_ * kForgets, clock_.now() - from);
      ++simulations_;
      if (!slow || !slow->in_full || (least > Seconds{} && !(slow->step < least))) continue;
      least = slow->step;
      answer = i;
    }
    found.answer_with(answer);
  }

  std::shared_ptr<const ir::Graph> graph_;
  const cluster::Cluster& cluster_;
  const SearchOptions& options_;
  const Clock& clock_;
  Seconds begun_;
  Space space_;
  Neighbourhood neighbourhood_;
  Space climbed_space_;
  Neighbourhood climbed_;
  const passes::Options& passes_;
  Judge judge_;
  Judge slow_judge_;
  std::mt19937_64 random_;
  sim::CostModel costs_;
  std::optional<Analytic> analytic_;  // of equal parts of the batch
  Analytic::Loads loads_;             // of the last point that it scored
  sim::CostModel shared_costs_;
  std::optional<Analytic> shared_;  // of parts as shares_
  Analytic::Loads shared_loads_;
  std::vector<Candidate> candidates_;
  std::vector<std::int64_t> shares_;  // of a batch, by replica; empty where equal ones will do
  std::vector<std::size_t> uniform_;  // candidates: one way for all variables, best score first
  std::optional<std::size_t> best_;
  std::optional<std::size_t> best_builder_;
  std::optional<std::size_t> base_;  // what is refined: the best since that began
  std::set<Seconds> bases_;          // what was: how long a step of each takes
  Seconds longest_;                  // of late
  std::uint64_t simulations_ = 0;
  std::uint64_t scores_ = 0;
  std::uint32_t names_ = 0;
  bool exhausted_ = false;
  bool cut_short_ = false;
  bool reserves_ = false;  // a part of the budget, for the choice among what is alike
};

}  // namespace

Found search(const std::shared_ptr<const ir::Graph>& graph, const cluster::Cluster& cluster,
             const passes::Options& passes, const Judge::Costs& costs, const SearchOptions& options,
             const Clock& clock) {
  return Search(graph, cluster, passes, costs, options, clock).run();
}

}  // namespace autodist::search
