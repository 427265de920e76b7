#include "autodist/planning/encryption.h"

#include "autodist/base/error.h"

namespace autodist {

Encryption encryption_from_name(const std::string& name) {
  if (name == "auto") return Encryption::kAuto;
  if (name == "on") return Encryption::kOn;
  if (name == "off") return Encryption::kOff;
  fail(ErrorCode::kUsage, "encrypt '{}': auto, on or off expected", name);
}

bool planning::encrypts(Encryption encryption, const cluster::Cluster& cluster) {
  if (encryption == Encryption::kAuto) return cluster.nodes.size() > 1;
  return encryption == Encryption::kOn;
}

}  // namespace autodist
