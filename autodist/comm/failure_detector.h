// Who was heard when, and with what: finds the peer that is lost and has the words for it.
//
// A pure data structure: the caller passes the time.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/comm/transport.h"

namespace autodist::comm {

class FailureDetector {
 public:
  // A peer is lost after `silence`, or, before its first frame, after `first_contact`: ranks do not
  // start at the same moment. `name` says what a message is (ExchangeOptions::name); may be empty.
  using Name = std::function<std::string(FrameKind kind, MessageId id)>;
  FailureDetector(RankNumber self, RankNumber size, Seconds silence, Seconds first_contact,
                  Seconds now, Name name = {});

  // Any frame is a sign of life.
  void heard(const FrameHeader& header, Seconds now);

  // The listener was busy or suspended until now: what the peers said meanwhile may still lie
  // unread, so nobody's silence counts before now.
  void deaf_until(Seconds now) { listening_since_ = now; }

  // The peer is free to be silent from here on.
  void excuse(RankNumber rank) { peers_[rank].excused = true; }

  // A peer that has been silent for longer than `noticed`, and later that it is heard again; each
  // once. Not of peers that were never heard: these have not started yet.
  struct News {
    RankNumber rank = 0;
    bool back = false;
    Seconds silent;
  };
  std::optional<News> news(Seconds noticed, Seconds now);

  // The first peer, in rank order, that has been silent for too long.
  [[nodiscard]] std::optional<RankNumber> lost(Seconds now) const;

  // "silent for 3.1 s; last heard: contribution of slice 17, step 4".
  [[nodiscard]] std::string account(RankNumber rank, Seconds now) const;

 private:
  struct Peer {
    Seconds last;
    std::optional<FrameHeader> header;   // of the last frame
    std::optional<FrameHeader> message;  // of the last message
    bool excused = false;
    bool missed = false;                // its silence is known
    std::optional<Seconds> was_silent;  // heard again after that, which is not known yet
  };

  [[nodiscard]] std::string text_of(const FrameHeader& message) const;

  Name name_;
  Seconds silence_;
  Seconds first_contact_;
  Seconds listening_since_;
  std::vector<Peer> peers_;
};

}  // namespace autodist::comm
