// What this machine is called and how it is reached.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace autodist::job {

// A host's address as digits: itself for a literal, else what its name resolves to (IPv4 first).
// Throws Error(kEnvironment).
std::string resolved(const std::string& host);

// "ADDRESS:PORT", "[fd09::1]:PORT" (of another address of IPv6 without brackets, the last number is
// the port) in its two parts; nothing where one of them is missing.
struct HostPort {
  std::string host;  // without brackets
  std::string port;
};
std::optional<HostPort> host_and_port(const std::string& text);
// The inverse of host_and_port().
std::string with_port(const std::string& host, std::uint16_t port);

// Whether `host` names this machine: one of its addresses, of its names, or the loopback.
bool is_this_machine(const std::string& host);

// Addresses by which others may reach this machine, as digits; without the loopback's and those of
// one link alone.
std::vector<std::string> addresses_of_this_machine();

// The address of this machine from which `host` is reached. Throws Error(kEnvironment).
std::string address_towards(const std::string& host);

}  // namespace autodist::job
