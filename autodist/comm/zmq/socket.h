// The one place where sockets get their limits. Their keys: curve.h.

#pragma once

#include <cstdint>
#include <string>

namespace autodist::comm {

enum class SocketUse : std::uint8_t { kSendFrames, kReceiveFrames, kRendezvous };

// Sets high-water marks, buffers, the largest message, the time for a handshake and the linger of a
// fresh libzmq socket.
void configure(void* socket, SocketUse use);

// "tcp://10.0.0.3:4711", "tcp://[fe80::1]:4711"; "*" for port 0, which libzmq reads as any free
// one.
std::string endpoint(const std::string& address, std::uint16_t port);

// Binds a configured socket and returns its port. Throws Error(kEnvironment) naming address and
// port when it is taken or not this machine's, and Error(kUsage) for an address that stands for all
// interfaces.
std::uint16_t bind(void* socket, const std::string& address, std::uint16_t port);

}  // namespace autodist::comm
