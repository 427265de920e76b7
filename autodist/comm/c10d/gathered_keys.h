// The keys that Gloo exchanges its addresses through, over an agreement of the job's own ranks.
//
// Every rank sets its keys and then asks for those of all others, in the same order everywhere. So
// the first question for an unknown key gathers what every rank has set, and no server is needed.

#pragma once

#include <map>
#include <string>
#include <utility>

#include "autodist/base/units.h"
#include "autodist/comm/transport.h"

namespace autodist::comm {

class GatheredKeys {
 public:
  GatheredKeys(Transport& transport, Seconds limit) : transport_(transport), limit_(limit) {}

  void set(const std::string& key, std::string value) { keys_[key] = std::move(value); }
  [[nodiscard]] bool has(const std::string& key) const { return keys_.count(key) > 0; }

  // Gathers when the key is unknown. Throws Error(kPeersLost) naming the ranks that say nothing
  // within the limit, or the key that no rank has set.
  const std::string& get(const std::string& key);

 private:
  void gather();

  Transport& transport_;
  Seconds limit_;
  std::map<std::string, std::string> keys_;
};

}  // namespace autodist::comm
