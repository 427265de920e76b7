#include "autodist/comm/zmq/zmq_transport.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>
#include <utility>
#include <zmq.hpp>

#include "autodist/base/background.h"
#include "autodist/base/check.h"
#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/comm/wire.h"
#include "autodist/comm/zmq/listening_socket.h"
#include "autodist/comm/zmq/socket.h"

namespace autodist::comm {
namespace {

constexpr std::size_t kAlignment = 8;
// Smaller payloads cost a message either way.
constexpr std::size_t kSmallestShared = 16 << 10;
// In a row, 15 to 30 ms apart (socket.cc), after a connection has ended.
constexpr int kRefusedAttempts = 4;
constexpr Seconds kLookAtConnections{0.05};

// A message over the payload's own bytes; libzmq lets go of `keep` when it is done with them.
zmq::message_t message_of(const Payload& payload) {
  auto* keep = new std::shared_ptr<const void>(payload.keep);
  const auto release = [](void*, void* hint) {
    delete static_cast<std::shared_ptr<const void>*>(hint);
  };
  // libzmq takes a pointer to mutable bytes and does not write to them.
  return {const_cast<std::byte*>(payload.data), payload.size, release, keep};
}

Payload payload_of(zmq::message_t message) {
  const auto* data = message.data<std::byte>();
  const std::size_t size = message.size();
  if (reinterpret_cast<std::uintptr_t>(data) % kAlignment != 0) {
    return Payload::copy_of(message.to_string());
  }
  // A small message lives inside message_t itself: the address is read after the move.
  auto keep = std::make_shared<zmq::message_t>(std::move(message));
  return {keep->data<std::byte>(), size, keep};
}

// libzmq starts its threads with a context's first socket.
zmq::context_t context_in_background() {
  zmq::context_t context;
  const BackgroundThreads from_here;
  const zmq::socket_t first(context, zmq::socket_type::pair);
  return context;
}

}  // namespace

class ZmqListener::Impl : public ListeningSocket {
 public:
  Impl(const std::string& address, std::uint16_t wanted_port, const std::optional<CurveKeys>& keys)
      : ListeningSocket(context_in_background(), zmq::socket_type::pull, SocketUse::kReceiveFrames,
                        address, wanted_port, keys),
        job_keys(keys) {}

  // One system call where a message is there, two where it has to be waited for (zmq_poll takes
  // twice as many). False after `timeout`, or when a signal ends it early.
  bool receive(zmq::message_t& message, Seconds timeout) {
    const int most = std::max(0, static_cast<int>(to_milliseconds(timeout).count()));
    if (most != timeout_) socket.set(zmq::sockopt::rcvtimeo, most);
    timeout_ = most;
    try {
      return socket.recv(message).has_value();
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;
      return false;
    }
  }

  const std::optional<CurveKeys> job_keys;

 private:
  int timeout_ = -1;  // milliseconds
};

ZmqListener::ZmqListener(const std::string& address, std::uint16_t port,
                         const std::optional<CurveKeys>& keys)
    : impl_(std::make_unique<Impl>(address, port, keys)) {}
ZmqListener::~ZmqListener() = default;
ZmqListener::ZmqListener(ZmqListener&&) noexcept = default;
std::unique_ptr<ZmqListener::Impl> ZmqListener::take() { return std::move(impl_); }
std::uint16_t ZmqListener::port() const { return impl_->port; }

// The sending side of one peer. What libzmq has no room for waits here, in order.
class ZmqTransport::Peer {
 public:
  Peer(zmq::context_t& context, const std::optional<CurveKeys>& keys, RankNumber rank,
       const Member& member)
      : socket_(context, zmq::socket_type::push), events_(context, zmq::socket_type::pair) {
    configure(socket_.handle(), SocketUse::kSendFrames);
    if (keys) secure(socket_.handle(), CurveSide::kClient, *keys);
    const std::string monitor = fmt::format("inproc://autodist.peer.{}", rank);
    constexpr int kWatched =
        ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CONNECT_RETRIED;
    AD_CHECK(zmq_socket_monitor(socket_.handle(), monitor.c_str(), kWatched) == 0)
        << zmq_strerror(zmq_errno());
    events_.set(zmq::sockopt::linger, 0);
    events_.connect(monitor);
    socket_.connect(endpoint(member.address, member.port));
  }

