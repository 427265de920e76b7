#include "autodist/comm/zmq/socket.h"

#include <zmq.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/comm/wire.h"

namespace autodist::comm {
namespace {

// What waits in libzmq can no longer be overtaken; the exchange's windows keep it below these.
constexpr int kSendHighWater = 1024;
constexpr int kReceiveHighWater = 64;
constexpr int kSocketBuffer = 512 << 10;
constexpr std::int64_t kLargestRendezvousMessage = 64 << 10;
// Who has not said by then who it is, a byte at a time perhaps, is cut off.
constexpr int kHandshakeMs = 5000;
// After as much and up to twice as much libzmq tries again to connect, so that a peer that has
// ended is known to have ended soon.
constexpr int kReconnectMs = 15;
constexpr int kRendezvousLingerMs = 1000;  // so that a refusal still gets out

template <typename Value>
void set(void* socket, int option, Value value) {
  AD_CHECK(zmq_setsockopt(socket, option, &value, sizeof value) == 0)
      << "option " << option << ": " << zmq_strerror(zmq_errno());
}

}  // namespace

void configure(void* socket, SocketUse use) {
  const bool rendezvous = use == SocketUse::kRendezvous;
  set(socket, ZMQ_LINGER, rendezvous ? kRendezvousLingerMs : 0);
  set(socket, ZMQ_SNDHWM, kSendHighWater);
  set(socket, ZMQ_RCVHWM, rendezvous ? kSendHighWater : kReceiveHighWater);
  set(socket, ZMQ_SNDBUF, kSocketBuffer);
  set(socket, ZMQ_RCVBUF, kSocketBuffer);
  set(socket, ZMQ_IPV6, 1);
  set(socket, ZMQ_HANDSHAKE_IVL, kHandshakeMs);
  set(socket, ZMQ_RECONNECT_IVL, kReconnectMs);
  set(socket, ZMQ_MAXMSGSIZE,
      rendezvous ? kLargestRendezvousMessage : static_cast<std::int64_t>(kLargestPayload));
}

std::string endpoint(const std::string& address, std::uint16_t port) {
  const bool v6 = address.find(':') != std::string::npos;
  const std::string host = v6 && address.front() != '[' ? "[" + address + "]" : address;
  return "tcp://" + host + ":" + (port == 0 ? "*" : std::to_string(port));
}

std::uint16_t bind(void* socket, const std::string& address, std::uint16_t port) {
  constexpr std::array kEverywhere{"", "*", "0.0.0.0", "::", "[::]"};
  if (std::find(kEverywhere.begin(), kEverywhere.end(), address) != kEverywhere.end()) {
    fail(ErrorCode::kUsage,
         "listen: address '{}' means all interfaces. Name the one that the peers reach", address);
  }
  if (zmq_bind(socket, endpoint(address, port).c_str()) != 0) {
    const bool taken = zmq_errno() == EADDRINUSE;
    fail(ErrorCode::kEnvironment, "listen: {} port {}: {}. {}", address,
         port == 0 ? "(any free)" : std::to_string(port), zmq_strerror(zmq_errno()),
         taken ? "Another program listens there; choose another port or none"
               : "The address must be one of this machine's");
  }
  std::array<char, 256> bound{};
  std::size_t size = bound.size();
  AD_CHECK(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, bound.data(), &size) == 0);
  const std::string text = bound.data();
  std::uint16_t result = 0;
  const char* digits = text.data() + text.rfind(':') + 1;
  const auto parsed = std::from_chars(digits, text.data() + text.size(), result);
  AD_CHECK(parsed.ec == std::errc() && result != 0) << text;
  return result;
}

}  // namespace autodist::comm
