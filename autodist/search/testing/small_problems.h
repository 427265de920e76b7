// Small graphs and clusters for the search's tests.

#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "autodist/ir/graph_builder.h"
#include "autodist/search/autosync/judge.h"
#include "autodist/search/autosync/space.h"
#include "autodist/sim/device_table.h"

namespace autodist::search {

// Linear layers of these widths (width x width parameters each); each op takes `seconds`, backward
// two of them.
inline std::shared_ptr<const ir::Graph> layers(const std::vector<std::int64_t>& widths,
                                               double seconds) {
  ir::GraphBuilder step("layers", 4);
  const auto wide = ir::contiguous({ir::batch(), 8});
  ir::Effects takes;
  takes.cost = {Seconds(seconds), {}};
  std::vector<ir::ValueId> inputs{step.input("x", wide)};
  std::vector<ir::ValueId> weights;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    weights.push_back(step.variable(fmt::format("w{}", i), ir::contiguous({widths[i], widths[i]}),
                                    {ir::Rule::kSgd, {{"lr", 0.1}}, ""}));
    inputs.push_back(step.op("aten::mm", {inputs.back(), weights.back()}, wide, takes));
  }
  step.output(step.op("aten::sum", {inputs.back()}, ir::contiguous({})));
  step.backward();
  ir::ValueId gradient = step.op("aten::ones_like", {inputs.back()}, wide);
  for (std::size_t i = widths.size(); i-- > 0;) {
    step.gradient(weights[i], step.op("aten::mm", {inputs[i], gradient},
                                      ir::contiguous({widths[i], widths[i]}), takes));
    gradient = step.op("aten::mm", {gradient, weights[i]}, wide, takes);
  }
  return std::make_shared<const ir::Graph>(step.finish());
}

// Machines with a GPU each, their cards in Gbit/s.
inline cluster::Cluster machines(const std::vector<double>& gbit_per_s,
                                 const std::string& gpus = "0") {
  std::string text = "nodes:\n";
  for (std::size_t i = 0; i < gbit_per_s.size(); ++i) {
    text += fmt::format("  - {{address: 10.0.0.{}, gpus: [{}], network_bandwidth: {}{}}}\n", i + 1,
                        gpus, gbit_per_s[i], i == 0 ? ", chief: true" : "");
  }
  return cluster::parse_resource_spec(text, "test");
}

inline Judge::Costs costs_on(const cluster::Cluster& cluster) {
  return [&cluster](const program::Program& program) {
    sim::CostModel costs = sim::cost_model(program, cluster);
    // On a GPU of no kind an op takes what the graph says, whatever such a GPU counts as.
    for (sim::DeviceCost& device : costs.devices) {
      if (device.kind != sim::kAssumedGpu) continue;
      device.update_bytes_per_s = 0;
      for (std::size_t i = 0; i < device.ops.size(); ++i) {
        device.ops[i] = program.graph->ops[i].cost.at(costs.batch);
      }
    }
    return costs;
  };
}

inline Allowed one_slice_size() {
  Allowed allowed;
  allowed.slice_bytes = {Bytes(200'000)};
  return allowed;
}

}  // namespace autodist::search
