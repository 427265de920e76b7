#include "autodist/exec/calls.h"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "autodist/base/error.h"
#include "autodist/base/job_ended.h"

namespace autodist::exec {
namespace {

// Ranks whose notes lie in a queue until they are delivered.
class Ranks {
 public:
  explicit Ranks(std::uint32_t count, Seconds limit = Seconds{5}) {
    program_.ranks.resize(count);
    for (std::uint32_t i = 0; i < count; ++i) program_.ranks[i].replica = i;
    positions_.resize(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      CallPeers peers;
      peers.post = [this, i](std::uint32_t to, Subject subject, std::uint64_t step,
                             const std::string& note) {
        comm::Frame frame;
        frame.header.from = i;
        frame.header.step = step;
        frame.header.kind = subject.kind();
        frame.header.id = subject.id;
        frame.payload = comm::Payload::copy_of(note);
        const std::lock_guard<std::mutex> lock(mutex_);
        queue_.emplace_back(to, std::move(frame));
      };
      peers.show = [this, i](comm::Position position) { positions_[i] = position; };
      peers.where = [this](std::uint32_t rank) { return std::optional(positions_[rank]); };
      peers.say = [this](const std::string& line) { lines_.push_back(line); };
      peers.abort = [](const std::exception_ptr&) {};
      signals_.push_back(std::make_unique<Signal>());
      calls_.push_back(std::make_unique<Calls>(program_, program::Rank(i), 0, limit,
                                               *signals_.back(), std::move(peers)));
    }
  }

  Calls& operator[](std::uint32_t rank) { return *calls_[rank]; }
  Signal& signal(std::uint32_t rank) { return *signals_[rank]; }
  std::vector<std::string>& lines() { return lines_; }
  std::size_t notes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return queue_.size();
  }

  void deliver() {
    for (;;) {
      std::vector<std::pair<std::uint32_t, comm::Frame>> queue;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        queue.swap(queue_);
      }
      if (queue.empty()) return;
      for (const auto& [to, frame] : queue) calls_[to]->take(frame);
    }
  }
  void step(std::uint32_t rank, std::uint64_t number) {
    calls_[rank]->begin_step(number);
    calls_[rank]->end_step();
  }

 private:
  program::Program program_;
  std::vector<std::unique_ptr<Signal>> signals_;
  std::vector<std::unique_ptr<Calls>> calls_;
  std::vector<comm::Position> positions_;
  std::mutex mutex_;
  std::vector<std::pair<std::uint32_t, comm::Frame>> queue_;
  std::vector<std::string> lines_;
};

template <typename Function>
std::pair<int, std::string> error_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return {static_cast<int>(error.code()), error.what()};
  }
  return {-1, "nothing was thrown"};
}

using Outcome = std::pair<int, std::string>;

TEST(Calls, StepsAndSummariesSendNothing) {
  Ranks ranks(2);
  for (std::uint64_t step = 0; step < 3; ++step) {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      ranks.step(rank, step);
      const auto call = ranks[rank].begin(Call::kSummarise, step + 1);
    }
  }
  EXPECT_EQ(ranks.notes(), 0u);
}

TEST(Calls, TheSameCallsInTheSameOrderAreFine) {
  Ranks ranks(3);
  for (std::uint64_t step = 0; step < 40; ++step) {
    for (const std::uint32_t rank : {2u, 0u, 1u}) {
      ranks.step(rank, step);
      for (const Call call : {Call::kEvaluate, Call::kSumOverRanks}) {
        const auto outer = ranks[rank].begin(call, step + 1);
        const auto inner = ranks[rank].begin(Call::kSynchronize, step + 1);  // a part of it
      }
      if (rank == 1) ranks.deliver();
    }
  }
}

TEST(Calls, AStepInTheCallsPlaceIsNamedWhicheverCameFirst) {
  const Outcome expected{
      2, "rank 0 called evaluate() at step 1, rank 1 is at step 2. Every rank calls it."};
  {
    Ranks ranks(2);
    for (std::uint32_t rank = 0; rank < 2; ++rank) ranks.step(rank, 0);
    const auto call = ranks[0].begin(Call::kEvaluate, 1);
    ranks.deliver();  // it may still come to it
    EXPECT_EQ(error_of([&] { ranks.step(1, 1); }), expected);
  }
  Ranks ranks(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) ranks.step(rank, 0);
  ranks.step(1, 1);
  const auto call = ranks[0].begin(Call::kEvaluate, 1);
  EXPECT_EQ(error_of([&] { ranks.deliver(); }), expected);
}

TEST(Calls, AnotherCallIsNamedWhicheverCameFirst) {
  const auto message = [](const char* first, const char* second) {
    return Outcome{2, std::string(first) + ", " + second +
                          ". Every rank makes the same calls in the same order."};
  };
  const char* chief = "rank 0 called evaluate() at step 0";
  const char* other = "rank 1 called sum_over_ranks() at step 0";
  Ranks ranks(2);
  const auto theirs = ranks[0].begin(Call::kEvaluate, 0);
  {
    Ranks late(2);
    const auto a = late[0].begin(Call::kEvaluate, 0);
    late.deliver();
    EXPECT_EQ(error_of([&] { late[1].begin(Call::kSumOverRanks, 0); }), message(chief, other));
  }
  const auto ours = ranks[1].begin(Call::kSumOverRanks, 0);
  EXPECT_EQ(error_of([&] { ranks.deliver(); }), message(chief, other));
}

