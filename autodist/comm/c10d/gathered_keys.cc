#include "autodist/comm/c10d/gathered_keys.h"

#include "autodist/base/error.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/bytes.h"

namespace autodist::comm {

const std::string& GatheredKeys::get(const std::string& key) {
  if (!has(key)) gather();
  const auto found = keys_.find(key);
  if (found == keys_.end()) {
    fail(ErrorCode::kPeersLost, "collectives: no rank has set '{}'", key);
  }
  return found->second;
}

void GatheredKeys::gather() {
  ByteWriter out;
  for (const auto& [key, value] : keys_) out.string(key).u64(value.size()).raw(value);
  for (const std::string& bytes : all_gather(transport_, out.take(), "gloo addresses", limit_)) {
    ByteReader in(bytes);
    while (in.good() && in.left() > 0) {
      const std::string key = in.string();
      std::string value = in.raw(in.u64());
      if (in.good()) keys_.emplace(key, std::move(value));
    }
    if (!in.good()) fail(ErrorCode::kPeersLost, "collectives: a peer's addresses are damaged");
  }
}

}  // namespace autodist::comm
