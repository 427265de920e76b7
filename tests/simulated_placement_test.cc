// The simulator on placed graphs: pipelines whose times can be worked out, and laws over placements
// drawn at random.

#include <gtest/gtest.h>

#include <map>

#include "autodist/ir/testing/random_graph.h"
#include "tests/simulated_jobs.h"
#include "tests/stages.h"

namespace autodist {
namespace {

constexpr double kOp = 1e-3;  // seconds
constexpr std::int64_t kWidth = 16;

// Layers of stack(), so many to a stage: per layer one op forward and two backward.
std::vector<std::uint32_t> in_line(const ir::Graph& graph, std::uint32_t stages) {
  const std::size_t layers = graph.variables.size();
  const std::size_t each = layers / stages;
  std::vector<std::uint32_t> stage_of;
  for (std::size_t op = 0; op < graph.ops.size(); ++op) {
    const std::size_t layer = op < layers       ? op
                              : op < layers + 2 ? layers - 1
                                                : layers - 1 - (op - layers - 2) / 2;
    stage_of.push_back(static_cast<std::uint32_t>(layer / each));
  }
  return stage_of;
}

SimulatedJob placed(const std::shared_ptr<const ir::Graph>& graph, const cluster::Cluster& cluster,
                    std::uint32_t stages, const testing_jobs::Placer& placer,
                    std::int64_t micro_batches) {
  passes::Options options;
  options.micro_batches = micro_batches;
  SimulatedJob job;
  job.cluster = cluster;
  job.program = passes::rewrite(graph, testing_jobs::strategy_of(*graph, cluster, stages, placer),
                                cluster, options, "placed");
  job.costs = sim::cost_model(job.program, cluster);
  return job;
}

// GPipe's: as many turns as micro-batches and the stages that wait for the first one.
TEST(Pipelines, TakeATurnPerMicroBatchAndPerOtherStage) {
  const auto graph = stack(8, kWidth, kOp);
  for (const std::uint32_t stages : {2U, 4U}) {
    for (const std::int64_t micro_batches : {1, 2, 8}) {
      SimulatedJob job =
          placed(graph, machines(static_cast<int>(stages)), stages, in_line, micro_batches);
      only_the_wire(job.costs);
      for (cluster::Node& node : job.cluster.nodes) {
        node.bandwidth_bytes_per_s = 1e18;
        node.latency = Seconds{};
      }
      const sim::Simulation simulation = job.simulate();
      const double turn = 3 * kOp * 8.0 / stages;  // forward, and twice that backward
      const auto turns = static_cast<double>(micro_batches + stages - 1);
      EXPECT_NEAR(simulation.step.value, turns * turn, 1e-8)
          << stages << " stages, " << micro_batches << " micro-batches";
      EXPECT_NEAR(simulation.bounds.compute.value, static_cast<double>(micro_batches) * turn, 1e-9);
      for (const auto& rank : simulation.ranks) {
        EXPECT_NEAR(rank.computing.value, static_cast<double>(micro_batches) * turn, 1e-9);
      }
    }
  }
}

// Per micro-batch of 4 samples: an activation on, its gradient back with the loss.
TEST(Pipelines, SendActivationsAndTheirGradientsToTheByte) {
  const auto graph = stack(4, kWidth, kOp);
  const SimulatedJob job = placed(graph, machines(2), 2, in_line, 3);
  const sim::Simulation simulation = job.simulate();
  const std::int64_t activation = 4 * kWidth * 4;
  EXPECT_EQ(simulation.nodes[0].sent.value, 3 * activation);
  EXPECT_EQ(simulation.nodes[1].sent.value, 3 * (activation + 4));
  EXPECT_EQ(simulation.nodes[0].received, simulation.nodes[1].sent);
}

TEST(Pipelines, ReplicasOfStagesAddTheirGradientsUp) {
  const auto graph = stack(4, kWidth, kOp);
  const SimulatedJob job = placed(graph, machines(4), 2, in_line, 2);
  const sim::Simulation simulation = job.simulate();
  const std::int64_t activation = 4 * kWidth * 4;
  const std::int64_t layer = kWidth * kWidth * 4;
  // Rank 2 is the first stage of the second replica: its two layers' gradients go to rank 0.
  EXPECT_EQ(simulation.nodes[2].sent.value, 2 * activation + 2 * layer);
  EXPECT_EQ(simulation.nodes[0].sent.value, 2 * activation + 2 * layer) << "and come back";
}

TEST(Pipelines, TracesHaveAllOpsAndWhatIsWaitedFor) {
  const auto graph = stack(4, kWidth, kOp);
  const SimulatedJob job = placed(graph, machines(2), 2, in_line, 2);
  sim::SimulationOptions options;
  options.trace = true;
  const sim::Simulation simulation = job.simulate(options);
  std::map<program::Activity, std::size_t> rows;
  bool waits_for_stage = false;
  for (const program::TraceRow& row : simulation.trace.rows) {
    ++rows[row.activity];
    const bool gate = row.activity == program::Activity::kGate;
    waits_for_stage |= gate && row.name.find("of stage 1") != std::string::npos;
  }
  EXPECT_EQ(rows[program::Activity::kCompute], 2 * graph->ops.size() * simulation.steps);
  EXPECT_TRUE(waits_for_stage);
}

// A job has settled when its last steps differ by less than 1e-3 (kSettled in sim/streams.cc); the
// first steps of a pipeline that fills may be that much shorter than the others.
constexpr double kUnsettled = 1e-3;

TEST(Placements, DrawnAtRandomEndAndStayAboveTheirBounds) {
  std::mt19937 random(5);
  int simulated = 0;
  for (int round = 0; round < 400; ++round) {
    ir::Graph drawn = ir::random_graph(random);
    for (ir::Op& op : drawn.ops) op.cost = {Seconds(1e-4 * (1 + random() % 9)), Seconds{}};
    const auto graph = std::make_shared<const ir::Graph>(std::move(drawn));
    const std::uint32_t stages = 2 + random() % 3;
    const testing_jobs::Placer placer =
        testing_jobs::anywhere(static_cast<std::uint32_t>(random()));
    const auto micro_batches = static_cast<std::int64_t>(1 + random() % 3);
    const SimulatedJob job =
        placed(graph, machines(static_cast<int>(stages)), stages, placer, micro_batches);
    const sim::Simulation simulation = job.simulate();
    EXPECT_GE(simulation.step.value, simulation.bounds.plan.value * (1 - kUnsettled)) << round;
    EXPECT_EQ(simulation.step.value, job.simulate().step.value) << round;
    ++simulated;
  }
  EXPECT_EQ(simulated, 400);
}

}  // namespace
}  // namespace autodist
