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

NicScheduler::Destination* NicScheduler::find(Distance distance) const {
  return distance < destinations_.size() ? destinations_[distance].get() : nullptr;
}

NicScheduler::Destination& NicScheduler::find_or_make(Distance distance) {
  if (distance >= destinations_.size()) destinations_.resize(distance + 1);
  std::unique_ptr<Destination>& destination = destinations_[distance];
  if (!destination) {
    destination = std::make_unique<Destination>(window_);
    destination->distance = distance;
  }
  return *destination;
}

void NicScheduler::place(Destination* destination, std::uint32_t at) {
  ready_[at] = destination;
  destination->place = at;
}

void NicScheduler::raise(Destination* destination, std::uint32_t at) {
  while (at > 0) {
    const std::uint32_t parent = (at - 1) / 2;
    if (!(destination->urgency < ready_[parent]->urgency)) break;
    place(ready_[parent], at);
    at = parent;
  }
  place(destination, at);
}

void NicScheduler::sink(Destination* destination, std::uint32_t at) {
  const auto size = static_cast<std::uint32_t>(ready_.size());
  for (std::uint32_t child = 2 * at + 1; child < size; child = 2 * at + 1) {
    if (child + 1 < size && ready_[child + 1]->urgency < ready_[child]->urgency) ++child;
    if (!(ready_[child]->urgency < destination->urgency)) break;
    place(ready_[child], at);
    at = child;
  }
  place(destination, at);
}

void NicScheduler::list(Destination& destination) {
  const Transfer* first = destination.queue.ready();
  const std::uint32_t at = destination.place;
  if (first == nullptr) {
    if (at == kNotListed) return;
    destination.place = kNotListed;
    Destination* last = ready_.back();
    ready_.pop_back();
    if (last == &destination) return;
    sink(last, at);
    raise(last, last->place);
    return;
  }
  destination.urgency = Urgency{first->step, first->needed.value, destination.distance};
  if (at == kNotListed) {
    ready_.push_back(&destination);
    raise(&destination, static_cast<std::uint32_t>(ready_.size() - 1));
  } else {
    sink(&destination, at);
    raise(&destination, destination.place);
  }
}

void NicScheduler::add(std::uint32_t to, const Transfer& transfer) {
  Destination& destination = find_or_make(distance(to));
  destination.queue.add(transfer);
  list(destination);
}

std::optional<Departure> NicScheduler::next() {
  if (ready_.empty()) return std::nullopt;
  Destination& destination = *ready_.front();
  const Bytes size = destination.queue.ready()->size;
  const bool fits = in_flight_ == Bytes{0} || in_flight_ + size <= budget_;
  if (!fits) return std::nullopt;
  const Transfer transfer = *destination.queue.next();
  in_flight_ += size;
  list(destination);
  const Distance at = destination.distance;
  return Departure{at < ranks_ - self_ ? self_ + at : at - (ranks_ - self_), transfer};
}

void NicScheduler::acknowledge(std::uint32_t from, Bytes size) {
  Destination* destination = find(distance(from));
  AD_CHECK(destination != nullptr) << "nothing was sent to rank " << from;
  destination->queue.acknowledge(size);
  in_flight_ -= size;
  list(*destination);
}

}  // namespace autodist::comm