  void send(Frame frame, PayloadPlace place) {
    backlog_.push_back({std::move(frame), place});
    flush();
  }

  // True when nothing waits here any more.
  bool flush() {
    while (!backlog_.empty() && try_send(backlog_.front())) backlog_.pop_front();
    return backlog_.empty();
  }

  // By the receiving thread. A link that swallows everything ends no connection, and one that was
  // only interrupted is made again: gone is where a connection ended and new ones are refused.
  bool gone() {
    zmq::message_t event;
    while (events_.recv(event, zmq::recv_flags::dontwait)) {
      std::uint16_t number = 0;
      if (event.size() >= sizeof number) std::memcpy(&number, event.data(), sizeof number);
      zmq::message_t address;
      if (event.more()) (void)events_.recv(address);
      if (number == ZMQ_EVENT_DISCONNECTED) broken_ = true;
      if (number == ZMQ_EVENT_CONNECTED) broken_ = false;
      if (!broken_) attempts_ = 0;
      if (broken_ && number == ZMQ_EVENT_CONNECT_RETRIED) ++attempts_;
    }
    return attempts_ >= kRefusedAttempts;
  }

  void close(Seconds linger) {
    zmq_socket_monitor(socket_.handle(), nullptr, 0);
    socket_.set(zmq::sockopt::linger, static_cast<int>(to_milliseconds(linger).count()));
    socket_.close();
  }

 private:
  struct Waiting {
    Frame frame;
    PayloadPlace place;
  };

  bool try_send(const Waiting& waiting) {
    const Frame& frame = waiting.frame;
    const WireHeader header = encode(frame.header, frame.payload.size, waiting.place);
    const bool more = frame.payload.size > 0;
    const auto flags = zmq::send_flags::dontwait;
    zmq::message_t head(header.size() + frame.rider.size());
    std::memcpy(head.data<std::byte>(), header.data(), header.size());
    std::memcpy(head.data<std::byte>() + header.size(), frame.rider.data(), frame.rider.size());
    if (!socket_.send(head, more ? flags | zmq::send_flags::sndmore : flags)) return false;
    if (!more) return true;
    // Once the first part is in, libzmq takes the whole message.
    zmq::message_t body = message_of(frame.payload);
    AD_CHECK(socket_.send(body, flags)) << "half a frame";
    return true;
  }

