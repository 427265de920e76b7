#include "autodist/comm/schedule/slice_scheduler.h"

#include "autodist/base/check.h"

namespace autodist::comm {

void SliceScheduler::add(const Transfer& transfer) {
  AD_CHECK(transfer.size >= Bytes{0}) << transfer.size.value;
  waiting_.push({transfer, arrivals_++});
}

const Transfer* SliceScheduler::ready() const {
  if (waiting_.empty()) return nullptr;
  const Transfer& first = waiting_.top().transfer;
  // An idle link takes any slice: a window smaller than a slice must slow a link down, not stop it.
  const bool fits = in_flight_ == Bytes{0} || in_flight_ + first.size <= window_;
  return fits ? &first : nullptr;
}

std::optional<Transfer> SliceScheduler::next() {
  const Transfer* first = ready();
  if (first == nullptr) return std::nullopt;
  const Transfer transfer = *first;
  waiting_.pop();
  in_flight_ += transfer.size;
  return transfer;
}

void SliceScheduler::acknowledge(Bytes size) {
  AD_CHECK(size <= in_flight_) << "acknowledged " << size.value << " bytes of " << in_flight_.value;
  in_flight_ -= size;
}

}  // namespace autodist::comm
