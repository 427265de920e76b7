#include "autodist/exec/whole_gradients.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/contributor.h"
#include "autodist/exec/optimizer_kernels.h"
#include "autodist/exec/tensor_data.h"
#include "autodist/ir/rows.h"

namespace autodist::exec {
namespace {

// A lost peer ends the library's connections at once; which one it was the exchange says some
// heartbeats later, and that is the better answer.
[[noreturn]] void rethrow_with_culprit(Signal& signal, Seconds patience) {
  constexpr Seconds kPause{0.01};
  for (Seconds waited; waited < patience && !signal.failure(); waited += kPause) {
    std::this_thread::sleep_for(std::chrono::duration<double>(kPause.value));
  }
  signal.rethrow(Heeds::kFailure);
  throw;
}

}  // namespace

WholeGradients::WholeGradients(const RankContext& rank, comm::Collectives* collectives,
                               RankSlices& slices, const StepNews& news, SliceDriver& driver)
    : program_(rank.program),
      options_(rank.options),
      slices_(slices),
      news_(news),
      driver_(driver),
      signal_(rank.signal),
      trace_(rank.trace),
      whole_(rank.program.variables.size()) {
  for (std::size_t i = 0; i < program_.collectives.size(); ++i) {
    const program::CollectiveId id(i);
    all_reduces_.emplace_back(program_, id, collectives, options_.job_seed, slices_.staging,
                              reduces_on_device(id, collectives));
  }
}

bool WholeGradients::reduces_on_device(program::CollectiveId id,
                                       const comm::Collectives* collectives) const {
  const program::Collective& collective = program_.collectives[id.value];
  return collectives != nullptr && collectives->is_on_device() &&
         LibraryAllReduce::sends_whole_gradients(program_, id) &&
         std::all_of(collective.variables.begin(), collective.variables.end(),
                     [&](ir::VariableId v) { return slices_.variables.is_updated_on_device(v); });
}

bool WholeGradients::stays_on_device(ir::VariableId variable) const {
  const program::VariablePlan& plan = program_.plan(variable);
  if (plan.collective) return all_reduces_[plan.collective->value].is_on_device();
  return plan.slices.empty() && slices_.variables.is_updated_on_device(variable);
}

void WholeGradients::contribute(ir::VariableId variable, const torch::Tensor& gradient,
                                std::uint64_t step, std::int64_t samples, const Mark& complete,
                                std::optional<double> squares) {
  torch::Tensor own;
  if (samples != 0 && stays_on_device(variable)) {
    own = gradient;
  } else if (samples != 0) {
    const bool rows = ir::trained_by_rows(program_.graph->variable(variable));
    own = rows && gradient.is_sparse()
              ? gradient.coalesce()
              : row_major(gradient, slices_.variables.tensor(variable).scalar_type());
  }
  {
    const MutexLock lock(signal_);
    Whole& whole = whole_[variable.value];
    whole.gradient = std::move(own);
    whole.complete = complete;
    whole.samples = samples;
    whole.news = news_.news_of(variable);
    whole.contributed = step + 1;
  }
  signal_.notify();
  if (!program_.plan(variable).collective) averaged(variable, step, squares);
}

std::function<void()> WholeGradients::looking(program::CollectiveId id) {
  return [this, id, clock = SteadyClock(), start = SteadyClock().now()] {
    signal_.rethrow(Heeds::kFailure);
    if (clock.now() - start < options_.wait_limit) return;
    fail(ErrorCode::kPeersLost, "all-reduce {}: the device has no sum after {}.", id,
         to_string(options_.wait_limit));
  };
}

// Every computing rank has the same averaged gradient, and adds its part of the norm by itself.
void WholeGradients::averaged(ir::VariableId variable, std::uint64_t step,
                              std::optional<double> squares) {
  if (!is_clipped(variable)) return driver_.averaged(variable, step, {});
  if (squares) return driver_.averaged(variable, step, {SquaredSums{*squares}});
  torch::Tensor gradient;
  {
    const MutexLock lock(signal_);
    gradient = whole_[variable.value].gradient;
  }
  SquaredSums sums;
  if (gradient.defined() && !gradient.is_cpu()) {
    sums.first = on_host(gradient.to(torch::kDouble).square().sum(), slices_.staging,
                         looking(*program_.plan(variable).collective))
                     .item<double>();
  } else if (gradient.defined()) {
    if (gradient.is_sparse()) gradient = gradient._values().contiguous();
    sums.first =
        sum_of_squares(memory_of(gradient), dtype_of(gradient.scalar_type()), gradient.numel());
  }
  driver_.averaged(variable, step, {sums});
}

void WholeGradients::all_reduce(program::CollectiveId id, std::uint64_t step) {
  const program::Collective& collective = program_.collectives[id.value];
  std::vector<torch::Tensor> gradients;
  std::vector<Mark> complete;
  std::int64_t samples = 0;
  {
    const MutexLock lock(signal_);
    signal_.wait(
        options_.wait_limit,
        [&]() AD_REQUIRES(signal_) {
          return std::all_of(collective.variables.begin(), collective.variables.end(),
                             [&](ir::VariableId v) AD_REQUIRES(signal_) {
                               return whole_[v.value].contributed > step;
                             });
        },
        [&] { return fmt::format("all-reduce {}: gradients are missing at step {}.", id, step); },
        Heeds::kFailure);
    for (const ir::VariableId v : collective.variables) {
      gradients.push_back(whole_[v.value].gradient);
      complete.push_back(whole_[v.value].complete);
    }
    samples = whole_[collective.variables.front().value].samples;
  }
  const Queue here = Queue::current(slices_.staging.device());
  for (const Mark& each : complete) here.wait_for(each, WaitSite::kReducedMade);
  const Seconds start = trace_.start_of_row();
  LibraryAllReduce::Average average;
  try {
    average = all_reduces_[id.value].run(gradients, samples, step, looking(id));
  } catch (const Error&) {
    rethrow_with_culprit(signal_,
                         options_.exchange.heartbeat * (options_.exchange.missed_heartbeats + 1));
  }
  {
    const MutexLock lock(signal_);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      Whole& whole = whole_[collective.variables[i].value];
      whole.gradient = average.gradients[i];
      whole.samples = average.samples;
    }
  }
  trace_.add(program::Activity::kCollective, program::StreamKind::kCollective, step,
             fmt::format("all-reduce {}", id), average.reduced, start);
  for (const ir::VariableId v : collective.variables) averaged(v, step);
}

void WholeGradients::update(const std::vector<ir::VariableId>& variables, std::uint64_t step) {
  std::vector<LocalVariables::WholeUpdate> updates;
  for (const ir::VariableId variable : variables) {
    driver_.await_update(variable, step);
    const MutexLock lock(signal_);
    Whole& here = whole_[variable.value];
    updates.push_back({variable, std::move(here.gradient), here.samples, std::move(here.news)});
    here = {here.contributed, {}, {}, 0, {}};
  }
  const Seconds start = trace_.start_of_row();
  slices_.variables.update_whole(step, std::move(updates));
  for (const ir::VariableId variable : variables) {
    trace_.add(program::Activity::kUpdate, program::StreamKind::kCollective, step,
               program_.graph->variable(variable).name, ir::bytes_of(*program_.graph, variable),
               start);
    driver_.updated(variable);
  }
}

}  // namespace autodist::exec
