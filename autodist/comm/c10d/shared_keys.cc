#include "autodist/comm/c10d/shared_keys.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/bytes.h"
#include "autodist/comm/control.h"

namespace autodist::comm {

SharedKeys::~SharedKeys() { transport_.give_back(std::move(later_)); }

void SharedKeys::set(const std::string& key, const std::string& value) {
  values_[key] = value;
  const std::string bytes = ByteWriter().string(key).raw(value).take();
  tell_all(control_frame(ControlRole::kKey, Payload::copy_of(bytes)));
}

const std::string& SharedKeys::get(const std::string& key) {
  const Seconds until = clock_.now() + limit_;
  while (!has(key)) {
    if (!take(until)) give_up(fmt::format("'{}'", key));
  }
  return values_.at(key);
}

void SharedKeys::finish() {
  tell_all(control_frame(ControlRole::kLastKey, {}));
  const Seconds until = clock_.now() + limit_;
  while (finished_.size() + 1 < transport_.size()) {
    if (!take(until)) give_up("the end of the addresses");
  }
  // Ranks that were here sooner have gone on, and a library keeps its store.
  transport_.give_back(std::exchange(later_, {}));
}

void SharedKeys::tell_all(const Frame& frame) {
  for (RankNumber rank = 0; rank < transport_.size(); ++rank) {
    if (rank != transport_.self()) transport_.send(rank, frame);
  }
}

bool SharedKeys::take(Seconds until) {
  const Seconds left = until - clock_.now();
  if (left <= Seconds{0}) return false;
  transport_.look_around({"collectives", {}, limit_ - left});
  std::optional<Frame> frame = transport_.receive(std::min(left, kLookAround));
  if (!frame || is_sign_of_life(frame->header.kind)) return true;
  const FrameHeader& header = frame->header;
  const ControlRole role = role_of(*frame);
  if (header.kind == FrameKind::kGoodbye && frame->payload.size > 0) {
    fail(ErrorCode::kPeersLost, "collectives: {} left: {}", transport_.describe(header.from),
         frame->payload.to_string());
  }
  if (header.kind != FrameKind::kControl ||
      (role != ControlRole::kKey && role != ControlRole::kLastKey)) {
    later_.push_back(std::move(*frame));
    return true;
  }
  heard_.insert(header.from);
  if (role == ControlRole::kLastKey) {
    finished_.insert(header.from);
    return true;
  }
  const std::string bytes = frame->payload.to_string();
  ByteReader in(bytes);
  const std::string key = in.string();
  if (!in.good()) {
    fail(ErrorCode::kPeersLost, "collectives: {} sent a damaged key",
         transport_.describe(header.from));
  }
  values_[key] = in.raw(in.left());
  return true;
}

void SharedKeys::give_up(const std::string& what) const {
  std::vector<std::string> silent;
  for (RankNumber rank = 0; rank < transport_.size(); ++rank) {
    if (rank != transport_.self() && finished_.count(rank) == 0) {
      silent.push_back(transport_.describe(rank) + (heard_.count(rank) ? "" : ", never heard"));
    }
  }
  fail(ErrorCode::kPeersLost, "collectives: waited {} for {} from {}; {} waits longer",
       to_string(limit_), what, fmt::join(silent, "; "), kJoinLimit);
}

}  // namespace autodist::comm