TEST(Calls, ARankThatDoesNotSummariseIsNamedByItsNextStep) {
  Ranks ranks(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) ranks.step(rank, 0);
  const auto call = ranks[0].begin(Call::kSummarise, 1);
  ranks[1].summarised(0, 0);
  EXPECT_EQ(error_of([&] { ranks.step(1, 1); }),
            (Outcome{2,
                     "rank 0 called summarise() at step 1, rank 1 is at step 2. Every rank "
                     "calls it."}));
}

TEST(Calls, WhoIsWaitedForIsSaidOnceAndEndsTheWaitAtTheLimit) {
  Ranks ranks(3, Seconds{4});
  ranks.step(1, 0);
  const auto call = ranks[0].begin(Call::kSumOverRanks, 0);
  const auto there = ranks[2].enter(Call::kSave, 0);
  MutexLock lock(ranks.signal(0));
  const std::string whom =
      " in sum_over_ranks() at step 0 for rank 1, which is at step 1 and in no call, rank 2, which "
      "is in save() at step 0";
  const auto [code, text] = error_of([&] {
    ranks[0].wait(lock, {1, 2}, [](std::uint32_t) { return false; });
  });
  EXPECT_EQ(code, static_cast<int>(ErrorCode::kTimeout)) << text;
  EXPECT_NE(text.find(whom), std::string::npos) << text;
  EXPECT_EQ(ranks.lines(), std::vector<std::string>{"rank 0 waits" + whom});
}

TEST(Calls, WhomAStepAwaitsIsWhoIsFurthestBehind) {
  Ranks ranks(4);
  for (std::uint32_t rank = 0; rank < 4; ++rank) ranks.step(rank, 0);
  EXPECT_EQ(ranks[0].whom_a_step_awaits(1, true), "") << "all have contributed";
  ranks.step(0, 1);
  ranks.step(2, 1);
  ranks[3].begin_step(1);
  EXPECT_EQ(ranks[0].whom_a_step_awaits(2, true), "rank 1, which is at step 1 and in no call");
  EXPECT_EQ(ranks.lines(),
            std::vector<std::string>{
                "rank 0 waits in step 3 for rank 1, which is at step 1 and in no call"});
  ranks.step(1, 1);
  EXPECT_EQ(ranks[0].whom_a_step_awaits(2, false), "rank 3, which is in step 2");
}

TEST(Calls, AChiefThatSavesWithAllOthersSavesAtOnce) {
  Ranks ranks(3);
  for (std::uint32_t rank = 0; rank < 3; ++rank) ranks.step(rank, 0);
  ranks[1].come_to_save(1);
  ranks[2].come_to_save(1);
  ranks.deliver();
  EXPECT_TRUE(ranks[0].meet_to_save(1, {3, "folder"}));
  ranks.deliver();  // the chief's wish, to ranks that are through
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    ranks.step(rank, 1);
    ranks.deliver();
    EXPECT_TRUE(ranks[rank].take_due(3).empty());
  }
}

