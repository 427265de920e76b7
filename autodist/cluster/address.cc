#include "autodist/cluster/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace autodist::cluster {

bool is_loopback(const std::string& address) {
  std::string lower = address;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower == "localhost" || lower == "::1" || lower.rfind("127.", 0) == 0 ||
         lower.rfind("::ffff:127.", 0) == 0;
}

bool is_address(const std::string& text) {
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
  };
  if (text.empty() || text.front() == '-' || !std::all_of(text.begin(), text.end(), allowed)) {
    return false;
  }
  std::array<char, INET6_ADDRSTRLEN> usual{};
  in6_addr wide{};
  if (text.find(':') != std::string::npos) {
    const std::string literal = text.substr(0, text.find('%'));
    if (::inet_pton(AF_INET6, literal.c_str(), &wide) != 1) return false;
    return literal == ::inet_ntop(AF_INET6, &wide, usual.data(), usual.size());
  }
  in_addr narrow{};  // 0x7f.1, 127.1 and 2130706433 are addresses, too, to some programs
  if (::inet_aton(text.c_str(), &narrow) == 0) return true;
  return text == ::inet_ntop(AF_INET, &narrow, usual.data(), usual.size());
}

}  // namespace autodist::cluster
