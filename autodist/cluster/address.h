// Names and addresses of machines, as cluster files may give them.

#pragma once

#include <string>

namespace autodist::cluster {

// This machine, by any of its names for itself.
bool is_loopback(const std::string& address);

// A host name, or an IP address as it is usually written: no other spelling of one, nothing that a
// command line would take for an option.
bool is_address(const std::string& text);

}  // namespace autodist::cluster
