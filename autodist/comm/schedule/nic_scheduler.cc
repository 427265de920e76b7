#include "autodist/comm/schedule/nic_scheduler.h"

#include "autodist/base/check.h"

namespace autodist::comm {

NicScheduler::NicScheduler(std::uint32_t self, std::uint32_t ranks, Bytes window, Bytes budget)
    : self_(self), ranks_(ranks), window_(window), budget_(budget) {
  AD_CHECK(self < ranks) << self << " of " << ranks;
}

NicScheduler::Distance NicScheduler::distance(std::uint32_t rank) const {
  AD_CHECK(rank < ranks_ && rank != self_) << rank << " of " << ranks_ << " at " << self_;
  return rank > self_ ? rank - self_ : rank + (ranks_ - self_);
}

void NicScheduler::list(Distance distance, Destination& destination) {
  if (destination.listed) ready_.erase(*destination.listed);
  destination.listed.reset();
  if (const Transfer* first = destination.queue.ready()) {
    destination.listed = Urgency{first->step, first->needed.value, distance};
    ready_.insert(*destination.listed);
  }
}

void NicScheduler::add(std::uint32_t to, const Transfer& transfer) {
  const Distance at = distance(to);
  Destination& destination =
      destinations_.try_emplace(at, Destination{SliceScheduler(window_), {}}).first->second;
  destination.queue.add(transfer);
  ++waiting_;
  list(at, destination);
}

std::optional<Departure> NicScheduler::next() {
  if (ready_.empty()) return std::nullopt;
  const Distance at = std::get<2>(*ready_.begin());
  Destination& destination = destinations_.at(at);
  const Bytes size = destination.queue.ready()->size;
  const bool fits = in_flight_ == Bytes{0} || in_flight_ + size <= budget_;
  if (!fits) return std::nullopt;
  const Transfer transfer = *destination.queue.next();
  in_flight_ += size;
  --waiting_;
  list(at, destination);
  return Departure{at < ranks_ - self_ ? self_ + at : at - (ranks_ - self_), transfer};
}

void NicScheduler::acknowledge(std::uint32_t from, Bytes size) {
  const auto found = destinations_.find(distance(from));
  AD_CHECK(found != destinations_.end()) << "nothing was sent to rank " << from;
  found->second.queue.acknowledge(size);
  in_flight_ -= size;
  list(found->first, found->second);
}

Bytes NicScheduler::in_flight(std::uint32_t to) const {
  const auto found = destinations_.find(distance(to));
  return found == destinations_.end() ? Bytes{0} : found->second.queue.in_flight();
}

}  // namespace autodist::comm
