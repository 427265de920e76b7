// P3's experiments (Jayarajan et al., "Priority-based parameter propagation for distributed DNN
// training", MLSys 2019, sections 5.2 to 5.5), in the simulator: four models on N machines, each
// with a worker and a server, over links of 1 to 30 Gbit/s.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "autodist/ir/graph.h"
#include "autodist/sim/simulator.h"

namespace autodist::studies {

struct P3Model {
  std::string graph;         // a shipped one
  double samples_per_s = 0;  // of one worker alone, on a P4000
  std::int64_t batch = 32;   // per worker
};

struct P3Setting {
  double gbit_per_s = 10;
  std::int64_t machines = 4;
  std::int64_t slice_parameters = 50'000;
  // What the machines themselves do to it; 0: nothing. The paper's VGG-19 on 15 Gbit/s needs both.
  double goodput_gbit_per_s = 0;  // most that a card carries
  double sum_gb_per_s = 0;        // of gradients that a server sums
  bool barrier = false;           // before every step
};

// kPlain: MXNet's own, whole tensors (those above a million parameters in as many even parts as
// there are servers), first in, first out. kSliced: P3's slices, first in, first out. kPriority:
// slices by first use.
enum class P3Way : std::uint8_t { kPlain, kSliced, kPriority };

// The model's graph with a P4000's times: the shares of its ops by roofline, scaled so that forward
// and backward together take batch / samples_per_s, 1:2.
std::shared_ptr<const ir::Graph> p3_graph(const P3Model& model);

sim::Simulation simulate_p3(const std::shared_ptr<const ir::Graph>& graph, const P3Model& model,
                            const P3Setting& setting, P3Way way, bool trace = false);

// Throughput with P3 over the plain one's.
double p3_speedup(const std::shared_ptr<const ir::Graph>& graph, const P3Model& model,
                  const P3Setting& setting, P3Way against = P3Way::kPlain);

// The whole study as a page (docs/benchmarks/p3.md).
std::string p3_page();

}  // namespace autodist::studies
