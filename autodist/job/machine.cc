#include "autodist/job/machine.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/cluster/address.h"

namespace autodist::job {
namespace {

// "" for another family.
std::string digits_of(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;  // NOLINT: the sockets' way
  } else if (address->sa_family == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;  // NOLINT
  } else {
    return "";
  }
  return ::inet_ntop(address->sa_family, bytes, text.data(), text.size());
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses look_up(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), "9", &wanted, &found);
  if (error != 0) {
    fail(ErrorCode::kEnvironment,
         "the host '{}' cannot be resolved: {}. Give its address in digits, or add the name to "
         "/etc/hosts or the name server.",
         host, ::gai_strerror(error));
  }
  return {found, ::freeaddrinfo};
}

// IPv4 first: what a name stands for on most clusters.
const addrinfo& preferred(const Addresses& addresses) {
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    if (each->ai_family == AF_INET) return *each;
  }
  return *addresses;
}

std::vector<std::string> own_addresses() {
  ifaddrs* all = nullptr;
  std::vector<std::string> addresses;
  if (::getifaddrs(&all) != 0) return addresses;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    addresses.push_back(digits_of(each->ifa_addr));
  }
  ::freeifaddrs(all);
  return addresses;
}

bool is_own_name(const std::string& host) {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return false;
  const std::string own = name.data();
  return host == own || host == own.substr(0, own.find('.'));
}

}  // namespace

std::string resolved(const std::string& host) {
  return digits_of(preferred(look_up(host)).ai_addr);
}

std::optional<HostPort> host_and_port(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size()) return std::nullopt;
  std::string host = text.substr(0, colon);
  if (host.front() == '[') {
    if (host.back() != ']' || host.size() < 3) return std::nullopt;
    host = host.substr(1, host.size() - 2);
  }
  return HostPort{host, text.substr(colon + 1)};
}

std::string with_port(const std::string& host, std::uint16_t port) {
  const bool wide = host.find(':') != std::string::npos;
  return wide ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

bool is_this_machine(const std::string& host) {
  if (cluster::is_loopback(host) || is_own_name(host)) return true;
  const std::vector<std::string> own = own_addresses();
  return std::find(own.begin(), own.end(), resolved(host)) != own.end();
}

std::vector<std::string> addresses_of_this_machine() {
  std::vector<std::string> addresses;
  for (const std::string& each : own_addresses()) {
    const bool of_one_link = each.rfind("fe80:", 0) == 0;
    if (!each.empty() && !of_one_link && !cluster::is_loopback(each)) addresses.push_back(each);
  }
  return addresses;
}

std::string address_towards(const std::string& host) {
  const Addresses addresses = look_up(host);
  const addrinfo& to = preferred(addresses);
  // Nothing is sent: connecting a datagram socket only asks the routes.
  const Descriptor socket(::socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  auto* address = reinterpret_cast<sockaddr*>(&own);  // NOLINT
  if (socket.get() < 0 || ::connect(socket.get(), to.ai_addr, to.ai_addrlen) != 0 ||
      ::getsockname(socket.get(), address, &length) != 0) {
    fail(ErrorCode::kEnvironment,
         "no route to '{}': {}. Give an address that this machine reaches.", host,
         std::strerror(errno));
  }
  return digits_of(address);
}

}  // namespace autodist::job
