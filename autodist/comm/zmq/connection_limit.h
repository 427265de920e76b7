// Strangers may knock, not take all of a process's descriptors: a listening socket has at most so
// many connections at a time, whoever made them.
//
// libzmq cuts off who has not said within 5 s who it is, and accepts whoever comes. While there are
// too many, a filter at the listening socket drops what would open another one; the peer's TCP
// tries again after a second.

#pragma once

#include <cstddef>
#include <thread>
#include <zmq.hpp>

namespace autodist::comm {

// An eighth of the descriptors that this process may have open, 32 at least.
std::size_t most_connections();

// On a thread of its own, for a libzmq socket that is not bound yet; must not outlive it, and ends
// on the thread that uses it. In addition come the connections that wait in the system's queue, as
// many again, and those of a burst that libzmq accepts before the thread gets to run: on a busy
// machine a hundred. That is why the limit is a small share of the descriptors.
class ConnectionLimit {
 public:
  ConnectionLimit(zmq::context_t& context, void* socket, std::size_t most);
  ~ConnectionLimit();
  ConnectionLimit(const ConnectionLimit&) = delete;
  ConnectionLimit& operator=(const ConnectionLimit&) = delete;

 private:
  void watch();
  void decide();

  void* socket_;
  std::size_t most_;
  zmq::socket_t events_;
  // Of the thread.
  int listener_ = -1;
  std::size_t open_ = 0;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace autodist::comm
