// The synchroniser's norms: what a rank knows of its slices' sums of squares is told to all, and
// what waits for a total goes on. Flags of gradients that are not finite travel as norms, too.

#include <cstring>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/synchroniser.h"

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

comm::SliceNumber Synchroniser::lamb_number(ir::SliceId slice) const {
  return static_cast<comm::SliceNumber>(program_.slices.size() + slice.value);
}
comm::SliceNumber Synchroniser::whole_number(ir::VariableId variable) const {
  return static_cast<comm::SliceNumber>(2 * program_.slices.size() + variable.value);
}

comm::SliceNumber Synchroniser::flag_number() const {
  return static_cast<comm::SliceNumber>(2 * program_.slices.size() + program_.variables.size());
}

void Synchroniser::send_sums(ir::SliceId slice, std::uint64_t step, bool lamb,
                             const std::vector<SquaredSums>& sums) {
  // Members that each combine a slice all have its sums: one of them tells.
  if (program_.slice(slice).owner != self_) return;
  const comm::Payload payload = payload_of(sums);
  const comm::SliceNumber number = lamb ? lamb_number(slice) : slice.value;
  for (std::size_t i = 1; i < program_.ranks.size(); ++i) {
    const auto to = static_cast<comm::RankNumber>((self_.value + i) % program_.ranks.size());
    exchange_->post(
        to, {comm::FrameKind::kNorm, step, number, 0, program_.slice(slice).needed, payload});
  }
  take_sums(step, lamb ? plan_.lamb[slice.value] : plan_.clipped[slice.value], sums);
}

void Synchroniser::take_norm_frame(const comm::Frame& frame) {
  const auto slices = static_cast<comm::SliceNumber>(program_.slices.size());
  const comm::SliceNumber number = frame.header.slice;
  const std::uint64_t step = frame.header.step;
  if (number < 2 * slices) {
    const bool lamb = number >= slices;
    const auto& parts = lamb ? plan_.lamb[number - slices] : plan_.clipped[number];
    take_sums(step, parts, sums_of(frame, parts.size()));
    return;
  }
  if (plan_.flags && number == flag_number()) {
    const auto& replica = program_.ranks.at(frame.header.from).replica;
    AD_CHECK(replica) << "a flag of rank " << frame.header.from << ", which only serves";
    return add_part(step, {*plan_.flags, *replica}, sums_of(frame, 1).front());
  }
  AD_CHECK(number < 2 * slices + program_.variables.size()) << "norm number " << number;
  const auto& part = plan_.whole[number - 2 * slices];
  AD_CHECK(part) << "variable " << number - 2 * slices << " has no norm of its own";
  add_part(step, *part, sums_of(frame, 1).front());
}

void Synchroniser::take_sums(std::uint64_t step, const std::vector<std::optional<NormPart>>& parts,
                             const std::vector<SquaredSums>& sums) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i]) add_part(step, *parts[i], sums[i]);
  }
}

void Synchroniser::add_part(std::uint64_t step, NormPart part, SquaredSums sums) {
  if (!norms_.add(step, part, sums)) return;
  if (part.norm == plan_.flags) scaler_.decide(step, norms_.total(step, part.norm)->first > 0);
  variables_->norm_known(step, part.norm);
  jobs_->push(step, Seconds{}, [this, step, part] {
    for (const ir::SliceId slice : owner_->norm_known(step, part.norm)) push_merge(slice, step + 1);
  });
}

void Synchroniser::raise_flag(std::uint64_t step, bool overflow) {
  SquaredSums flag;
  flag.first = overflow ? 1 : 0;
  for (std::size_t i = 1; i < program_.ranks.size(); ++i) {
    const auto to = static_cast<comm::RankNumber>((self_.value + i) % program_.ranks.size());
    exchange_->post(
        to, {comm::FrameKind::kNorm, step, flag_number(), 0, Seconds{}, payload_of({flag})});
  }
  add_part(step, {*plan_.flags, *program_.ranks[self_.value].replica}, flag);
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

// Every computing rank has the same averaged gradient and adds its part by itself; the first of
// them tells those that only serve.
void Synchroniser::report_whole_norm(ir::VariableId variable, std::uint64_t step) {
  const auto& part = plan_.whole[variable.value];
  if (!part) return;
  SquaredSums sums;
  torch::Tensor gradient = whole_[variable.value].gradient;
  if (gradient.defined()) {
    if (gradient.is_sparse()) gradient = gradient._values().contiguous();
    sums.first = sum_of_squares(static_cast<const std::byte*>(gradient.data_ptr()),
                                dtype_of(gradient.scalar_type()), gradient.numel());
  }
  std::uint32_t first = 0;
  while (!program_.computes(ir::Rank(first))) ++first;
  for (std::uint32_t rank = 0; first == self_.value && rank < program_.ranks.size(); ++rank) {
    if (program_.computes(ir::Rank(rank))) continue;
    exchange_->post(rank, {comm::FrameKind::kNorm, step, whole_number(variable), 0, Seconds{},
                           payload_of({sums})});
  }
  add_part(step, *part, sums);
}

}  // namespace autodist::exec
