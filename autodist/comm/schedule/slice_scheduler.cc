#include "autodist/comm/schedule/slice_scheduler.h"

#include <algorithm>

#include "autodist/base/check.h"

namespace autodist::comm {

std::uint32_t SliceScheduler::new_entry(const Transfer& transfer) {
  if (unused_ == kNone) {
    entries_.push_back({transfer});
    return static_cast<std::uint32_t>(entries_.size() - 1);
  }
  const std::uint32_t index = unused_;
  unused_ = entries_[index].next;
  entries_[index] = {transfer};
  return index;
}

void SliceScheduler::add(const Transfer& transfer) {
  AD_CHECK(transfer.size >= Bytes{0}) << transfer.size.value;
  const std::uint32_t index = new_entry(transfer);
  const bool goes_on = latest_ != kNone && entries_[latest_].transfer.step == transfer.step &&
                       entries_[latest_].transfer.needed == transfer.needed;
  if (goes_on) {
    entries_[latest_].next = index;
  } else {
    runs_.push_back({transfer.step, transfer.needed.value, arrivals_++, index});
    std::push_heap(runs_.begin(), runs_.end());
  }
  latest_ = index;
}

const Transfer* SliceScheduler::ready() const {
  if (runs_.empty()) return nullptr;
  const Transfer& first = entries_[runs_.front().first].transfer;
  // An idle link takes any slice: a window smaller than a slice must slow a link down, not stop it.
  const bool fits = in_flight_ == Bytes{0} || in_flight_ + first.size <= window_;
  return fits ? &first : nullptr;
}

std::optional<Transfer> SliceScheduler::next() {
  const Transfer* first = ready();
  if (first == nullptr) return std::nullopt;
  const Transfer transfer = *first;
  const std::uint32_t index = runs_.front().first;
  Entry& entry = entries_[index];
  if (entry.next != kNone) {
    runs_.front().first = entry.next;
  } else {
    std::pop_heap(runs_.begin(), runs_.end());
    runs_.pop_back();
    if (latest_ == index) latest_ = kNone;
  }
  entry.next = unused_;
  unused_ = index;
  in_flight_ += transfer.size;
  return transfer;
}

void SliceScheduler::acknowledge(Bytes size) {
  AD_CHECK(size <= in_flight_) << "acknowledged " << size.value << " bytes of " << in_flight_.value;
  in_flight_ -= size;
}

}  // namespace autodist::comm
