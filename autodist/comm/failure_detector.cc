#include "autodist/comm/failure_detector.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace autodist::comm {

FailureDetector::FailureDetector(RankNumber self, RankNumber size, Seconds silence,
                                 Seconds first_contact, Seconds now, Name name)
    : name_(std::move(name)),
      silence_(silence),
      first_contact_(first_contact),
      listening_since_(now),
      peers_(size) {
  for (Peer& peer : peers_) peer.last = now;
  excuse(self);
}

void FailureDetector::heard(const FrameHeader& header, Seconds now) {
  Peer& peer = peers_[header.from];
  if (peer.missed && !peer.was_silent) peer.was_silent = now - peer.last;
  peer.last = now;
  peer.header = header;
  if (is_message(header.kind)) peer.message = header;
}

std::optional<FailureDetector::News> FailureDetector::news(Seconds noticed, Seconds now) {
  for (RankNumber rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    if (peer.excused || !peer.header) continue;
    if (peer.was_silent) {
      const News back{rank, true, *peer.was_silent};
      peer.missed = false;
      peer.was_silent.reset();
      return back;
    }
    if (peer.missed || now - std::max(peer.last, listening_since_) <= noticed) continue;
    peer.missed = true;
    return News{rank, false, now - peer.last};
  }
  return std::nullopt;
}

std::optional<RankNumber> FailureDetector::lost(Seconds now) const {
  for (RankNumber rank = 0; rank < peers_.size(); ++rank) {
    const Peer& peer = peers_[rank];
    if (peer.excused) continue;
    const Seconds since = std::max(peer.last, listening_since_);
    if (now - since > (peer.header ? silence_ : first_contact_)) return rank;
  }
  return std::nullopt;
}

std::string FailureDetector::account(RankNumber rank, Seconds now) const {
  const Peer& peer = peers_[rank];
  const std::string silent = "silent for " + to_string(now - peer.last);
  if (!peer.header) return silent + "; it was never heard";
  const std::string heard = silent + "; last heard: ";
  if (is_message(peer.header->kind)) return heard + text_of(*peer.header);
  const std::string last = heard + name_of(peer.header->kind);
  if (!peer.message) return last + ", before its first message";
  return last + ", and before that: " + text_of(*peer.message);
}

std::string FailureDetector::text_of(const FrameHeader& message) const {
  const std::string what = name_ ? name_(message.kind, message.id)
                                 : fmt::format("{}, id {}", name_of(message.kind), message.id);
  return fmt::format("{}, step {}", what, message.step);
}

}  // namespace autodist::comm
