#include "autodist/exec/slice_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/calls.h"
#include "autodist/exec/factors.h"
#include "autodist/exec/tensor_data.h"

namespace autodist::exec {
namespace {

std::vector<Seconds> first_needs(const program::Program& program) {
  std::vector<Seconds> needed(program.variables.size());
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const std::vector<program::SliceId>& slices = program.variables[i].slices;
    if (!slices.empty()) needed[i] = program.slice(slices.front()).needed;
    for (const program::SliceId id : slices) {
      needed[i] = std::min(needed[i], program.slice(id).needed);
    }
  }
  return needed;
}

}  // namespace

SliceDriver::SliceDriver(const RankContext& rank, RankSlices& slices, StepNews& news, Link& link,
                         JobQueue& jobs)
    : program_(rank.program),
      self_(rank.self),
      limit_(rank.options.wait_limit),
      slices_(slices),
      news_(news),
      link_(link),
      jobs_(jobs),
      signal_(rank.signal),
      trace_(rank.trace),
      needed_(first_needs(rank.program)),
      protocol_(slices.job, rank.self, rank.options.first_step) {}

void SliceDriver::contribute(ir::VariableId variable, const torch::Tensor& gradient,
                             std::uint64_t step, std::int64_t samples) {
  slices_.contributor.take(variable, gradient, samples);
  std::vector<program::SliceId> complete;
  {
    const MutexLock lock(signal_);
    protocol_.gradient_complete(variable,
                                [&](program::SliceId slice) { complete.push_back(slice); });
  }
  for (const program::SliceId slice : complete) {
    send_contribution(slice, step, samples, slices_.contributor.payload(slice, samples));
  }
  if (complete.size() == program_.plan(variable).slices.size()) {
    slices_.contributor.drop(variable);
  }
}

void SliceDriver::send_contribution(program::SliceId id, std::uint64_t step, std::int64_t samples,
                                    const comm::Payload& payload) {
  std::string rider = news_.rider_of(id);
  if (slices_.job.keeps_own(slices_.job.slice(id), self_)) {
    slices_.owner.keep(id, step, self_, samples, payload, rider);
  }
  tell(protocol::Contributed{id, step}, {samples, payload, std::move(rider), {}});
}

void SliceDriver::contribute_factors(ir::VariableId variable, const torch::Tensor& left,
                                     const torch::Tensor& right, std::uint64_t step,
                                     std::int64_t samples) {
  const program::SliceId id = program_.plan(variable).slices.front();
  const torch::ScalarType type = scalar_type_of(program_.slice(id).dtype);
  send_contribution(id, step, samples,
                    samples == 0 ? comm::Payload{} : pack_factors(left, right, type));
}

void SliceDriver::take(const comm::Frame& frame) {
  const Topic topic = topic_of(frame.header);
  const std::uint64_t step = frame.header.step;
  const program::Rank from(frame.header.from);
  const program::SliceId slice(frame.header.id);
  switch (topic) {
    case Topic::kContribution:
      slices_.owner.keep(slice, step, from, frame.header.samples, frame.payload, frame.rider);
      return tell(protocol::ContributionArrived{from, slice, step});
    case Topic::kResult:
      AD_CHECK(slice.value < program_.slices.size()) << "a result of no slice";
      return tell(protocol::ResultArrived{slice, step},
                  {frame.header.samples, frame.payload, frame.rider, {}});
    case Topic::kSums:
    case Topic::kLambSums:
      return take_sums(slice, topic == Topic::kLambSums, frame);
    case Topic::kWholeSum:
      return take_whole_sum(ir::VariableId(frame.header.id), frame);
    case Topic::kFlag:
      return take_flag(frame);
    case Topic::kAsk:
      slices_.owner.keep_ask(slice, from, step, frame.payload);
      return tell(protocol::AskArrived{from, slice, step});
    case Topic::kResultAndRows:
      AD_CHECK(slice.value < program_.slices.size() && step > 0) << "a result of no slice";
      tell(protocol::ResultArrived{slice, step - 1}, {frame.header.samples, {}, frame.rider, {}});
      [[fallthrough]];
    case Topic::kRows:
      slices_.fetcher.take(slice, step, frame.payload);
      return tell(protocol::RowsArrived{slice});
    default:
      AD_CHECK(false) << exec::name_of(topic, frame.header.id) << " is no slice's";
  }
}

