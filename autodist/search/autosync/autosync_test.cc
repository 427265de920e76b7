#include "autodist/search/autosync/autosync.h"

#include <gtest/gtest.h>

#include <random>

#include "autodist/base/error.h"
#include "autodist/search/autosync/analytic.h"
#include "autodist/search/autosync/climb.h"
#include "autodist/search/autosync/moves.h"
#include "autodist/search/autosync/seeds.h"
#include "autodist/search/builders/builders.h"
#include "autodist/search/testing/small_problems.h"

namespace autodist::search {
namespace {

// Time stands still: budgets in simulations alone.
class NoClock final : public Clock {
 public:
  [[nodiscard]] Seconds now() const override { return Seconds{}; }
};

// Every look takes a second.
class Ticking final : public Clock {
 public:
  [[nodiscard]] Seconds now() const override { return Seconds(now_ += 1); }

 private:
  mutable double now_ = 0;
};

Found find(const std::shared_ptr<const ir::Graph>& graph, const cluster::Cluster& cluster,
           SearchOptions options, std::uint64_t simulations = 30) {
  options.budget = {Seconds{}, simulations};
  return search(graph, cluster, {}, costs_on(cluster), options, NoClock());
}

struct Case {
  std::shared_ptr<const ir::Graph> graph;
  cluster::Cluster cluster;
};

// Of few points.
std::vector<Case> small_cases() {
  return {{layers({300, 200}, 1e-3), machines({1, 1})},
          {layers({400, 30, 400}, 2e-4), machines({1, 4})},
          {layers({100, 500}, 1e-3), machines({1, 2, 10})},
          {layers({250, 250, 10}, 5e-3), machines({1, 1, 1})}};
}

// From the first options of all variables to a cost that must be no more than the least of all.
void expect_no_gap(const Space& space, const Cost& cost, const Walk& walk,
                   const std::string& name) {
  const Neighbourhood neighbourhood(space);
  std::uint64_t tried = 0;
  const Cost counted = [&](const Point& point) {
    ++tried;
    return cost(point);
  };
  const auto least = exhaust(space, neighbourhood, counted);
  ASSERT_TRUE(least) << name;
  EXPECT_EQ(tried, count_points(space, neighbourhood, 1'000'000).value()) << name;
  Point start;
  start.slice_bytes = space.allowed().slice_bytes.front();
  for (std::size_t i = 0; i < space.graph().variables.size(); ++i) {
    start.choices.push_back(neighbourhood.options(ir::VariableId(i)).front());
  }
  std::mt19937_64 random(1);
  const ClimbResult result = climb(space, neighbourhood, {cost}, start, walk, random);
  EXPECT_LE(result.cost, least->cost * (1 + 1e-12)) << name;
}

TEST(Climb, LeavesNoGapToAllPointsByArithmetic) {
  int number = 0;
  for (const Case& each : small_cases()) {
    const Space space(*each.graph, each.cluster, one_slice_size());
    const Judge judge(each.graph, each.cluster, {}, costs_on(each.cluster));
    const program::Program program =
        judge.program_of(build_strategy("PS", *each.graph, each.cluster));
    const sim::CostModel costs = judge.costs_of(program);
    const Analytic analytic(space, program, costs);
    const Cost cost = [&](const Point& point) -> std::optional<double> {
      return analytic.score(point).rank;
    };
    expect_no_gap(space, cost, {}, "case " + std::to_string(number++));
  }
}

TEST(Climb, LeavesNoGapToAllPointsByTheSimulator) {
  int number = 0;
  for (const Case& each : small_cases()) {
    if (each.graph->variables.size() > 2) continue;
    const Space space(*each.graph, each.cluster, one_slice_size());
    const Judge judge(each.graph, each.cluster, {}, costs_on(each.cluster));
    const Cost cost = [&](const Point& point) -> std::optional<double> {
      std::string why_not;
      const auto judged = judge(space.strategy_of(point), why_not);
      return judged ? std::optional<double>(judged->step.value) : std::nullopt;
    };
    Walk walk;
    walk.moves = 150;
    expect_no_gap(space, cost, walk, "case " + std::to_string(number++));
  }
}

// Where ranks compute on their hosts: of what is within a thirtieth of the best, the answer is what
// a slow engine makes least slow, a builder's without a library where there is one.
TEST(Search, ASlowEngineDecidesBetweenPlansThatAreAlike) {
  const cluster::Cluster cluster = cluster::parse_resource_spec(
      "nodes: [{address: 10.0.0.1, cpus: [0], chief: true}, {address: 10.0.0.2, cpus: [0]}, "
      "{address: 10.0.0.3, cpus: [0]}]",
      "test");
  const Judge::Costs costs = costs_on(cluster);
  int chosen = 0;
  for (const std::vector<std::int64_t>& widths :
       {std::vector<std::int64_t>{300, 200}, {400, 30, 400}, {250, 250, 10}}) {
    const auto graph = layers(widths, 4e-3);
    const Found found = find(graph, cluster, {}, 200);
    const Judge judge(graph, cluster, {}, [&](const program::Program& program) {
      return sim::with_slow_engine(costs(program));
    });
    const auto slow_step = [&](const Candidate& candidate) {
      std::string why_not;
      return judge(candidate.strategy, why_not)->step;
    };
    Seconds least = found.best().judgement->step;
    for (const Candidate& each : found.candidates) {
      if (each.judgement) least = std::min(least, each.judgement->step);
    }
    EXPECT_LE(found.best().judgement->step, least * 1.03);
    chosen += least < found.best().judgement->step;
    for (const Candidate& each : found.candidates) {
      const auto& judged = each.judgement;
      if (!each.builder || !judged || !judged->in_full || judged->by_library) continue;
      if (judged->step > least * 1.03) continue;
      EXPECT_TRUE(found.best().builder);
      EXPECT_EQ(found.best_builder, 0U);
      EXPECT_LE(slow_step(found.best()), slow_step(each)) << each.name;
    }
  }
  EXPECT_GT(chosen, 0) << "nowhere did it matter";
}

TEST(Found, AnswersWithAnyCandidateAndKeepsTheOrderOfTheOthers) {
  std::vector<Candidate> candidates(4);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    candidates[i].name = std::string(1, static_cast<char>('a' + i));
    candidates[i].builder = i == 1;
    candidates[i].judgement.emplace();
    candidates[i].judgement->step = Seconds(1.0 + static_cast<double>(i));
  }
  Found found(candidates);
  found.answer_with(2);
  const auto order = [&] {
    std::string names;
    for (const Candidate& each : found.candidates) names += each.name;
    return names;
  };
  EXPECT_EQ(order(), "cabd");
  EXPECT_EQ(found.best_builder, 2u);
  found.answer_with(2);
  EXPECT_EQ(order(), "bcad");
  EXPECT_EQ(found.best_builder, 0u);
  found.candidates[3].builder = true;
  found.answer_with(3);
  EXPECT_EQ(order(), "dbca");
  EXPECT_EQ(found.best_builder, 0u);
}

// The fastest of what does not fit need not be what lacks least.
TEST(Found, NamesWhatLacksLeastWhereNothingFits) {
  std::vector<Candidate> candidates(3);
  const Bytes missing[] = {Bytes(300 << 20), Bytes(100 << 20), Bytes(200 << 20)};
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    candidates[i].name = std::string(1, static_cast<char>('a' + i));
    candidates[i].judgement.emplace();
    candidates[i].judgement->step = Seconds(1.0 + static_cast<double>(i));
    candidates[i].judgement->missing = missing[i];
  }
  candidates.emplace_back().name = "not judged";
  try {
    const Found found(candidates);
    FAIL() << "found " << found.best().name;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'b' lacks least: 100.0 MiB"), std::string::npos)
        << error.what();
  }
}

