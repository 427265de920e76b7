#include "autodist/comm/c10d/connections.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "autodist/base/numbers.h"

namespace autodist::comm {
namespace {

std::optional<ino_t> number_of(int descriptor) {
  struct stat about {};
  if (::fstat(descriptor, &about) != 0 || !S_ISSOCK(about.st_mode)) return std::nullopt;
  return about.st_ino;
}

bool is_connected(int descriptor) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return false;
  return peer.ss_family == AF_INET || peer.ss_family == AF_INET6;
}

}  // namespace

Connections Connections::now() {
  Connections all;
  std::error_code none;  // without the folder none is known, and a wait lasts as long as it may
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", none)) {
    const auto descriptor = as_number<int>(entry.path().filename().string());
    if (!descriptor) continue;
    const auto number = number_of(*descriptor);
    if (number && is_connected(*descriptor)) all.sockets_.push_back({*descriptor, *number});
  }
  return all;
}

Connections Connections::since(const Connections& before) const {
  Connections later;
  for (const Socket& each : sockets_) {
    const bool was_there =
        std::any_of(before.sockets_.begin(), before.sockets_.end(),
                    [&](const Socket& other) { return other.number == each.number; });
    if (!was_there) later.sockets_.push_back(each);
  }
  return later;
}

void Connections::shut_down() const {
  for (const Socket& each : sockets_) {
    if (number_of(each.descriptor) == each.number) ::shutdown(each.descriptor, SHUT_RDWR);
  }
}

}  // namespace autodist::comm
