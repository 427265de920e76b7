// What the protocol asks for, on bytes. Messages are posted to the exchange; work goes to the
// rank's job queue, most urgent first; sim/effects.cc has the table of what runs where and what it
// costs.

#include <utility>

#include "autodist/base/check.h"
#include "autodist/exec/rider.h"
#include "autodist/exec/slice_driver.h"

namespace autodist::exec {

class SliceDriver::Performer {
 public:
  Performer(SliceDriver& rank, const EventBytes& bytes) : rank_(rank), bytes_(bytes) {}

  void operator()(const protocol::Contribute& effect) const {
    rank_.slices_.job.for_each_contributed_to(
        rules(effect.slice), rank_.self_, [&](program::Rank to) {
          post(Topic::kContribution, to, effect.slice, effect.step, bytes_.payload, bytes_.rider);
        });
  }
  void operator()(const protocol::HandOn& effect) const {
    const program::Rank to = rank_.slices_.job.onward(rules(effect.slice), rank_.self_);
    post(Topic::kContribution, to, effect.slice, effect.step,
         bytes_.samples == 0 ? comm::Payload{} : bytes_.payload, bytes_.rider);
  }
  void operator()(const protocol::Return& effect) const {
    rank_.slices_.job.for_each_returned_to(rules(effect.slice), rank_.self_, [&](program::Rank to) {
      post(Topic::kResult, to, effect.slice, effect.step, bytes_.payload, bytes_.rider);
    });
  }
  void operator()(const protocol::Answer& effect) const {
    post(Topic::kResult, effect.to, effect.slice, effect.step, bytes_.payload, bytes_.rider);
  }
  void operator()(const protocol::TellSums& effect) const {
    rank_.post_sums({effect.lamb ? Topic::kLambSums : Topic::kSums, effect.slice}, effect.step,
                    rank_.program_.slice(effect.slice).needed, bytes_.sums);
  }
  void operator()(const protocol::TellServers& effect) const {
    for (std::uint32_t i = 0; i < rank_.program_.ranks.size(); ++i) {
      const program::Rank to(i);
      if (rank_.program_.computes(to)) continue;
      rank_.link_.post(to, {Topic::kWholeSum, effect.variable}, effect.step,
                       payload_of(bytes_.sums));
    }
  }
  void operator()(const protocol::Ask& effect) const {
    rank_.link_.post(rules(effect.slice).owner, {Topic::kAsk, effect.slice}, effect.step,
                     bytes_.payload);
  }
  void operator()(const protocol::SendRows& effect) const {
    // Before all else of its step, which waits for it.
    rank_.link_.post(
        effect.to,
        {Subject(effect.with_result ? Topic::kResultAndRows : Topic::kRows).kind(), effect.step,
         effect.slice.value, bytes_.samples, Seconds{}, bytes_.payload, bytes_.rider});
  }
  void operator()(const protocol::TakeRows& effect) const {
    rank_.slices_.fetcher.take(effect.slice, effect.step, bytes_.payload);
    rank_.tell(protocol::RowsArrived{effect.slice});
  }

  void operator()(const protocol::Merge& effect) const {
    rank_.jobs_.push(effect.step, rank_.program_.slice(effect.slice).needed,
                     [&rank = rank_, effect] { rank.merge(effect); });
  }
  void operator()(const protocol::Measure& effect) const {
    rank_.jobs_.push(effect.step, Seconds{},
                     [&rank = rank_, effect] { rank.measure(effect.slice, effect.step); });
  }
  void operator()(const protocol::Update& effect) const {
    rank_.jobs_.push(effect.step, Seconds{},
                     [&rank = rank_, effect] { rank.update_slice(effect.slice, effect.step); });
  }
  void operator()(const protocol::Install& effect) const {
    rank_.jobs_.push(effect.step, rank_.needed_[effect.variable.value],
                     [&rank = rank_, effect] { rank.install(effect.variable, effect.step); });
  }
  void operator()(const protocol::GiveRows& effect) const {
    EventBytes result;
    if (effect.with_result) result = {bytes_.samples, {}, bytes_.rider, {}};
    rank_.jobs_.push(effect.step, Seconds{}, [&rank = rank_, effect, result = std::move(result)] {
      rank.give_rows(effect, result);
    });
  }

  void operator()(const protocol::Take& effect) const {
    rank_.take_result(effect.slice, effect.step, bytes_);
  }
  // Gates and updates wait for these.
  void operator()(const protocol::Open& /*effect*/) const { rank_.signal_.notify(); }
  void operator()(const protocol::Agreed& /*effect*/) const { rank_.signal_.notify(); }
  void operator()(const protocol::NormKnown& /*effect*/) const { rank_.signal_.notify(); }

 private:
  [[nodiscard]] const protocol::Job::Slice& rules(program::SliceId slice) const {
    return rank_.slices_.job.slice(slice);
  }
  void post(Topic topic, program::Rank to, program::SliceId slice, std::uint64_t step,
            const comm::Payload& payload, const std::string& rider) const {
    rank_.link_.post(to, {Subject(topic).kind(), step, slice.value, bytes_.samples,
                          rank_.program_.slice(slice).needed, payload, rider});
  }

  SliceDriver& rank_;
  const EventBytes& bytes_;
};

void SliceDriver::tell(const protocol::Event& event, const EventBytes& bytes) {
  protocol::Effects effects;
  {
    const MutexLock lock(signal_);
    protocol_.on(event, effects);
    // Under the lock, so that who learns from the protocol that all ranks agree can ask the scaler.
    for (std::size_t i = 0; i < effects.size(); ++i) {
      const auto* agreed = std::get_if<protocol::Agreed>(&effects[i]);
      if (agreed != nullptr) slices_.scaler.decide(agreed->step, agreed->overflow);
    }
  }
  const Performer perform(*this, bytes);
  for (std::size_t i = 0; i < effects.size(); ++i) std::visit(perform, effects[i]);
}

void SliceDriver::merge(const protocol::Merge& effect) {
  const program::SliceId slice = effect.slice;
  const std::uint64_t step = effect.step;
  const Seconds start = trace_.start_of_row();
  const EventBytes bytes = slices_.owner.merge(slice, step, effect.from);
  trace_.add(program::Activity::kMerge, program::StreamKind::kTransfer, step, name_of(slice),
             program::bytes_of(program_.slice(slice)), start,
             program::SliceHop{slice, self_, false});
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
  const Seconds start = trace_.start_of_row();
  const EventBytes bytes = slices_.owner.update(slice, step);
  trace_.add(program::Activity::kUpdate, program::StreamKind::kTransfer, step, name_of(slice),
             program::bytes_of(program_.slice(slice)), start);
  tell(protocol::Updated{slice}, bytes);
}

void SliceDriver::install(ir::VariableId variable, std::uint64_t step) {
  const Seconds start = trace_.start_of_row();
  slices_.variables.install(variable, step);
  trace_.add(program::Activity::kInstall, program::StreamKind::kTransfer, step,
             program_.graph->variable(variable).name, ir::bytes_of(*program_.graph, variable),
             start);
  tell(protocol::Installed{variable});
}

void SliceDriver::give_rows(const protocol::GiveRows& effect, EventBytes bytes) {
  bytes.payload = slices_.owner.give_rows(effect.slice, effect.to, effect.step);
  tell(protocol::RowsGiven{effect.to, effect.slice, effect.step, effect.with_result}, bytes);
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
