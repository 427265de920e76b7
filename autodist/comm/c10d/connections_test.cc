#include "autodist/comm/c10d/connections.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "autodist/base/file.h"

namespace autodist::comm {
namespace {

struct Connected {
  Descriptor here;
  Descriptor there;
};

Connected connected() {
  const Descriptor listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(listener.get(), where, size), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), where, &size), 0);
  Connected pair;
  pair.here = Descriptor(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(::connect(pair.here.get(), where, size), 0);
  pair.there = Descriptor(::accept(listener.get(), nullptr, nullptr));
  return pair;
}

bool has_ended(const Descriptor& socket) {
  char byte = 0;
  return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

TEST(Connections, ThoseOfALaterTimeAreShutDown) {
  const Connected before = connected();
  const Connections first = Connections::now();
  const Connected later = connected();
  Connections::now().since(first).shut_down();
  EXPECT_TRUE(has_ended(later.here) && has_ended(later.there));
  EXPECT_FALSE(has_ended(before.here) || has_ended(before.there));
}

TEST(Connections, ADescriptorThatIsAnothersNowIsLeftAlone) {
  const Connections none = Connections::now();
  Connected pair = connected();
  const int descriptor = pair.here.get();
  const Connections ours = Connections::now().since(none);
  pair.here = Descriptor();
  const Connected other = connected();
  ASSERT_EQ(::dup2(other.here.get(), descriptor), descriptor);
  const Descriptor again(descriptor);
  ours.shut_down();
  EXPECT_FALSE(has_ended(other.here) || has_ended(other.there));
}

}  // namespace
}  // namespace autodist::comm
