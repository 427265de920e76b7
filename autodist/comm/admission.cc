#include "autodist/comm/admission.h"

#include <algorithm>

#include "autodist/base/check.h"

namespace autodist::comm {

bool Admission::admit(std::uint64_t step, SliceNumber slice) {
  AD_CHECK(slice < kSliceLimit) << "slice " << slice;
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
  std::vector<bool>& slices = came_[step - oldest_];
  if (slice >= slices.size()) slices.resize(std::max<std::size_t>(slice + 1, 64));
  const bool first = !slices[slice];
  slices[slice] = true;
  return first;
}

bool Admission::came(std::uint64_t step, SliceNumber slice) const {
  if (came_.empty() || step >= oldest_ + came_.size()) return false;
  if (step < oldest_) return true;
  const std::vector<bool>& slices = came_[step - oldest_];
  return slice < slices.size() && slices[slice];
}

}  // namespace autodist::comm
