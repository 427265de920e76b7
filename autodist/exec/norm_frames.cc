// The synchroniser's norms: what a rank knows of its slices' sums of squares is told to all, and
// what waits for a total goes on. Flags of gradients that are not finite travel as norms, too.

#include <cstring>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/effects.h"

namespace autodist::exec {
namespace {

comm::Payload payload_of(const std::vector<SquaredSums>& sums) {
  auto keep = std::make_shared<std::vector<SquaredSums>>(sums);
  const auto* data = reinterpret_cast<const std::byte*>(keep->data());  // NOLINT: two doubles each
  const std::size_t size = keep->size() * sizeof(SquaredSums);
  return {data, size, std::move(keep)};
}

std::vector<SquaredSums> sums_of(const comm::Frame& frame, std::size_t expected) {
  AD_CHECK(frame.payload.size == expected * sizeof(SquaredSums))
      << "norm " << frame.header.slice << " from rank " << frame.header.from << " has "
      << frame.payload.size << " bytes";
  std::vector<SquaredSums> sums(expected);
  if (expected != 0) std::memcpy(sums.data(), frame.payload.data, frame.payload.size);
  return sums;
}

}  // namespace

comm::SliceNumber Synchroniser::lamb_number(program::SliceId slice) const {
  return static_cast<comm::SliceNumber>(program_.slices.size() + slice.value);
}
comm::SliceNumber Synchroniser::whole_number(ir::VariableId variable) const {
  return static_cast<comm::SliceNumber>(2 * program_.slices.size() + variable.value);
}

comm::SliceNumber Synchroniser::flag_number() const {
  return static_cast<comm::SliceNumber>(2 * program_.slices.size() + program_.variables.size());
}

void Synchroniser::post_sums(comm::SliceNumber number, std::uint64_t step, Seconds needed,
                             const std::vector<SquaredSums>& sums) {
  const comm::Payload payload = payload_of(sums);
  for (std::size_t i = 1; i < program_.ranks.size(); ++i) {
    const auto to = static_cast<comm::RankNumber>((self_.value + i) % program_.ranks.size());
    exchange_->post(to, {comm::FrameKind::kNorm, step, number, 0, needed, payload});
  }
}

void Synchroniser::post_sums_to_servers(comm::SliceNumber number, std::uint64_t step,
                                        const std::vector<SquaredSums>& sums) {
  for (std::uint32_t rank = 0; rank < program_.ranks.size(); ++rank) {
    if (program_.computes(program::Rank(rank))) continue;
    exchange_->post(rank, {comm::FrameKind::kNorm, step, number, 0, Seconds{}, payload_of(sums)});
  }
}

void Synchroniser::take_norm_frame(const comm::Frame& frame) {
  const auto slices = static_cast<comm::SliceNumber>(program_.slices.size());
  const comm::SliceNumber number = frame.header.slice;
  const std::uint64_t step = frame.header.step;
  const program::Rank from(frame.header.from);
  if (number < 2 * slices) {
    const bool lamb = number >= slices;
    const program::SliceId slice(lamb ? number - slices : number);
    put_parts(slice, step, lamb, sums_of(frame, plan_.clipped[slice.value].size()));
    return tell(protocol::SumsArrived{slice, step, lamb});
  }
  if (job_.norms.flags && number == flag_number()) {
    AD_CHECK(program_.computes(from)) << "a flag of rank " << from << ", which only serves";
    return tell(protocol::Flagged{from, step, sums_of(frame, 1).front().first == 0});
  }
  AD_CHECK(number < 2 * slices + program_.variables.size()) << "norm number " << number;
  const ir::VariableId variable(number - 2 * slices);
  const auto& part = plan_.whole[variable.value];
  AD_CHECK(part) << "variable " << variable << " has no norm of its own";
  norms_.put(step, *part, sums_of(frame, 1).front());
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
  post_sums(flag_number(), step, Seconds{}, {flag});
  tell(protocol::Flagged{self_, step, !overflow});
}

ir::LossScale Synchroniser::await_scale(std::uint64_t step) {
  Signal::Lock lock = signal_.lock();
  signal_.wait(
      lock, options_.wait_limit, [&] { return step == 0 || scaler_.is_decided(step - 1); },
      [&] {
        return fmt::format(
            "step {}: not all ranks have said whether their gradients of the step "
            "before are finite.",
            step);
      });
  return scaler_.scale();
}

// Every computing rank has the same averaged gradient, and adds its part of the norm by itself.
void Synchroniser::averaged(ir::VariableId variable, std::uint64_t step) {
  EventBytes bytes;
  if (const auto& part = plan_.whole[variable.value]) {
    SquaredSums sums;
    torch::Tensor gradient = whole_[variable.value].gradient;
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
