// The synchroniser's gradients that no slice carries: a library all-reduces them, in the Program's
// order, and every rank updates the variable by itself.

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/exec/effects.h"

namespace autodist::exec {
namespace {

// A lost peer ends the library's connections at once; which one it was the exchange says some
// heartbeats later, and that is the better answer.
[[noreturn]] void rethrow_with_culprit(Signal& signal, Seconds patience) {
  constexpr Seconds kPause{0.01};
  for (Seconds waited; waited < patience && !signal.failure(); waited += kPause) {
    std::this_thread::sleep_for(std::chrono::duration<double>(kPause.value));
  }
  if (const std::exception_ptr culprit = signal.failure()) std::rethrow_exception(culprit);
  throw;
}

}  // namespace

void Synchroniser::all_reduce(program::CollectiveId id, std::uint64_t step) {
  const program::Collective& collective = program_.collectives[id.value];
  std::vector<torch::Tensor> gradients;
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
        [&] { return fmt::format("all-reduce {}: gradients are missing at step {}.", id, step); });
    for (const ir::VariableId v : collective.variables) {
      gradients.push_back(whole_[v.value].gradient);
    }
    samples = whole_[collective.variables.front().value].samples;
  }
  const Seconds start = trace_.enabled() ? trace_.now() : Seconds{};
  LibraryAllReduce::Average average;
  try {
    average = all_reduces_[id.value].run(gradients, samples, step);
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
  if (trace_.enabled()) {
    trace_.add(program::Activity::kCollective, program::StreamKind::kCollective, step,
               fmt::format("all-reduce {}", id), average.reduced, start);
  }
  for (const ir::VariableId v : collective.variables) averaged(v, step);
}

void Synchroniser::update(ir::VariableId variable, std::uint64_t step) {
  Whole whole;
  {
    const MutexLock lock(signal_);
    signal_.wait(
        options_.wait_limit,
        [&]() AD_REQUIRES(signal_) { return protocol_.may_update(variable, step); },
        [&]() AD_REQUIRES(signal_) {
          return fmt::format("update: variable '{}' at step {}: gradient {}, {}.",
                             program_.graph->variable(variable).name, step,
                             protocol_.is_averaged(variable, step) ? "complete" : "missing",
                             protocol_.is_released(variable) ? "released" : "still read");
        });
    Whole& here = whole_[variable.value];
    whole = std::exchange(here, {here.contributed, {}, 0, {}});
  }
  const Seconds start = trace_.enabled() ? trace_.now() : Seconds{};
  variables_->update_whole(variable, step, std::move(whole.gradient), whole.samples, whole.news);
  if (trace_.enabled()) {
    trace_.add(program::Activity::kUpdate, program::StreamKind::kCollective, step,
               program_.graph->variable(variable).name, ir::bytes_of(*program_.graph, variable),
               start);
  }
  tell(protocol::UpdatedHere{variable});
}

}  // namespace autodist::exec
