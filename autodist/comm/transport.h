// Moves frames between ranks. A transport promises order per pair of ranks and nothing about
// meaning; exchange.h adds priorities, windows, exactly-once admission and heartbeats on top.
//
// Implementations: zmq/, alone_transport.h for a job of one rank, and for tests
// testing/in_process.h (ranks as threads: the reference).

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autodist/base/units.h"

namespace autodist::comm {

using RankNumber = std::uint32_t;
using MessageId = std::uint32_t;

// comm's own kinds, and behind them those of messages: each is ordered by need, acknowledged and
// handed over exactly once by its kind, step and id. What kinds and ids of messages mean is up to
// the code that sends them (exec/topic.h).
enum class FrameKind : std::uint8_t {
  kAcknowledge = 1,  // a message arrived; bypasses the window
  kHeartbeat,        // of an exchange: where its rank's own code is
  kAlive,            // of a rank, whichever exchange it is in
  kControl,          // agreement before the first step and between steps: opaque bytes
  kGoodbye,  // a rank leaves in order; detail in the payload when it leaves because of an error
  kFirstMessage = 16,
};
inline constexpr std::size_t kKindLimit = 64;

inline bool is_message(FrameKind kind) { return kind >= FrameKind::kFirstMessage; }
// Whether it says nothing to who is in no exchange but that the rank is there.
inline bool is_sign_of_life(FrameKind kind) {
  return kind == FrameKind::kHeartbeat || kind == FrameKind::kAlive;
}

// "heartbeat"; of messages "message of kind 3".
std::string name_of(FrameKind kind);

struct FrameHeader {
  FrameKind kind = FrameKind::kControl;
  // Which plan of which members the frame belongs to, counted over the transport's life: an
  // exchange refuses earlier ones and keeps later ones for who reads next.
  std::uint32_t generation = 0;
  std::uint64_t step = 0;
  MessageId id = 0;
  RankNumber from = 0;
  std::int64_t samples = 0;  // that the gradient stands for
  // A payload that is too large for one frame: which piece of how many this is (assembly.h).
  std::uint16_t piece = 0;
  std::uint16_t pieces = 1;
  // Which of several exchanges over one transport (channels.h).
  std::uint16_t channel = 0;

  friend bool operator==(const FrameHeader& a, const FrameHeader& b);
};

// Bytes that stay valid as long as `keep` lives; sent without a copy where the transport can.
struct Payload {
  const std::byte* data = nullptr;
  std::size_t size = 0;
  std::shared_ptr<const void> keep;

  static Payload copy_of(const std::string& bytes);
  [[nodiscard]] std::string to_string() const;
};

struct Frame {
  FrameHeader header;
  Payload payload;
  // Small bytes beside the payload, which mean something to the ranks' own code alone.
  std::string rider{};
};

// Behind a rank's description, in messages: Transport::gone() has said so.
inline constexpr const char* kIsGone =
    "is lost: its connection ended and nobody listens there any more";
// The same of one whose process was killed, while its connections are still there.
inline constexpr const char* kIsKilled = "is lost: its process has ended";

// How often who waits outside of steps looks around.
inline constexpr Seconds kLookAround{0.2};

// Whom a rank waits for outside of steps, and with what.
struct Wait {
  std::string_view what;  // "strategy"
  std::vector<RankNumber> whom;
  Seconds since;
};

class Transport {
 public:
  virtual ~Transport() = default;

  [[nodiscard]] virtual RankNumber self() const = 0;
  [[nodiscard]] virtual RankNumber size() const = 0;
  // Host and process of a rank, for messages: "rank 2 (10.0.0.3, pid 4711)".
  [[nodiscard]] virtual std::string describe(RankNumber rank) const = 0;

  // Queues a frame; does not block on the receiver (the caller bounds what is in flight). The
  // frame's `from` is set to self(). One thread at a time. REQUIRES: to != self().
  virtual void send(RankNumber to, Frame frame) = 0;

  // The next frame, or nothing after `timeout`. Payloads that crossed a network are aligned to 8
  // bytes. One thread at a time, which may differ from the sender's.
  std::optional<Frame> receive(Seconds timeout);

  // A rank whose connection has ended and where nobody listens any more: its process is gone, which
  // is known sooner so than by its silence. By the receiving thread.
  virtual std::optional<RankNumber> gone() { return std::nullopt; }

  // Called every kLookAround by who waits outside of steps (agreement.h), on its thread. What it
  // throws ends the wait.
  virtual void look_around(const Wait&) {}

  // Returns frames to the head of what receive() will give, in their order: they were meant for a
  // later reader, because their senders are already one exchange further. By the receiving thread.
  void give_back(std::vector<Frame> frames);

  // Sends what is queued (at most `linger`) and stops. Idempotent.
  virtual void close(Seconds linger) = 0;

 protected:
  virtual std::optional<Frame> receive_next(Seconds timeout) = 0;
  // What was given back and not received again, first first.
  [[nodiscard]] std::deque<Frame> take_given_back() { return std::exchange(given_back_, {}); }

 private:
  std::deque<Frame> given_back_;
};

}  // namespace autodist::comm
