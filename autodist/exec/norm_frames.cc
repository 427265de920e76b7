// The synchroniser's norms: what a rank knows of its slices' sums of squares is told to all, and
// what waits for a total goes on. Flags of gradients that are not finite travel as norms, too.

#include <utility>

#include "autodist/base/check.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/effects.h"

namespace autodist::exec {
void Synchroniser::post_sums(Subject subject, std::uint64_t step, Seconds needed,
                             const std::vector<SquaredSums>& sums) {
  const comm::Payload payload = payload_of(sums);
  for (std::size_t i = 1; i < program_.ranks.size(); ++i) {
    const auto to = static_cast<comm::RankNumber>((self_.value + i) % program_.ranks.size());
    exchange_->post(to, {subject.kind(), step, subject.id, 0, needed, payload});
  }
}

void Synchroniser::take_sums(program::SliceId slice, bool lamb, const comm::Frame& frame) {
  AD_CHECK(slice.value < program_.slices.size()) << "sums of slice " << slice;
  const std::uint64_t step = frame.header.step;
  put_parts(slice, step, lamb, sums_of(frame, plan_.clipped[slice.value].size()));
  tell(protocol::SumsArrived{slice, step, lamb});
}

void Synchroniser::take_flag(const comm::Frame& frame) {
  const program::Rank from(frame.header.from);
  AD_CHECK(job_.norms.flags && program_.computes(from)) << "a flag of rank " << from;
  tell(protocol::Flagged{from, frame.header.step, sums_of(frame, 1).front().first == 0});
}

void Synchroniser::take_whole_sum(ir::VariableId variable, const comm::Frame& frame) {
  AD_CHECK(variable.value < plan_.whole.size() && plan_.whole[variable.value])
      << "variable " << variable << " has no norm of its own";
  const std::uint64_t step = frame.header.step;
  norms_.put(step, *plan_.whole[variable.value], sums_of(frame, 1).front());
  tell(protocol::WholeSumArrived{variable, step});
}

void Synchroniser::put_parts(program::SliceId slice, std::uint64_t step, bool lamb,
                             const std::vector<SquaredSums>& sums) {
  const auto& parts = lamb ? plan_.lamb[slice.value] : plan_.clipped[slice.value];
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (parts[i]) norms_.put(step, *parts[i], sums[i]);
  }
}

// Members that each combine a slice all have its sums: the owner tells, and keeps them.
void Synchroniser::put_own_parts(program::SliceId slice, std::uint64_t step, bool lamb,
                                 const std::vector<SquaredSums>& sums) {
  if (program_.slice(slice).owner == self_) put_parts(slice, step, lamb, sums);
}

void Synchroniser::raise_flag(std::uint64_t step, bool overflow) {
  SquaredSums flag;
  flag.first = overflow ? 1 : 0;
  post_sums(Topic::kFlag, step, Seconds{}, {flag});
  tell(protocol::Flagged{self_, step, !overflow});
}

ir::LossScale Synchroniser::await_scale(std::uint64_t step) {
  {
    const MutexLock lock(signal_);
    signal_.wait(
        options_.wait_limit,
        [&]() AD_REQUIRES(signal_) { return step == 0 || scaler_.is_decided(step - 1); },
        [&] {
          return fmt::format(
              "step {}: not all ranks have said whether their gradients of the step "
              "before are finite.",
              step);
        });
  }
  return scaler_.scale();
}

// Every computing rank has the same averaged gradient, and adds its part of the norm by itself.
void Synchroniser::averaged(ir::VariableId variable, std::uint64_t step) {
  EventBytes bytes;
  if (const auto& part = plan_.whole[variable.value]) {
    SquaredSums sums;
    torch::Tensor gradient;
    {
      const MutexLock lock(signal_);
      gradient = whole_[variable.value].gradient;
    }
    if (gradient.defined()) {
      if (gradient.is_sparse()) gradient = gradient._values().contiguous();
      sums.first = sum_of_squares(static_cast<const std::byte*>(gradient.data_ptr()),
                                  dtype_of(gradient.scalar_type()), gradient.numel());
    }
    norms_.put(step, *part, sums);
    bytes.sums = {sums};
  }
  tell(protocol::Averaged{variable, step}, bytes);
  signal_.notify();
}

}  // namespace autodist::exec
