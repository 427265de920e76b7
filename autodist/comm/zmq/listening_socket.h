// A socket that other ranks connect to, with its port, and with who and how many may come in.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <zmq.hpp>

#include "autodist/comm/zmq/connection_limit.h"
#include "autodist/comm/zmq/curve.h"
#include "autodist/comm/zmq/socket.h"

namespace autodist::comm {

struct ListeningSocket {
  // With keys, only who holds them comes in. Throws as bind() (socket.h).
  ListeningSocket(zmq::context_t its_own, zmq::socket_type type, SocketUse use,
                  const std::string& address, std::uint16_t wanted_port,
                  const std::optional<CurveKeys>& keys)
      : context(std::move(its_own)), socket(context, type) {
    configure(socket.handle(), use);
    if (keys) {
      gate.emplace(context, *keys);
      secure(socket.handle(), CurveSide::kServer, *keys);
    }
    limit.emplace(context, socket.handle(), most_connections());
    port = bind(socket.handle(), address, wanted_port);
  }

  zmq::context_t context;
  std::optional<ClientGate> gate;  // as long as the socket
  zmq::socket_t socket;
  std::optional<ConnectionLimit> limit;
  std::uint16_t port = 0;
};

}  // namespace autodist::comm