  zmq::socket_t socket_;
  std::deque<Waiting> backlog_;
  // Used by the receiving thread alone.
  zmq::socket_t events_;
  bool broken_ = false;
  int attempts_ = 0;  // to connect again, in vain
};

ZmqTransport::ZmqTransport(ZmqListener listener, RankNumber self, std::vector<Member> members,
                           std::unique_ptr<SharedBlocks> blocks)
    : self_(self),
      members_(std::move(members)),
      listener_(listener.take()),
      blocks_(std::move(blocks)),
      readers_(members_.size()) {
  AD_CHECK(self < members_.size()) << self << " of " << members_.size();
  for (RankNumber rank = 0; rank < members_.size(); ++rank) {
    peers_.push_back(rank == self ? nullptr
                                  : std::make_unique<Peer>(listener_->context, listener_->job_keys,
                                                           rank, members_[rank]));
    // One machine: the same address (two names of a machine, or two network namespaces, count as
    // two). Who can open a peer's memory is seen by that peer as well, so both know.
    const Member& member = members_[rank];
    if (rank == self || !blocks_ || member.address != members_[self].address ||
        member.host != members_[self].host) {
      continue;
    }
    readers_[rank] = SharedReader::open(member.pid, member.memory);
  }
}

ZmqTransport::~ZmqTransport() { close(Seconds{0}); }

RankNumber ZmqTransport::size() const { return static_cast<RankNumber>(members_.size()); }

std::string ZmqTransport::describe(RankNumber rank) const {
  AD_CHECK(rank < members_.size()) << "rank " << rank;
  const Member& member = members_[rank];
  return fmt::format("rank {} ({}, {}, pid {})", rank, member.address, member.host, member.pid);
}

void ZmqTransport::send(RankNumber to, Frame frame) {
  AD_CHECK(to < size() && to != self_) << "to " << to << " from " << self_;
  AD_CHECK(listener_) << "send after close";
  frame.header.from = self_;
  for (RankNumber rank = 0; rank < size(); ++rank) {
    if (rank != to && rank != self_) peers_[rank]->flush();
  }
  PayloadPlace place = PayloadPlace::kHere;
  if (readers_[to] && frame.payload.size >= kSmallestShared) {
    if (const auto reference = blocks_->put(frame.payload)) {
      frame.payload = Payload::copy_of(encode(*reference));
      place = PayloadPlace::kShared;
      ++shared_frames_;
    }
  }
  peers_[to]->send(std::move(frame), place);
}

std::optional<Payload> ZmqTransport::shared_payload(RankNumber from,
                                                    const Payload& reference) const {
  const auto& reader = readers_[from];
  if (!reader || reference.size != kReferenceSize) return std::nullopt;
  return SharedReader::at(reader, decode_reference(reference.data));
}

std::optional<Frame> ZmqTransport::receive_next(Seconds timeout) {
  AD_CHECK(listener_) << "receive after close";
  const SteadyClock clock;
  const Seconds until = clock.now() + timeout;
  zmq::socket_t& socket = listener_->socket;
  for (;;) {
    zmq::message_t head;
    if (!listener_->receive(head, until - clock.now())) {
      if (clock.now() >= until) return std::nullopt;
      continue;  // a signal ended it early
    }
    zmq::message_t body;
    bool more = head.more();
    if (more) {
      (void)socket.recv(body);
      more = body.more();
    }
    const bool extra = more;
    for (zmq::message_t rest; more; more = rest.more()) (void)socket.recv(rest);

    const auto decoded = decode(head.data(), head.size(), body.size());
    if (const auto* malformed = std::get_if<Malformed>(&decoded); malformed || extra) {
      refuse(malformed ? malformed->reason : "a frame of more than two parts");
      continue;
    }
    const auto& header = std::get<FrameHeader>(decoded);
    if (header.from >= size() || header.from == self_) {
      refuse(fmt::format("rank {} is not a peer of rank {} of {}", header.from, self_, size()));
      continue;
    }
    Payload payload = body.empty() ? Payload{} : payload_of(std::move(body));
    if (place_of(head.data()) == PayloadPlace::kShared) {
      auto shared = shared_payload(header.from, payload);
      if (!shared) {
        refuse(fmt::format("a payload of rank {} is not in memory that it shares", header.from));
        continue;
      }
      payload = std::move(*shared);
    }
    return Frame{header, std::move(payload), rider_of(head.data(), head.size())};
  }
}

std::optional<RankNumber> ZmqTransport::gone() {
  const Seconds now = SteadyClock().now();
  if (now < look_again_) return std::nullopt;
  look_again_ = now + kLookAtConnections;
  for (RankNumber rank = 0; rank < size(); ++rank) {
    if (rank != self_ && peers_[rank]->gone()) return rank;
  }
  return std::nullopt;
}

void ZmqTransport::refuse(std::string reason) {
  ++refusals_.count;
  refusals_.last_reason = std::move(reason);
}

void ZmqTransport::close(Seconds linger) {
  if (!listener_) return;
  const SteadyClock clock;
  const Seconds until = clock.now() + linger;
  for (const auto& peer : peers_) {
    if (!peer) continue;
    // What is still for a peer that is gone reaches nobody.
    while (!peer->gone() && !peer->flush() && clock.now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const Seconds left = until - clock.now();
    peer->close(peer->gone() || left < Seconds{0} ? Seconds{0} : left);
  }
  peers_.clear();
  listener_.reset();  // ends the context, which waits for the lingering sockets
}

}  // namespace autodist::comm
