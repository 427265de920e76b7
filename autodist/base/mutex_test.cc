#include "autodist/base/mutex.h"

#include <gtest/gtest.h>

namespace autodist {
namespace {

TEST(Mutex, KnowsWhoHoldsIt) {
  Mutex mutex;
  EXPECT_THROW(mutex.assert_held(), InternalError);
  {
    MutexLock lock(mutex);
    EXPECT_NO_THROW(mutex.assert_held());
    std::thread other([&]() AD_UNCHECKED_THREADS {
      EXPECT_THROW(mutex.assert_held(), InternalError) << "another thread does";
    });
    other.join();
    lock.unlock();
    EXPECT_THROW(mutex.assert_held(), InternalError);
    lock.lock();
  }
  EXPECT_THROW(mutex.assert_held(), InternalError);
}

TEST(ConditionVariable, CallsItsConditionWithTheMutexHeld) {
  Mutex mutex;
  ConditionVariable changed;
  bool done = false;
  std::thread other([&] {
    const MutexLock lock(mutex);
    done = true;
    changed.notify_all();
  });
  {
    const MutexLock lock(mutex);
    changed.wait(mutex, [&]() AD_REQUIRES(mutex) {
      mutex.assert_held();
      return done;
    });
    mutex.assert_held();
    EXPECT_FALSE(changed.wait_for(mutex, Seconds{0.001}, [] { return false; }));
    mutex.assert_held();
    changed.wait_for(mutex, Seconds{0.001});
    mutex.assert_held();
  }
  other.join();
}

}  // namespace
}  // namespace autodist