void SliceDriver::fetch(ir::VariableId variable, const std::vector<torch::Tensor>& numbers,
                        std::uint64_t step) {
  for (RowFetcher::Wanted& wanted : slices_.fetcher.want(variable, numbers, step)) {
    if (program_.slice(wanted.slice).owner == self_) {
      slices_.owner.keep_ask(wanted.slice, self_, step, wanted.numbers);
    }
    tell(protocol::RowsWanted{wanted.slice, step}, {0, std::move(wanted.numbers), {}, {}});
  }
}

void SliceDriver::await_settled(ir::VariableId variable, std::uint64_t step) {
  const MutexLock lock(signal_);
  signal_.wait(
      limit_, [&]() AD_REQUIRES(signal_) { return protocol_.is_settled(variable, step); },
      [&]() AD_REQUIRES(signal_) { return describe_wait(variable); });
}

bool SliceDriver::hold(ir::VariableId variable, std::uint64_t step,
                       const std::function<std::string(bool gives_up)>& late) {
  const Seconds patience = std::min(kSaysWhoAfter, limit_);
  bool was_open = false;
  {
    MutexLock lock(signal_);
    const auto is_open = [&]() AD_REQUIRES(signal_) { return protocol_.is_open(variable, step); };
    was_open = is_open();
    if (!signal_.wait_for(patience, is_open)) {
      lock.unlock();
      if (late) late(false);
      lock.lock();
      if (!signal_.wait_for(limit_ - patience, is_open)) {
        const std::string what = describe_wait(variable);
        lock.unlock();
        const std::string whom = late ? late(true) : "";
        throw Error(ErrorCode::kTimeout,
                    whom.empty() ? what : fmt::format("{} This waits for {}.", what, whom));
      }
    }
    protocol::Effects none;
    protocol_.on(protocol::Held{variable}, none);
  }
  const RowFetcher::Answers answers = slices_.fetcher.take_answers(variable);
  for (const auto& [slice, elements] : answers.slices) slices_.variables.overwrite(slice, elements);
  if (!answers.rows.empty()) slices_.variables.overwrite_rows(variable, answers.rows);
  return was_open;
}

std::string SliceDriver::describe_wait(ir::VariableId variable) const {
  const std::uint64_t version = protocol_.version(variable);
  std::string rows = slices_.fetcher.missing_rows(variable);
  return fmt::format("step: variable '{}' still has version {}; {}.",
                     program_.graph->variable(variable).name, version,
                     rows.empty() ? slices_.variables.missing_results(variable, version) : rows);
}

void SliceDriver::release(ir::VariableId variable) {
  tell(protocol::Released{variable});
  // An update in another stream may wait for it.
  if (program_.plan(variable).slices.empty()) signal_.notify();
}

void SliceDriver::averaged(ir::VariableId variable, std::uint64_t step,
                           const std::vector<SquaredSums>& sums) {
  if (!sums.empty()) slices_.norms.put(step, *slices_.plan.whole[variable.value], sums.front());
  tell(protocol::Averaged{variable, step}, {0, {}, {}, sums});
  signal_.notify();
}

void SliceDriver::await_update(ir::VariableId variable, std::uint64_t step) {
  const MutexLock lock(signal_);
  signal_.wait(
      limit_, [&]() AD_REQUIRES(signal_) { return protocol_.may_update(variable, step); },
      [&]() AD_REQUIRES(signal_) {
        return fmt::format("update: variable '{}' at step {}: gradient {}, {}.",
                           program_.graph->variable(variable).name, step,
                           protocol_.is_averaged(variable, step) ? "complete" : "missing",
                           protocol_.is_released(variable) ? "released" : "still read");
      },
      Heeds::kFailure);
}

void SliceDriver::updated(ir::VariableId variable) { tell(protocol::UpdatedHere{variable}); }

void SliceDriver::reload(const std::vector<ir::VariableId>& variables, std::uint64_t step) {
  for (const ir::VariableId variable : variables) slices_.variables.reload(variable);
  const auto take = [this, variables] {
    for (const ir::VariableId variable : variables) {
      // Else nobody reads the values, which dense() would copy from the device.
      if (!slices_.owner.updates_any_of(variable)) continue;
      const torch::Tensor values = slices_.variables.dense(variable);
      slices_.owner.reload(variable, memory_of(values));
    }
  };
  jobs_.run(signal_, limit_, step, Seconds{}, take,
            "run: the merging thread does not come to new values.");
}

}  // namespace autodist::exec
