#include "autodist/comm/outbox.h"

#include <algorithm>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/comm/admission.h"
#include "autodist/comm/assembly.h"

namespace autodist::comm {

Outbox::Outbox(RankNumber self, RankNumber size, const ExchangeOptions& options, Seconds patience)
    : self_(self),
      generation_(options.generation),
      patience_(patience),
      piece_(options.piece),
      nic_(self, size, options.window, options.nic_budget),
      newest_step_(size, 0) {}

void Outbox::post(RankNumber to, Outgoing outgoing, Seconds now) {
  AD_CHECK(to < newest_step_.size() && to != self_) << "message posted to rank " << to;
  AD_CHECK(is_message(outgoing.kind)) << name_of(outgoing.kind);
  AD_CHECK(outgoing.id < kIdLimit) << "id " << outgoing.id;
  const std::uint64_t step = outgoing.step;
  const auto oldest = live_.lower_bound(Key{to, 0, FrameKind{}, 0, 0});
  const bool others = oldest != live_.end() && std::get<0>(oldest->first) == to;
  AD_CHECK(step + kStepsApart > newest_step_[to] &&
           (!others || std::get<1>(oldest->first) + kStepsApart > step))
      << "step " << step << " is too far from the others";

  const Payload whole = std::move(outgoing.payload);
  const std::uint16_t pieces = pieces_of(whole.size, piece_);
  const auto slice = std::make_shared<Slice>(Slice{pieces, pieces, whole.size});
  const auto size = pieces == 1 ? whole.size : static_cast<std::size_t>(piece_.value);
  for (std::uint16_t i = 0; i < pieces; ++i) {
    const std::size_t begin = i * size;
    outgoing.payload = {whole.data + begin, std::min(size, whole.size - begin), whole.keep};
    post_piece({to, step, outgoing.kind, outgoing.id, i}, outgoing, slice, now);
    outgoing.rider.clear();  // the first piece has it
  }
  newest_step_[to] = std::max(newest_step_[to], step);
}

void Outbox::post_piece(const Key& key, Outgoing outgoing, std::shared_ptr<Slice> slice,
                        Seconds now) {
  const RankNumber to = std::get<0>(key);
  if (unused_.empty()) {
    unused_.emplace_back(items_.size());
    items_.emplace_back();
  }
  const TransferId id = unused_.back();
  AD_CHECK(live_.emplace(key, id).second)
      << name_of(outgoing.kind) << ", id " << outgoing.id << ", step " << outgoing.step
      << " posted twice to rank " << to;
  unused_.pop_back();
  nic_.add(to, {id, Bytes{static_cast<std::int64_t>(outgoing.payload.size)}, outgoing.step,
                outgoing.needed});
  items_[id.value] = {key, std::move(outgoing), std::move(slice), false, false, {}, patience_, now,
                      {}};
}

Addressed Outbox::address(const Item& item) const {
  const Outgoing& out = item.outgoing;
  return {std::get<0>(item.key),
          {{out.kind, generation_, out.step, out.id, self_, out.samples, std::get<4>(item.key),
            item.slice->pieces},
           out.payload,
           out.rider}};
}

std::optional<Addressed> Outbox::next(Seconds now) {
  const auto departure = nic_.next();
  if (!departure) return std::nullopt;
  Item& item = items_[departure->transfer.id.value];
  item.in_flight = true;
  item.left = now;
  item.due = now + item.patience;
  return address(item);
}

std::vector<Addressed> Outbox::overdue(Seconds now) {
  std::vector<Addressed> late;
  for (const auto& entry : live_) {
    Item& item = items_[entry.second.value];
    if (!item.in_flight || now < item.due) continue;
    item.patience = item.patience * 2;
    item.due = now + item.patience;
    item.left = now;
    item.again = true;
    late.push_back(address(item));
  }
  return late;
}

std::optional<Delivered> Outbox::acknowledge(RankNumber from, FrameKind kind, std::uint64_t step,
                                             MessageId id, std::uint16_t piece) {
  const auto found = live_.find(Key{from, step, kind, id, piece});
  if (found == live_.end()) return std::nullopt;
  Item& item = items_[found->second.value];
  if (!item.in_flight) return std::nullopt;  // nobody can have what has not left
  nic_.acknowledge(from, Bytes{static_cast<std::int64_t>(item.outgoing.payload.size)});
  const bool whole = --item.slice->missing == 0;
  Delivered delivered{std::move(item.outgoing.payload),
                      item.posted,
                      item.left,
                      item.again,
                      whole,
                      item.slice->bytes};
  item = {};
  unused_.push_back(found->second);
  live_.erase(found);
  return delivered;
}

std::size_t Outbox::pending(RankNumber rank) const {
  const auto first = live_.lower_bound(Key{rank, 0, FrameKind{}, 0, 0});
  const auto last = live_.lower_bound(Key{rank + 1, 0, FrameKind{}, 0, 0});
  return static_cast<std::size_t>(std::distance(first, last));
}

}  // namespace autodist::comm
