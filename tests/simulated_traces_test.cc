// Traces of every way to synchronise, to the bit, against those of testdata/simulated_traces.txt:
// whoever changes how the simulator drives a slice sees which ways it changes.
// AUTODIST_UPDATE_GOLDENS=1 writes them anew.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "autodist/base/digest.h"
#include "autodist/base/file.h"
#include "autodist/ir/graph_file.h"
#include "tests/simulated_jobs.h"

namespace autodist {
namespace {

template <typename T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

Digest digest_of_rows(const program::Trace& trace) {
  std::string bytes;
  for (const program::TraceRow& row : trace.rows) {
    append(bytes, row.activity);
    append(bytes, row.rank.value);
    append(bytes, row.stream);
    append(bytes, row.step);
    bytes += row.name + '\n';
    append(bytes, row.bytes.value);
    append(bytes, row.start.value);
    append(bytes, row.end.value);
  }
  return digest_of(bytes);
}

std::string line_of(const std::string& name, const SimulatedJob& job) {
  sim::SimulationOptions options;
  options.most_steps = 6;
  options.trace = true;
  const sim::Simulation simulation = job.simulate(options);
  return fmt::format("{:<76} {:>14.9f} ms {:>6} rows {}\n", name, simulation.step.value * 1e3,
                     simulation.trace.rows.size(), to_string(digest_of_rows(simulation.trace)));
}

std::shared_ptr<const ir::Graph> with(const std::shared_ptr<const ir::Graph>& graph, ir::Rule rule,
                                      bool clipped) {
  ir::Graph changed = *graph;
  for (ir::Variable& variable : changed.variables) {
    variable.update.rule = rule;
  }
  if (clipped) {
    ir::Clip clip{1.0, {}};
    for (std::size_t i = 0; i < changed.variables.size(); ++i) clip.variables.emplace_back(i);
    changed.clips.push_back(clip);
  }
  return std::make_shared<const ir::Graph>(std::move(changed));
}

std::string traces() {
  std::string text;
  const auto plain = stack(5, 37, 1e-3);
  for (const char* builder : {"PS",
                              "PSLoadBalancing",
                              "PartitionedPS",
                              "PSLoadBalancing:staleness=2",
                              "PSLoadBalancing:sync=false",
                              "PS:local_proxy_variable=true",
                              "PSLoadBalancing:compressor=fp16",
                              "AllReduce",
                              "AllReduce:update_at=owner",
                              "AllReduce:algorithm=direct",
                              "AllReduce:algorithm=direct,compressor=fp16",
                              "AllReduce:algorithm=ring",
                              "AllReduce:algorithm=tree",
                              "AllReduce:algorithm=hierarchical",
                              "AllReduce:algorithm=hierarchical,update_at=owner",
                              "AllReduce:algorithm=ring,update_at=owner",
                              "AllReduce:algorithm=sufficient_factors",
                              "AllReduce:algorithm=library",
                              "PartitionedAR:algorithm=ring",
                              "BytePS",
                              "P3"}) {
    for (const auto& [nodes, ranks] : {std::pair{2, 1}, {3, 2}, {5, 1}}) {
      text += line_of(fmt::format("{} on {} x {}", builder, nodes, ranks),
                      job_of(plain, builder, nodes, ranks));
    }
  }
  for (const auto& [name, graph] : {std::pair{"clipped", with(plain, ir::Rule::kSgd, true)},
                                    {"LAMB", with(plain, ir::Rule::kLamb, false)},
                                    {"clipped LAMB", with(plain, ir::Rule::kLamb, true)}}) {
    for (const char* builder : {"PSLoadBalancing", "AllReduce", "AllReduce:update_at=owner",
                                "AllReduce:algorithm=ring", "AllReduce:algorithm=library"}) {
      text += line_of(fmt::format("{}, {} on 3 x 1", name, builder), job_of(graph, builder, 3));
    }
  }
  const auto rows = std::make_shared<const ir::Graph>(
      ir::read_graph(AUTODIST_SOURCE_DIR "/data/graphs/ncf-small-sparse.adg"));
  for (const char* builder :
       {"PSLoadBalancing", "PS", "AllReduce", "Parallax", "PSLoadBalancing:staleness=1",
        "PSLoadBalancing:sync=false", "PSLoadBalancing:local_proxy_variable=true"}) {
    text += line_of(fmt::format("rows, {} on 3 x 1", builder), job_of(rows, builder, 3));
  }
  std::mt19937 random(20);
  for (int i = 0; i < 200; ++i) {
    text += line_of(fmt::format("drawn {}", i), random_job(random));
  }
  return text;
}

TEST(SimulatedTraces, OfEveryWayAreTheRecordedOnes) {
  const std::string path = AUTODIST_SOURCE_DIR "/tests/testdata/simulated_traces.txt";
  const std::string text = traces();
  if (std::getenv("AUTODIST_UPDATE_GOLDENS") != nullptr) write_file_atomically(path, text);
  EXPECT_EQ(text, read_file(path));
}

}  // namespace
}  // namespace autodist
