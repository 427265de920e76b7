// Frames over TCP with ZeroMQ: every rank binds one PULL socket on its own address and connects one
// PUSH socket to each peer.
//
// Threads: each socket belongs to one thread at a time. send() and close() use the PUSH sockets,
// receive() the PULL socket, so one thread may send while another receives; a hand-over to another
// thread needs a synchronisation between them (starting or joining a thread is one). close() comes
// after both have stopped.
//
// Payloads are not copied: libzmq sends from the caller's bytes and lets go of Payload::keep when
// they are in the kernel; a received payload keeps libzmq's message alive (one that is not aligned
// to 8 bytes is copied, which happens to small ones only).
//
// Between ranks of one machine large payloads go through shared memory.
//
// With keys, what crosses a network is encrypted and only the job's ranks come in (curve.h);
// without, traffic is neither: for one machine and for trusted networks.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodist/comm/transport.h"
#include "autodist/comm/zmq/curve.h"
#include "autodist/comm/zmq/shared_memory.h"

namespace autodist::comm {

// Where a rank listens and who it is.
struct Member {
  std::string address;
  std::uint16_t port = 0;
  std::string host;
  std::int64_t pid = 0;
  SharedMemoryName memory = {};  // what the rank sends lies there, for those on its machine

  friend bool operator==(const Member&, const Member&) = default;
};

// A rank's bound socket, before it knows its peers. Frames that come meanwhile wait in it.
class ZmqListener {
 public:
  // Port 0 takes a free one. Throws Error(kEnvironment) when the address is not this machine's or
  // the port is taken, and Error(kUsage) for an address that stands for all interfaces.
  explicit ZmqListener(const std::string& address, std::uint16_t port = 0,
                       const std::optional<CurveKeys>& keys = std::nullopt);
  ~ZmqListener();
  ZmqListener(ZmqListener&&) noexcept;
  [[nodiscard]] std::uint16_t port() const;

 private:
  friend class ZmqTransport;
  class Impl;
  [[nodiscard]] std::unique_ptr<Impl> take();
  std::unique_ptr<Impl> impl_;
};

// What was refused on the PULL socket: bytes that are no frame, or of a rank that is not a member.
struct Refusals {
  std::uint64_t count = 0;
  std::string last_reason;
};

class ZmqTransport final : public Transport {
 public:
  // `members` by rank; connects lazily, in the background. `blocks`: the memory that members[self]
  // names; may be null. REQUIRES: self < members.size(); the listener listens where members[self]
  // says.
  ZmqTransport(ZmqListener listener, RankNumber self, std::vector<Member> members,
               std::unique_ptr<SharedBlocks> blocks = nullptr);
  ~ZmqTransport() override;  // close(Seconds{0})

  [[nodiscard]] RankNumber self() const override { return self_; }
  [[nodiscard]] RankNumber size() const override;
  [[nodiscard]] std::string describe(RankNumber rank) const override;
  void send(RankNumber to, Frame frame) override;
  void close(Seconds linger) override;
  std::optional<RankNumber> gone() override;

  // By the receiving thread.
  [[nodiscard]] const Refusals& refusals() const { return refusals_; }
  // Frames whose payload went through shared memory. By the sending thread.
  [[nodiscard]] std::uint64_t shared_frames() const { return shared_frames_; }

 protected:
  std::optional<Frame> receive_next(Seconds timeout) override;

 private:
  class Peer;

  void refuse(std::string reason);
  [[nodiscard]] std::optional<Payload> shared_payload(RankNumber from,
                                                      const Payload& reference) const;

  RankNumber self_;
  std::vector<Member> members_;
  std::unique_ptr<ZmqListener::Impl> listener_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; nullptr at self
  std::unique_ptr<SharedBlocks> blocks_;
  std::vector<std::shared_ptr<SharedReader>> readers_;  // by rank; of those that share memory
  std::uint64_t shared_frames_ = 0;
  Refusals refusals_;
  Seconds look_again_;  // at the connections; of the receiving thread
};

}  // namespace autodist::comm
