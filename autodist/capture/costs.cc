#include "autodist/capture/costs.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>

#include "autodist/capture/interpreter.h"

namespace autodist::capture {
namespace {

using Clock = std::chrono::steady_clock;

// A device's kernels run behind the host's back.
void wait_for(at::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl kind(device.type());
  kind.synchronizeStream(kind.getStream(device));
}

// The lower one of two.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Median seconds of every op.
std::vector<double> measure(Interpreter& replay, const ir::Graph& graph, const Subject& subject,
                            std::int64_t batch, int repetitions) {
  std::vector<std::vector<double>> times(graph.ops.size());
  Clock::time_point start;
  replay.set_batch(batch);
  replay.before = [&](ir::OpId) {
    subject.look_around();
    wait_for(subject.device());
    start = Clock::now();
  };
  replay.after = [&](ir::OpId id, const std::vector<at::Tensor>&) {
    wait_for(subject.device());
    times[id.value].push_back(std::chrono::duration<double>(Clock::now() - start).count());
  };
  for (int i = 0; i < repetitions; ++i) {
    subject.restore_buffers();
    replay.run(subject.rows(i, batch));
    replay.clear();
  }
  std::vector<double> medians;
  medians.reserve(times.size());
  for (std::vector<double>& each : times) medians.push_back(median(std::move(each)));
  return medians;
}

ir::Cost line_through(std::int64_t small, double at_small, std::int64_t large, double at_large) {
  double per_sample = (at_large - at_small) / static_cast<double>(large - small);
  double fixed = at_large - per_sample * static_cast<double>(large);
  if (per_sample < 0) {
    per_sample = 0;
    fixed = at_large;
  } else if (fixed < 0) {
    fixed = 0;
    per_sample = at_large / static_cast<double>(large);
  }
  return {Seconds(fixed), Seconds(per_sample)};
}

}  // namespace

void measure_costs(ir::Graph& graph, const Subject& subject, const Bindings& tensors,
                   int repetitions) {
  ComputePlace place;
  place.device = subject.device();
  const std::int64_t large = graph.example_batch;
  Interpreter replay(graph, tensors, place, large);
  const std::vector<double> at_large =
      measure(replay, graph, subject, large, std::max(1, repetitions - 1));
  if (!graph.batch_fixed_reason.empty()) {
    for (std::size_t i = 0; i < graph.ops.size(); ++i)
      graph.ops[i].cost = {Seconds(at_large[i]), {}};
    return;
  }
  const std::int64_t small = large == 1 ? 2 : (large + 3) / 4;
  const std::vector<double> at_small = measure(replay, graph, subject, small, repetitions);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    graph.ops[i].cost = line_through(small, at_small[i], large, at_large[i]);
  }
}

}  // namespace autodist::capture
