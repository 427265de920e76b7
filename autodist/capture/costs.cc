#include "autodist/capture/costs.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <optional>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/capture/interpreter.h"
#include "autodist/capture/scratch_meter.h"
#include "autodist/capture/torch_version.h"
#include "autodist/ir/own_ops.h"

namespace autodist::capture {
namespace {

using HostClock = std::chrono::steady_clock;

// Seconds of ops, which run on the calling thread's queue: by the device's own clock, where
// libtorch reads it, between two marks around each op, so that the host need not wait for any; else
// by the host's, with the device idle before and after each op.
class OpTimes {
 public:
  OpTimes(at::Device device, std::size_t ops) : times_(ops) {
    if (device.is_cpu()) return;
    kind_.emplace(device.type());
    queue_ = kind_->getStream(device);
    const c10::Event first = mark();
    const c10::Event second = mark();
    wait();
    by_device_ = seconds_between(first, second).has_value();
  }

  void begin_op() {
    if (by_device_) {
      begins_.push_back(mark());
    } else {
      wait();
      start_ = HostClock::now();
    }
  }
  void end_op(ir::OpId id) {
    if (by_device_) {
      ends_.push_back(mark());
    } else {
      wait();
      times_[id.value].push_back(std::chrono::duration<double>(HostClock::now() - start_).count());
    }
  }
  // After all ops of a run, in the order of the graph.
  void end_run() {
    if (!by_device_) return;
    wait();
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      times_[i].push_back(seconds_between(begins_[i], ends_[i]).value_or(0));
    }
    begins_.clear();
    ends_.clear();
  }

  // Of every op, one per run.
  [[nodiscard]] std::vector<std::vector<double>> take() { return std::move(times_); }

 private:
  [[nodiscard]] c10::Event mark() const {
    c10::Event event(queue_->device_type(), c10::EventFlag::BACKEND_DEFAULT);
    event.record(*queue_);
    return event;
  }
  void wait() const {
    if (queue_) kind_->synchronizeStream(*queue_);
  }

  std::optional<c10::impl::VirtualGuardImpl> kind_;  // nothing on a CPU
  std::optional<c10::Stream> queue_;
  bool by_device_ = false;
  HostClock::time_point start_;
  std::vector<c10::Event> begins_;
  std::vector<c10::Event> ends_;
  std::vector<std::vector<double>> times_;
};

// The lower one of two.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Measured {
  double seconds = 0;  // the median
  std::int64_t scratch = 0;
};

// By op.
std::vector<Measured> measure(Interpreter& replay, const ir::Graph& graph, const Subject& subject,
                              std::int64_t batch, int repetitions, std::uint64_t seed) {
  const bool always_alike = ir::has_number_guards(graph);
  OpTimes times(subject.device(), graph.ops.size());
  replay.set_batch(batch);
  std::vector<Measured> measured(graph.ops.size());
  std::optional<ScratchMeter> scratch;
  replay.before = [&](ir::OpId) {
    subject.look_around();
    times.begin_op();
    if (scratch) scratch->begin_op();
  };
  replay.after = [&](ir::OpId id, const std::vector<at::Tensor>&) {
    if (scratch) measured[id.value].scratch = scratch->end_op();
    times.end_op(id);
  };
  for (int i = 0; i < repetitions; ++i) {
    subject.restore_buffers();
    if (always_alike) subject.seed(seed);
    if (i == 0) scratch.emplace(subject.device());
    try {
      replay.run(subject.rows(always_alike ? 0 : i, batch));
    } catch (...) {
      replay.clear();  // while the meter hears of it
      throw;
    }
    times.end_run();
    replay.clear();
    scratch.reset();
  }
  std::vector<std::vector<double>> seconds = times.take();
  for (std::size_t i = 0; i < measured.size(); ++i) {
    measured[i].seconds = median(std::move(seconds[i]));
  }
  return measured;
}

ir::Cost fixed_cost(const Measured& measured) {
  return {Seconds(measured.seconds), {}, {0, measured.scratch}};
}

// Of a graph for any batch that was measured at one. Memory is better overrated: it grows.
ir::Cost cost_at(std::int64_t batch, const Measured& measured) {
  return {Seconds(measured.seconds), {}, {(measured.scratch + batch - 1) / batch, 0}};
}

struct Line {
  double fixed = 0;
  double per_sample = 0;
};

Line line_through(std::int64_t small, double at_small, std::int64_t large, double at_large) {
  const double per_sample = (at_large - at_small) / static_cast<double>(large - small);
  const double fixed = at_large - per_sample * static_cast<double>(large);
  if (per_sample < 0) return {at_large, 0};
  if (fixed < 0) return {0, at_large / static_cast<double>(large)};
  return {fixed, per_sample};
}

ir::Cost cost_through(std::int64_t small, const Measured& at_small, std::int64_t large,
                      const Measured& at_large) {
  const Line time = line_through(small, at_small.seconds, large, at_large.seconds);
  const Line bytes = line_through(small, static_cast<double>(at_small.scratch), large,
                                  static_cast<double>(at_large.scratch));
  const auto whole = [](double value) { return static_cast<std::int64_t>(std::ceil(value)); };
  return {
      Seconds(time.fixed), Seconds(time.per_sample), {whole(bytes.per_sample), whole(bytes.fixed)}};
}

}  // namespace

void measure_costs(ir::Graph& graph, const Subject& subject, const Bindings& tensors,
                   int repetitions, std::uint64_t seed) {
  ComputePlace place;
  place.device = subject.device();
  const std::int64_t large = graph.example_batch;
  Interpreter replay(graph, tensors, place, large);
  const std::vector<Measured> at_large =
      measure(replay, graph, subject, large, std::max(1, repetitions - 1), seed);
  // Rows of the example may have other sizes that follow from data.
  if (!graph.batch_fixed_reason.empty() || ir::has_number_guards(graph)) {
    for (std::size_t i = 0; i < graph.ops.size(); ++i) graph.ops[i].cost = fixed_cost(at_large[i]);
    return;
  }
  std::int64_t small = large == 1 ? 2 : (large + 3) / 4;
  std::vector<Measured> at_small;
  while (at_small.empty() && small != large) {
    try {
      at_small = measure(replay, graph, subject, small, repetitions, seed);
    } catch (const Error&) {
      throw;
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const std::exception&) {  // so few samples do not run, or go another way
      small = std::min(2 * small, large);
    }
  }
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    graph.ops[i].cost = at_small.empty() ? cost_at(large, at_large[i])
                                         : cost_through(small, at_small[i], large, at_large[i]);
  }
}

}  // namespace autodist::capture