TEST(Calls, AChiefThatSavesAloneIsAnsweredByTheOthersNextStepOrCall) {
  Ranks ranks(3);
  for (std::uint32_t rank = 0; rank < 3; ++rank) ranks.step(rank, 0);
  { const auto call = ranks[1].begin(Call::kSumOverRanks, 1); }
  ranks.step(1, 1);  // is further already
  ranks.deliver();
  std::exception_ptr failure;
  std::thread others([&] {
    while (ranks.notes() < 2) std::this_thread::yield();
    try {
      ranks.deliver();
      const auto call = ranks[2].begin(Call::kSumOverRanks, 1);
      ranks.deliver();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  EXPECT_FALSE(ranks[0].meet_to_save(1, {3, "folder"}));
  others.join();
  EXPECT_FALSE(failure);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(ranks[rank].take_due(2).empty());
    const std::vector<DueSave> due = ranks[rank].take_due(3);
    ASSERT_EQ(due.size(), 1u) << "rank " << rank;
    EXPECT_EQ(due[0].directory, "folder");
    EXPECT_TRUE(ranks[rank].take_due(kAtTheEnd).empty());
  }
}

// The rank trains another step of the job meanwhile, and this one's last step is still to come.
TEST(Calls, ARankThatIsBehindComesToASaveInAnotherStepsTurn) {
  Ranks ranks(2);
  ranks.step(0, 0);
  ranks[1].set_away(true);
  std::thread other([&] {
    while (ranks.notes() < 1) std::this_thread::yield();
    ranks.deliver();
    ranks[1].set_away(false);
    ranks.step(1, 0);
    ranks[1].come_to_save(1);
    ranks.deliver();
  });
  EXPECT_TRUE(ranks[0].meet_to_save(1, {2, "folder"}));
  other.join();
  EXPECT_TRUE(ranks[1].take_due(2).empty());
}

TEST(Calls, AnotherStepsTurnBehindTheSameStepGoesPastASave) {
  Ranks ranks(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) ranks.step(rank, 0);
  ranks[1].set_away(true);
  std::thread other([&] {
    while (ranks.notes() < 1) std::this_thread::yield();
    ranks.deliver();
    ranks.deliver();
  });
  EXPECT_FALSE(ranks[0].meet_to_save(1, {2, "folder"}));
  other.join();
}

TEST(Calls, ASaveThatTheChiefDoesNotMakeIsNamed) {
  Ranks ranks(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) ranks.step(rank, 0);
  ranks[1].come_to_save(1);
  ranks.deliver();
  EXPECT_EQ(error_of([&] { ranks.step(0, 1); }),
            (Outcome{2,
                     "rank 1 called save() at step 1, rank 0 is at step 2. Every rank calls it, "
                     "or rank 0 alone."}));
}

TEST(Calls, AChiefThatWritesIsWaitedForAsLongAsItTakes) {
  Ranks ranks(2, Seconds{1e-3});
  for (std::uint32_t rank = 0; rank < 2; ++rank) ranks.step(rank, 0);
  const auto own = ranks[1].enter(Call::kSave, 1);
  const auto wait = [&](int looks) {
    MutexLock lock(ranks.signal(1));
    ranks[1].wait(lock, {0}, [&](std::uint32_t) { return looks-- <= 0; });
  };
  {
    const auto writes = ranks[0].enter(Call::kSave, 1);
    EXPECT_NO_THROW(wait(100));
  }
  const auto [code, text] = error_of([&] { wait(100); });
  EXPECT_EQ(code, static_cast<int>(ErrorCode::kTimeout));
  EXPECT_NE(text.find("in save() at step 1 for rank 0, which is at step 1 and in no call"),
            std::string::npos)
      << text;
}

TEST(Calls, AChiefThatFinishesEndsTheStepsOfTheOthersInOrder) {
  Ranks ranks(3);
  for (std::uint32_t rank = 0; rank < 3; ++rank) ranks.step(rank, 0);
  ranks.step(1, 1);
  ranks[0].come_to_finish(1);
  ranks.deliver();
  // One waits in its step, the other comes to it.
  EXPECT_THROW(ranks.signal(1).rethrow(), JobEnded);
  EXPECT_NO_THROW(ranks.signal(1).rethrow(Heeds::kFailure));
  EXPECT_EQ(error_of([&] { ranks.step(2, 1); }),
            (Outcome{0,
                     "rank 0 called finish() at step 1, rank 2 is at step 2: the job has "
                     "ended"}));
  ranks[1].come_to_finish(2);
  ranks[2].come_to_finish(2);
  EXPECT_NO_THROW(ranks.signal(1).rethrow());
  ranks.deliver();
  EXPECT_FALSE(ranks[0].all_finish(1));
  ranks.deliver();
  for (const std::uint32_t rank : {1u, 2u}) EXPECT_FALSE(ranks[rank].all_finish(2));
}

TEST(Calls, ARankMayComeLateToACallThatTheChiefMadeBeforeItsEnd) {
  Ranks ranks(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) ranks.step(rank, 0);
  { const auto evaluates = ranks[0].begin(Call::kEvaluate, 1); }
  { const auto fetches = ranks[0].begin(Call::kRunAndFetch, 1); }
  ranks[0].come_to_finish(1);
  ranks.deliver();
  { const auto evaluates = ranks[1].begin(Call::kEvaluate, 1); }
  { const auto fetches = ranks[1].begin(Call::kRunAndFetch, 1); }
  const Outcome expected{static_cast<int>(ErrorCode::kUsage),
                         "rank 0 called finish() at step 1, rank 1 called evaluate() at step 1. "
                         "Every rank makes the same calls in the same order."};
  EXPECT_EQ(error_of([&] { (void)ranks[1].begin(Call::kEvaluate, 1); }), expected);
}

TEST(Calls, RanksThatFinishAfterTheSameStepDoSoInOrder) {
  Ranks ranks(2);
  for (const std::uint32_t rank : {1u, 0u}) {
    ranks.step(rank, 0);
    ranks[rank].come_to_finish(1);
    ranks.deliver();
  }
  EXPECT_TRUE(ranks[0].all_finish(1));
  ranks.deliver();
  EXPECT_TRUE(ranks[1].all_finish(1));
}

TEST(Calls, ARankThatFinishesBeforeTheChiefIsNamed) {
  Ranks ranks(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) ranks.step(rank, 0);
  ranks[1].come_to_finish(1);
  ranks.deliver();
  EXPECT_EQ(error_of([&] { ranks.step(0, 1); }),
            (Outcome{2,
                     "rank 1 called finish() at step 1, rank 0 is at step 2. Every rank "
                     "calls it."}));
}

}  // namespace
}  // namespace autodist::exec
