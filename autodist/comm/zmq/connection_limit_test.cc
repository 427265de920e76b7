#include "autodist/comm/zmq/connection_limit.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <thread>
#include <zmq.hpp>

#include "autodist/comm/zmq/socket.h"

namespace autodist::comm {
namespace {

constexpr std::size_t kMost = 20;
constexpr std::size_t kStrangers = 200;

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// A descriptor that is being connected.
int knock(std::uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  ::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  const int end = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  ::connect(end, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  return end;
}

bool is_let_in(std::uint16_t port) {
  pollfd end{knock(port), POLLOUT, 0};
  const bool in = ::poll(&end, 1, 200) == 1;
  ::close(end.fd);
  return in;
}

// A process that connects so often and never says who it is.
class Strangers {
 public:
  Strangers(std::uint16_t port, std::size_t count) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (std::size_t i = 0; i < count; ++i) knock(port);
    while (true) ::pause();
  }
  ~Strangers() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;

 private:
  pid_t pid_;
};

bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 3000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(ConnectionLimit, StrangersDoNotTakeAllDescriptorsAndMembersStillComeIn) {
  zmq::context_t context;
  zmq::socket_t listener(context, zmq::socket_type::pull);
  configure(listener.handle(), SocketUse::kReceiveFrames);
  ConnectionLimit limit(context, listener.handle(), kMost);
  const std::uint16_t port = bind(listener.handle(), "127.0.0.1", 0);
  const std::size_t before = open_descriptors();
  {
    // As many as there is room for: that the door is then shut is the work of a thread, which the
    // others wait for.
    const Strangers first(port, kMost);
    ASSERT_TRUE(eventually([&] { return !is_let_in(port); }));
    const Strangers others(port, kStrangers);
    std::size_t most = 0;
    for (int i = 0; i < 100; ++i) {
      most = std::max(most, open_descriptors());
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_GE(most, before + kMost);
    // And those that were in the system's queue.
    EXPECT_LE(most, before + 2 * kMost + 2);
    zmq::socket_t member(context, zmq::socket_type::push);
    configure(member.handle(), SocketUse::kSendFrames);
    member.connect(endpoint("127.0.0.1", port));
    member.send(zmq::str_buffer("here I am"), zmq::send_flags::none);
    zmq::message_t message;
    listener.set(zmq::sockopt::rcvtimeo, 60'000);
    ASSERT_TRUE(listener.recv(message)) << "strangers are cut off after 5 s";
    EXPECT_EQ(message.to_string(), "here I am");
  }
}

TEST(ConnectionLimit, IsAShareOfTheDescriptors) { EXPECT_GE(most_connections(), 32u); }

}  // namespace
}  // namespace autodist::comm
