// What the protocol asks for, on bytes. Messages are posted to the exchange; work goes to the
// rank's job queue, most urgent first; sim/effects.cc has the table of what runs where and what it
// costs.

#include <utility>

#include "autodist/base/check.h"
#include "autodist/exec/effects.h"
#include "autodist/exec/rider.h"
#include "autodist/exec/wanted_slices.h"

namespace autodist::exec {

void SliceDriver::Performer::post(Topic topic, program::Rank to, program::SliceId slice,
                                  std::uint64_t step, const comm::Payload& payload,
                                  const std::string& rider) const {
  rank_.link_.post(to, {Subject(topic).kind(), step, slice.value, bytes_.samples,
                        rank_.program_.slice(slice).needed, payload, rider});
}

void SliceDriver::Performer::operator()(const protocol::Contribute& effect) const {
  rank_.slices_.job.for_each_contributed_to(
      rules(effect.slice), rank_.self_, [&](program::Rank to) {
        post(Topic::kContribution, to, effect.slice, effect.step, bytes_.payload, bytes_.rider);
      });
}

void SliceDriver::Performer::operator()(const protocol::HandOn& effect) const {
  const program::Rank to = rank_.slices_.job.onward(rules(effect.slice), rank_.self_);
  post(Topic::kContribution, to, effect.slice, effect.step,
       bytes_.samples == 0 ? comm::Payload{} : bytes_.payload, bytes_.rider);
}

void SliceDriver::Performer::operator()(const protocol::Return& effect) const {
  rank_.slices_.job.for_each_returned_to(rules(effect.slice), rank_.self_, [&](program::Rank to) {
    post(Topic::kResult, to, effect.slice, effect.step, bytes_.payload, bytes_.rider);
  });
}

void SliceDriver::Performer::operator()(const protocol::Answer& effect) const {
  post(Topic::kResult, effect.to, effect.slice, effect.step, bytes_.payload, {});
}

void SliceDriver::Performer::operator()(const protocol::TellSums& effect) const {
  rank_.post_sums({effect.lamb ? Topic::kLambSums : Topic::kSums, effect.slice}, effect.step,
                  rank_.program_.slice(effect.slice).needed, bytes_.sums);
}

void SliceDriver::Performer::operator()(const protocol::TellServers& effect) const {
  for (std::uint32_t i = 0; i < rank_.program_.ranks.size(); ++i) {
    const program::Rank to(i);
    if (rank_.program_.computes(to)) continue;
    rank_.link_.post(to, {Topic::kWholeSum, effect.variable}, effect.step, payload_of(bytes_.sums));
  }
}

void SliceDriver::Performer::operator()(const protocol::Ask& effect) const {
  rank_.link_.post(rules(effect.slice).owner, {Topic::kAsk, effect.slice}, effect.step,
                   bytes_.payload);
}

void SliceDriver::Performer::operator()(const protocol::SendRows& effect) const {
  rank_.link_.post(effect.to, {Topic::kRows, effect.slice}, effect.step, bytes_.payload);
}

void SliceDriver::Performer::operator()(const protocol::TakeRows& effect) const {
  rank_.slices_.fetcher.take(effect.slice, effect.step, bytes_.payload);
  rank_.tell(protocol::RowsArrived{effect.slice});
}

void SliceDriver::Performer::operator()(const protocol::Merge& effect) const {
  rank_.jobs_.push(effect.step, rank_.program_.slice(effect.slice).needed,
                   [&rank = rank_, effect] { rank.merge(effect); });
}

void SliceDriver::Performer::operator()(const protocol::Measure& effect) const {
  rank_.jobs_.push(effect.step, Seconds{},
                   [&rank = rank_, effect] { rank.measure(effect.slice, effect.step); });
}

void SliceDriver::Performer::operator()(const protocol::Update& effect) const {
  rank_.jobs_.push(effect.step, Seconds{},
                   [&rank = rank_, effect] { rank.update_slice(effect.slice, effect.step); });
}

void SliceDriver::Performer::operator()(const protocol::Install& effect) const {
  rank_.jobs_.push(effect.step, rank_.needed_[effect.variable.value],
                   [&rank = rank_, effect] { rank.install(effect.variable, effect.step); });
}

void SliceDriver::Performer::operator()(const protocol::GiveRows& effect) const {
  rank_.jobs_.push(effect.step, Seconds{}, [&rank = rank_, effect] {
    rank.give_rows(effect.slice, effect.to, effect.step);
  });
}

void SliceDriver::Performer::operator()(const protocol::Take& effect) const {
  rank_.take_result(effect.slice, effect.step, bytes_);
}

void SliceDriver::Performer::operator()(const protocol::Open& /*effect*/) const {
  rank_.signal_.notify();
}

void SliceDriver::Performer::operator()(const protocol::Agreed& /*effect*/) const {
  rank_.signal_.notify();
}

void SliceDriver::Performer::operator()(const protocol::NormKnown& /*effect*/) const {
  rank_.signal_.notify();
}

namespace {

EventBytes event_bytes(CombinedSlice combined) {
  return {combined.samples, std::move(combined.payload), std::move(combined.rider),
          std::move(combined.sums)};
}

}  // namespace

void SliceDriver::merge(const protocol::Merge& effect) {
  const program::SliceId slice = effect.slice;
  const std::uint64_t step = effect.step;
  const Seconds start = trace_.enabled() ? trace_.now() : Seconds{};
  const EventBytes bytes = event_bytes(slices_.owner.merge(slice, step, effect.from));
  if (trace_.enabled()) {
    trace_.add(program::Activity::kMerge, program::StreamKind::kTransfer, step, name_of(slice),
               program::bytes_of(program_.slice(slice)), start,
               program::SliceHop{slice, self_, false});
  }
  put_own_parts(slice, step, /*lamb=*/false, bytes.sums);
  tell(protocol::Merged{slice}, bytes);
}

void SliceDriver::measure(program::SliceId slice, std::uint64_t step) {
  EventBytes bytes;
  bytes.sums = slices_.owner.measure(slice, step);
  put_own_parts(slice, step, /*lamb=*/true, bytes.sums);
  tell(protocol::Measured{slice}, bytes);
}

void SliceDriver::update_slice(program::SliceId slice, std::uint64_t step) {
  const Seconds start = trace_.enabled() ? trace_.now() : Seconds{};
  const EventBytes bytes = event_bytes(slices_.owner.update(slice, step));
  if (trace_.enabled()) {
    trace_.add(program::Activity::kUpdate, program::StreamKind::kTransfer, step, name_of(slice),
               program::bytes_of(program_.slice(slice)), start);
  }
  tell(protocol::Updated{slice}, bytes);
}

void SliceDriver::install(ir::VariableId variable, std::uint64_t step) {
  const Seconds start = trace_.enabled() ? trace_.now() : Seconds{};
  slices_.variables.install(variable, step);
  if (trace_.enabled()) {
    trace_.add(program::Activity::kInstall, program::StreamKind::kTransfer, step,
               program_.graph->variable(variable).name, ir::bytes_of(*program_.graph, variable),
               start);
  }
  tell(protocol::Installed{variable});
}

void SliceDriver::give_rows(program::SliceId slice, program::Rank to, std::uint64_t step) {
  EventBytes bytes;
  bytes.payload = slices_.owner.give_rows(slice, to, step);
  tell(protocol::RowsGiven{to, slice, step}, bytes);
}

void SliceDriver::take_result(program::SliceId slice, std::uint64_t step, const EventBytes& bytes) {
  Rider said = decode_rider(bytes.rider);
  news_.take_sums(slice, step, std::move(said.sums));
  bool goes_in = false;
  {
    const MutexLock lock(signal_);
    AD_CHECK(protocol_.expects(slice, step))
        << "a result of slice " << slice << " is of step " << step << ", which is not its turn";
    goes_in = protocol_.may_go_in(slice, step);
  }
  slices_.variables.take(slice, step, bytes.samples, bytes.payload, std::move(said.news), goes_in);
  tell(protocol::Taken{slice, step});
}

}  // namespace autodist::exec
