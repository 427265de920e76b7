#include "autodist/comm/admission.h"

#include <algorithm>

#include "autodist/base/check.h"

namespace autodist::comm {

FrameUse use_of(const FrameHeader& header, std::uint32_t generation) {
  const bool ours = header.generation == generation;
  if (header.kind == FrameKind::kAlive || (header.kind == FrameKind::kHeartbeat && !ours)) {
    return FrameUse::kSignOfLife;
  }
  if (header.kind == FrameKind::kControl || header.generation > generation) return FrameUse::kLater;
  return ours && header.id < kIdLimit ? FrameUse::kTaken : FrameUse::kRefused;
}

bool Admission::admit(std::uint64_t step, MessageId id) {
  AD_CHECK(id < kIdLimit) << "id " << id;
  if (came_.empty() || step >= oldest_ + came_.size() + kStepsApart) {
    came_.clear();
    oldest_ = step < kStepsApart ? 0 : step - kStepsApart + 1;
  }
  if (step < oldest_) return false;
  while (step >= oldest_ + came_.size()) came_.emplace_back();
  while (came_.size() > kStepsApart) {
    came_.pop_front();
    ++oldest_;
  }
  std::vector<bool>& ids = came_[step - oldest_];
  if (id >= ids.size()) ids.resize(std::max<std::size_t>(id + 1, 64));
  const bool first = !ids[id];
  ids[id] = true;
  return first;
}

bool Admission::came(std::uint64_t step, MessageId id) const {
  if (came_.empty() || step >= oldest_ + came_.size()) return false;
  if (step < oldest_) return true;
  const std::vector<bool>& ids = came_[step - oldest_];
  return id < ids.size() && ids[id];
}

}  // namespace autodist::comm
