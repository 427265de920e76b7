// The driver's norms: what a rank knows of its slices' sums of squares is told to all, and
// what waits for a total goes on.

#include "autodist/base/check.h"
#include "autodist/exec/slice_driver.h"

namespace autodist::exec {

void SliceDriver::post_sums(Subject subject, std::uint64_t step, Seconds needed,
                            const std::vector<SquaredSums>& sums) {
  const comm::Payload payload = payload_of(sums);
  for (std::size_t i = 1; i < program_.ranks.size(); ++i) {
    const program::Rank to((self_.value + i) % program_.ranks.size());
    link_.post(to, subject, step, payload, needed);
  }
}

void SliceDriver::take_sums(program::SliceId slice, bool lamb, const comm::Frame& frame) {
  AD_CHECK(slice.value < program_.slices.size()) << "sums of slice " << slice;
  const std::uint64_t step = frame.header.step;
  put_parts(slice, step, lamb, sums_of(frame, slices_.plan.clipped[slice.value].size()));
  tell(protocol::SumsArrived{slice, step, lamb});
}

void SliceDriver::take_flag(const comm::Frame& frame) {
  const program::Rank from(frame.header.from);
  AD_CHECK(slices_.job.norms.flags && program_.computes(from)) << "a flag of rank " << from;
  tell(protocol::Flagged{from, frame.header.step, sums_of(frame, 1).front().first == 0});
}

void SliceDriver::take_whole_sum(ir::VariableId variable, const comm::Frame& frame) {
  AD_CHECK(variable.value < slices_.plan.whole.size() && slices_.plan.whole[variable.value])
      << "variable " << variable << " has no norm of its own";
  const std::uint64_t step = frame.header.step;
  slices_.norms.put(step, *slices_.plan.whole[variable.value], sums_of(frame, 1).front());
  tell(protocol::WholeSumArrived{variable, step});
}

void SliceDriver::put_parts(program::SliceId slice, std::uint64_t step, bool lamb,
                            const std::vector<SquaredSums>& sums) {
  const auto& parts = lamb ? slices_.plan.lamb[slice.value] : slices_.plan.clipped[slice.value];
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (parts[i]) slices_.norms.put(step, *parts[i], sums[i]);
  }
}

// Members that each combine a slice all have its sums: the owner tells, and keeps them.
void SliceDriver::put_own_parts(program::SliceId slice, std::uint64_t step, bool lamb,
                                const std::vector<SquaredSums>& sums) {
  if (program_.slice(slice).owner == self_) put_parts(slice, step, lamb, sums);
}

void SliceDriver::raise_flag(std::uint64_t step, bool overflow) {
  SquaredSums flag;
  flag.first = overflow ? 1 : 0;
  post_sums(Topic::kFlag, step, Seconds{}, {flag});
  tell(protocol::Flagged{self_, step, !overflow});
}

ir::LossScale SliceDriver::await_scale(std::uint64_t step) {
  {
    const MutexLock lock(signal_);
    signal_.wait(
        limit_,
        [&]() AD_REQUIRES(signal_) { return step == 0 || slices_.scaler.is_decided(step - 1); },
        [&] {
          return fmt::format(
              "step {}: not all ranks have said whether their gradients of the step "
              "before are finite.",
              step);
        });
  }
  return slices_.scaler.scale();
}

}  // namespace autodist::exec
