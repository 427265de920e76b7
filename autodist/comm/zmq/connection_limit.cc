#include "autodist/comm/zmq/connection_limit.h"

#include <linux/filter.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <zmq.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "autodist/base/background.h"
#include "autodist/base/check.h"

namespace autodist::comm {
namespace {

constexpr std::size_t kLeastConnections = 32;
constexpr std::size_t kShareOfDescriptors = 8;
constexpr int kListenerEvents =
    ZMQ_EVENT_LISTENING | ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_MONITOR_STOPPED;

// A classic BPF program that keeps nothing: at a listening socket, no connection is opened.
void drop_newcomers(int listener) {
  sock_filter nothing{BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program{1, &nothing};
  // Where the system has no filters, libzmq's cut-off after 5 s is all there is.
  static_cast<void>(::setsockopt(listener, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program));
}

void take_newcomers(int listener) {
  const int unused = 0;
  static_cast<void>(::setsockopt(listener, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused));
}

}  // namespace

std::size_t most_connections() {
  rlimit limit{};
  AD_CHECK(::getrlimit(RLIMIT_NOFILE, &limit) == 0) << std::strerror(errno);
  return std::max(kLeastConnections,
                  static_cast<std::size_t>(limit.rlim_cur) / kShareOfDescriptors);
}

ConnectionLimit::ConnectionLimit(zmq::context_t& context, void* socket, std::size_t most)
    : socket_(socket), most_(most), events_(context, zmq::socket_type::pair) {
  const int queue = static_cast<int>(std::min<std::size_t>(most, 100));  // libzmq's, at most
  AD_CHECK(zmq_setsockopt(socket, ZMQ_BACKLOG, &queue, sizeof queue) == 0);
  const std::string monitor =
      "inproc://autodist.listener." + std::to_string(reinterpret_cast<std::uintptr_t>(socket));
  AD_CHECK(zmq_socket_monitor(socket, monitor.c_str(), kListenerEvents) == 0)
      << zmq_strerror(zmq_errno());
  events_.set(zmq::sockopt::linger, 0);
  events_.set(zmq::sockopt::rcvhwm, 0);  // else strangers could hold up libzmq's own thread
  events_.connect(monitor);
  const BackgroundThreads from_here;
  thread_ = std::thread([this] { watch(); });
}

ConnectionLimit::~ConnectionLimit() {
  zmq_socket_monitor(socket_, nullptr, 0);
  thread_.join();
}

void ConnectionLimit::watch() {
  while (true) {
    zmq::message_t head;
    try {
      if (!events_.recv(head)) continue;
      zmq::message_t address;
      if (head.more()) (void)events_.recv(address);
    } catch (const zmq::error_t& error) {
      if (error.num() == EINTR) continue;
      return;  // the context ends
    }
    std::uint16_t event = 0;
    std::uint32_t value = 0;  // most often a descriptor
    if (head.size() < sizeof event + sizeof value) continue;
    std::memcpy(&event, head.data(), sizeof event);
    std::memcpy(&value, head.data<char>() + sizeof event, sizeof value);
    if (event == ZMQ_EVENT_MONITOR_STOPPED) return;
    if (event == ZMQ_EVENT_LISTENING) listener_ = static_cast<int>(value);
    if (event == ZMQ_EVENT_ACCEPTED) ++open_;
    if (event == ZMQ_EVENT_DISCONNECTED && open_ > 0) --open_;
    decide();
  }
}

void ConnectionLimit::decide() {
  if (!closed_ && open_ >= most_) {
    drop_newcomers(listener_);
    closed_ = true;
  } else if (closed_ && open_ < most_ - most_ / 4) {
    take_newcomers(listener_);
    closed_ = false;
  }
}

}  // namespace autodist::comm
