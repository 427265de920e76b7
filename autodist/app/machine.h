// What this machine is called and how it is reached.

#pragma once

#include <string>
#include <vector>

namespace autodist::app {

// A host's address as digits: itself for a literal, else what its name resolves to (IPv4 first).
// Throws Error(kEnvironment).
std::string resolved(const std::string& host);

// Whether `host` names this machine: one of its addresses, of its names, or the loopback.
bool is_this_machine(const std::string& host);

// Addresses by which others may reach this machine, as digits; without the loopback's and those of
// one link alone.
std::vector<std::string> addresses_of_this_machine();

// The address of this machine from which `host` is reached. Throws Error(kEnvironment).
std::string address_towards(const std::string& host);

}  // namespace autodist::app
