// Whether what the ranks of a job say to each other is encrypted.

#pragma once

#include <cstdint>
#include <string>

#include "autodist/cluster/cluster.h"

namespace autodist {

enum class Encryption : std::uint8_t { kAuto, kOn, kOff };
// "auto", "on" or "off"; throws Error(kUsage) for another word.
Encryption encryption_from_name(const std::string& name);

namespace planning {

// kAuto: where they are on more than one machine.
bool encrypts(Encryption encryption, const cluster::Cluster& cluster);

}  // namespace planning
}  // namespace autodist