TEST(Search, IsNeverWorseThanABuilder) {
  for (const Case& each : small_cases()) {
    const Found found = find(each.graph, each.cluster, {});
    const Judge judge(each.graph, each.cluster, {}, costs_on(each.cluster));
    for (const std::string& builder : seeds()) {
      std::string why_not;
      const auto judged = judge(build_strategy(builder, *each.graph, each.cluster), why_not);
      ASSERT_TRUE(judged) << why_not;
      EXPECT_LE(found.best().judgement->step, judged->step) << builder;
    }
    EXPECT_GE(found.speedup(), 1);
  }
}

// Also where the budget is one simulation.
TEST(Search, KnowsEverySeedWhateverTheBudget) {
  for (const Case& each : small_cases()) {
    for (const bool with_library : {true, false}) {
      SearchOptions options;
      options.budget = {Seconds{}, 1};
      if (!with_library) {
        std::erase(options.allowed.algorithms, strategy::AllReduceAlgorithm::kLibrary);
      }
      const Judge::Costs costs = costs_on(each.cluster);
      const Found found = search(each.graph, each.cluster, {}, costs, options, NoClock());
      const Judge judge(each.graph, each.cluster, {}, costs);
      const Space space(*each.graph, each.cluster, options.allowed);
      for (const Candidate& seed : seed_candidates(*each.graph, each.cluster, space)) {
        std::string why_not;
        const auto judged = judge(seed.strategy, why_not);
        ASSERT_TRUE(judged) << why_not;
        EXPECT_LE(found.best().judgement->step, judged->step) << seed.name;
      }
    }
  }
}

