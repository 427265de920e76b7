// Everything a rank still has to get across: what waits its turn and what has not been
// acknowledged.
//
// A NicScheduler decides the order; the outbox keeps the bytes. A slice stays here until its
// destination acknowledges it and leaves again when that takes too long: a connection that breaks
// loses what its pipe had taken over. A pure data structure: the caller passes the time and sends.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "autodist/comm/exchange.h"
#include "autodist/comm/schedule/nic_scheduler.h"

namespace autodist::comm {

struct Addressed {
  RankNumber to = 0;
  Frame frame;
};

// A frame that has arrived: a slice, or a piece of one that is too large for one frame.
struct Delivered {
  Payload payload;  // of the frame; to be let go of outside the lock
  Seconds posted;
  Seconds left;           // for the last time
  bool again = false;     // it left more than once
  bool whole = true;      // with it, all of the slice has arrived
  std::size_t bytes = 0;  // of the slice
};

class Outbox {
 public:
  // `patience`: how long an acknowledgement may take before a slice is sent again; doubles with
  // every attempt, so that a link that is slow and not broken is not drowned.
  Outbox(RankNumber self, RankNumber size, const ExchangeOptions& options, Seconds patience);

  // Throws Error(kUsage) for a payload larger than all the pieces that it may have. REQUIRES: a
  // message's kind; (kind, step, id) is not on its way to `to` already; the steps on their way to
  // `to` lie less than kStepsApart apart; id < kIdLimit.
  void post(RankNumber to, Outgoing outgoing, Seconds now = {});

  // The slice to send now, if a window has room.
  [[nodiscard]] std::optional<Addressed> next(Seconds now);

  // The slices whose acknowledgement is overdue, to be sent again now.
  [[nodiscard]] std::vector<Addressed> overdue(Seconds now);

  // `from` has the slice, or that piece of it. Nothing for an acknowledgement that comes twice.
  std::optional<Delivered> acknowledge(RankNumber from, FrameKind kind, std::uint64_t step,
                                       MessageId id, std::uint16_t piece = 0);

  // True when every slice has arrived.
  [[nodiscard]] bool empty() const { return live_.empty(); }
  // Slices, and pieces of such, on their way to `rank` or waiting for it.
  [[nodiscard]] std::size_t pending(RankNumber rank) const;

 private:
  using Key = std::tuple<RankNumber, std::uint64_t, FrameKind, MessageId,
                         std::uint16_t>;  // to, step, kind, id, piece
  struct Slice {
    std::uint16_t pieces = 1;
    std::uint16_t missing = 1;  // pieces that have not arrived
    std::size_t bytes = 0;
  };
  struct Item {
    Key key;
    Outgoing outgoing;             // its payload is the piece's
    std::shared_ptr<Slice> slice;  // one for all its pieces
    bool in_flight = false;
    bool again = false;
    Seconds due;       // for its acknowledgement
    Seconds patience;  // of the current attempt
    Seconds posted;
    Seconds left;
  };

  void post_piece(const Key& key, Outgoing outgoing, std::shared_ptr<Slice> slice, Seconds now);
  [[nodiscard]] Addressed address(const Item& item) const;

  RankNumber self_;
  std::uint32_t generation_;
  Seconds patience_;
  Bytes piece_;
  NicScheduler nic_;
  std::vector<Item> items_;         // by TransferId
  std::vector<TransferId> unused_;  // rows of items_
  std::map<Key, TransferId> live_;
  std::vector<std::uint64_t> newest_step_;  // ever posted, by destination
};

}  // namespace autodist::comm
