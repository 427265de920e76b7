#include "autodist/capture/costs.h"

#include <c10/core/Allocator.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <string>

#include "autodist/capture/testing/models.h"
#include "autodist/capture/torch_version.h"
#include "autodist/ir/liveness.h"

namespace autodist::capture {
namespace {

constexpr std::int64_t kRows = 8;
constexpr std::int64_t kColumns = 4;
constexpr std::int64_t kFixedBytes = 10'000;

// Beside what it returns it has 40 bytes for each element, and 10 kB, which it lets go of.
at::Tensor with_scratch(const at::Tensor& x) {
  const at::Tensor bytes = torch::empty({40 * x.numel() + kFixedBytes}, torch::kByte);
  return x.clone();
}

TORCH_LIBRARY(autodist_costs_test, library) {
  library.def("with_scratch(Tensor x) -> Tensor");
  library.impl("with_scratch", torch::dispatch(c10::DispatchKey::CPU, with_scratch));
}

TrainingStep step_with_scratch() {
  const auto loss = [](torch::nn::LinearImpl& net, const Batch& batch) {
    static const auto kOp = c10::Dispatcher::singleton()
                                .findSchemaOrThrow("autodist_costs_test::with_scratch", "")
                                .typed<at::Tensor(const at::Tensor&)>();
    return net.forward(kOp.call(batch[0])).pow(2).mean();
  };
  return make_training_step("scratch", std::make_shared<torch::nn::LinearImpl>(kColumns, 1), loss,
                            {torch::randn({kRows, kColumns})});
}

const ir::Op& op_named(const ir::Graph& graph, const std::string& name) {
  const auto found = std::find_if(graph.ops.begin(), graph.ops.end(),
                                  [&](const ir::Op& op) { return op.name == name; });
  EXPECT_NE(found, graph.ops.end()) << name;
  return *found;
}

TEST(Costs, WhatAKernelAllocatesForItselfIsALineInTheBatch) {
  const ir::Graph graph = capture(step_with_scratch()).graph;
  const ir::Affine scratch{40 * kColumns, kFixedBytes};
  EXPECT_EQ(op_named(graph, "autodist_costs_test::with_scratch").cost.scratch, scratch);
  EXPECT_EQ(op_named(graph, "aten::pow").cost.scratch, ir::Affine{});
  EXPECT_GT(graph.peak_bytes.at(kRows), scratch.at(kRows));
  EXPECT_LT(ir::activation_bytes(graph, kRows), scratch.at(kRows));
  EXPECT_GT(ir::activation_bytes_as_captured(graph, kRows), scratch.at(kRows));
}

// A profiler of the user keeps its place.
TEST(Costs, NothingIsHeardOfAllocationsWhereAProfilerListens) {
  struct Profiler : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, std::int64_t, AllocatedTotal, AllocatedTotal,
                           c10::Device) override {
      ++reports;
    }
    [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
    int reports = 0;
  };
  const auto profiler = std::make_shared<Profiler>();
  const TrainingStep step = step_with_scratch();
  const c10::DebugInfoGuard listens(c10::DebugInfoKind::PROFILER_STATE, profiler);
  const ir::Graph graph = capture(step).graph;
  EXPECT_EQ(op_named(graph, "autodist_costs_test::with_scratch").cost.scratch, ir::Affine{});
  EXPECT_GT(profiler->reports, 0);
}

}  // namespace
}  // namespace autodist::capture