TEST(Search, SparesASlowLink) {
  // M bytes, four servers, one at half of the others' rate R: evenly, it carries 1.5 M at R / 2;
  // all on another one, that carries 3 M at R. Owning nothing, it carries M, the others 5/3 M at R.
  const auto graph = layers({800, 800, 800, 800}, 1e-4);
  const cluster::Cluster cluster = machines({2, 2, 2, 1});
  SearchOptions options;  // without factors, which the best builder would send
  options.allowed.algorithms = {strategy::AllReduceAlgorithm::kDirect};
  const Found found = find(graph, cluster, options, 40);
  EXPECT_GT(found.speedup(), 1.2);
}

TEST(Search, AddsOnANodeBeforeItSends) {
  // Of M bytes on two machines of four replicas, a card carries 4 M of direct all-reduces, and M
  // where each machine's four gradients are added first.
  const auto graph = layers({800, 800, 800}, 1e-4);
  const cluster::Cluster cluster = machines({1, 1}, "0, 1, 2, 3");
  SearchOptions direct;
  direct.allowed.algorithms = {strategy::AllReduceAlgorithm::kDirect};
  const Seconds without = find(graph, cluster, direct, 40).best().judgement->step;
  EXPECT_LT(find(graph, cluster, {}, 40).best().judgement->step.value, 0.6 * without.value);
}

TEST(Search, SendsFactorsInTheGradientsPlace) {
  // Each of four sends 2 x 3/4 of 2.6 MB of a gradient, or 3 times 51 kB of factors.
  const auto graph = layers({800, 800, 800}, 1e-3);
  const cluster::Cluster cluster = machines({1, 1, 1, 1});
  SearchOptions whole;
  whole.allowed.algorithms = {strategy::AllReduceAlgorithm::kDirect};
  const Found without = find(graph, cluster, whole, 40);
  const Found with = find(graph, cluster, {}, 40);
  EXPECT_LT(with.best().judgement->step.value, 0.3 * without.best().judgement->step.value);
  EXPECT_GE(with.best().judgement->step, with.best().judgement->problem_bound);
  EXPECT_LT(with.best().judgement->problem_bound, without.best().judgement->plan_bound);
}

