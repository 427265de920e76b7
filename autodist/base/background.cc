#include "autodist/base/background.h"

#include <sched.h>

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

}  // namespace autodist
