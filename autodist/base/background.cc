#include "autodist/base/background.h"

#include <sched.h>

#include <algorithm>

namespace autodist {
namespace {

bool set_policy(int policy) {
  constexpr sched_param kNoPriority{};  // neither policy has any
  return ::sched_setscheduler(0, policy, &kNoPriority) == 0;
}

}  // namespace

// Who runs under another policy than the usual one has been told so by its user.
BackgroundThreads::BackgroundThreads()
    : changed_(::sched_getscheduler(0) == SCHED_OTHER && set_policy(SCHED_BATCH)) {}

BackgroundThreads::~BackgroundThreads() {
  if (changed_) set_policy(SCHED_OTHER);
}

void CoreOffers::made(Seconds begin, Seconds end) {
  const double factor = end - begin > kForeign ? 2 : 0.9;
  interval_ = std::clamp(interval_ * factor, kShortest, kLongest);
  next_ = end + interval_;
}

void offer_core(CoreOffers& offers, const Clock& clock) {
  const Seconds begin = clock.now();
  if (!offers.is_due(begin)) return;
  ::sched_yield();
  offers.made(begin, clock.now());
}

}  // namespace autodist