// Where links are fast and multiplying is slow, gradients are better off whole.
TEST(Search, LeavesGradientsWholeWhereMultiplyingIsDear) {
  const auto graph = layers({800, 800}, 1e-3);
  const cluster::Cluster cluster = machines({20, 20, 20, 20});
  const auto costs = [&](const program::Program& program) {
    sim::CostModel model = sim::cost_model(program, cluster);
    for (sim::DeviceCost& device : model.devices) device.on_host = false;
    model.engine.multiply_flop_per_s = 1e3;
    return model;
  };
  SearchOptions options;
  options.budget.simulations = 40;
  const Found found = search(graph, cluster, {}, costs, options, NoClock());
  for (const strategy::NodeConfig& node : found.best().strategy.nodes) {
    const auto* reduce = std::get_if<strategy::AllReduceSynchronizer>(&node.synchronizer);
    EXPECT_TRUE(reduce == nullptr ||
                reduce->algorithm != strategy::AllReduceAlgorithm::kSufficientFactors)
        << node.name;
  }
}

TEST(Search, GivesTheSameForASeedAndABudgetInSimulations) {
  const auto graph = layers({300, 40, 300, 500}, 1e-4);
  const cluster::Cluster cluster = machines({1, 2, 1});
  SearchOptions options;
  options.seed = 5;
  const Found a = find(graph, cluster, options, 40);
  const Found b = find(graph, cluster, options, 40);
  EXPECT_EQ(a.best().strategy, b.best().strategy);
  EXPECT_EQ(a.simulations, b.simulations);
  EXPECT_EQ(a.scores, b.scores);
  EXPECT_EQ(a.candidates.size(), b.candidates.size());
}

TEST(Search, ABudgetInSecondsCutsTheSameSequence) {
  const auto graph = layers({300, 40, 300, 500}, 1e-4);
  const cluster::Cluster cluster = machines({1, 2, 1});
  SearchOptions options;
  options.budget.seconds = Seconds(1);
  const Found found = search(graph, cluster, {}, costs_on(cluster), options, Ticking());
  EXPECT_EQ(found.simulations, 1U) << "the first is always done";
  EXPECT_FALSE(found.finished);
  EXPECT_TRUE(found.best().judgement.has_value());
}

TEST(Search, KeepsTheBestSoFarWhenStopped) {
  const auto graph = layers({300, 40, 300, 500}, 1e-4);
  const cluster::Cluster cluster = machines({1, 2, 1});
  SearchOptions options;
  std::uint64_t simulations = 0;
  Seconds best;
  options.progress = [&](const Progress& progress) {
    simulations = progress.simulations;
    best = progress.best;
  };
  options.stop = [&] { return simulations >= 3; };
  const Found found = find(graph, cluster, options, 1000);
  EXPECT_EQ(found.simulations, 3U);
  EXPECT_EQ(found.best().judgement->step, best);
}

TEST(Search, RefusesWhatFitsNowhere) {
  const auto graph = layers({2000}, 1e-3);
  const cluster::Cluster cluster = cluster::parse_resource_spec(
      "nodes: [{address: 10.0.0.1, gpus: [0], chief: true, devices: {kind: tiny, tflops: 1, "
      "memory_gib: 0.01, memory_bandwidth_gb_per_s: 100}}, {address: 10.0.0.2, gpus: [0]}]",
      "test");
  try {
    find(graph, cluster, {});
    FAIL() << "found a place";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInfeasible);
    EXPECT_NE(std::string(error.what()).find("fits in memory"), std::string::npos);
  }
}

TEST(Budget, IsATimeOrANumberOfSimulations) {
  EXPECT_EQ(parse_budget("10s").seconds, Seconds(10));
  EXPECT_EQ(parse_budget("2m").seconds, Seconds(120));
  EXPECT_EQ(parse_budget("500ms").seconds, Seconds(0.5));
  EXPECT_EQ(parse_budget("40").simulations, 40U);
  EXPECT_EQ(parse_budget("40").seconds, Seconds(0));
  for (const char* wrong : {"", "10h", "-1s", "0", "1.5", "s", "nan"}) {
    EXPECT_THROW(parse_budget(wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace autodist::search
