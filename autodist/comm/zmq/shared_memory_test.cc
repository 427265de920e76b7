#include "autodist/comm/zmq/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <numeric>

namespace autodist::comm {
namespace {

constexpr std::size_t kCapacity = 1 << 20;

Payload bytes(std::size_t size, int first) {
  std::string text(size, '\0');
  std::iota(text.begin(), text.end(), static_cast<char>(first));
  return Payload::copy_of(text);
}

class SharedMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    blocks_ = SharedBlocks::make(kCapacity);
    ASSERT_NE(blocks_, nullptr) << "no memory files here";
    reader_ = SharedReader::open(getpid(), blocks_->name());
    ASSERT_NE(reader_, nullptr);
  }

  std::unique_ptr<SharedBlocks> blocks_;
  std::shared_ptr<SharedReader> reader_;
};

TEST_F(SharedMemory, HoldsWhatWasPutThere) {
  const Payload first = bytes(100'000, 1);
  const Payload second = bytes(3, 7);
  const auto at_first = blocks_->put(first);
  const auto at_second = blocks_->put(second);
  ASSERT_TRUE(at_first && at_second);
  EXPECT_EQ(SharedReader::at(reader_, *at_first)->to_string(), first.to_string());
  EXPECT_EQ(SharedReader::at(reader_, *at_second)->to_string(), second.to_string());
  const SharedReference again =
      decode_reference(reinterpret_cast<const std::byte*>(encode(*at_first).data()));
  EXPECT_EQ(again.offset, at_first->offset);
  EXPECT_EQ(again.size, at_first->size);
}

// 3 x 300,000 bytes fit; the fourth waits until a reader lets go.
TEST_F(SharedMemory, TakesABlockBackWhenNobodyKeepsIt) {
  std::vector<Payload> kept;
  for (int i = 0; i < 3; ++i) {
    const auto reference = blocks_->put(bytes(300'000, i));
    ASSERT_TRUE(reference);
    kept.push_back(*SharedReader::at(reader_, *reference));
  }
  EXPECT_FALSE(blocks_->put(bytes(300'000, 9)));
  EXPECT_TRUE(blocks_->put(bytes(1000, 9))) << "what fits in the rest";
  const Payload copy = kept[1];
  kept[1] = {};
  EXPECT_FALSE(blocks_->put(bytes(300'000, 9))) << "a copy still keeps it";
  const std::string before = kept[2].to_string();
  kept[0] = {};
  const auto reference = blocks_->put(bytes(299'000, 5));
  ASSERT_TRUE(reference);
  EXPECT_EQ(SharedReader::at(reader_, *reference)->to_string(), bytes(299'000, 5).to_string());
  EXPECT_EQ(kept[2].to_string(), before);
}

TEST_F(SharedMemory, CrossesProcesses) {
  const auto reference = blocks_->put(bytes(50'000, 3));
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    // As a stranger would: by process and descriptor.
    const auto reader = SharedReader::open(parent, blocks_->name());
    const bool equal =
        reader && SharedReader::at(reader, *reference)->to_string() == bytes(50'000, 3).to_string();
    _exit(equal ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(SharedMemory, IsNotWhatHasAnotherToken) {
  SharedMemoryName other = blocks_->name();
  ++other.token;
  EXPECT_EQ(SharedReader::open(getpid(), other), nullptr);
  EXPECT_EQ(SharedReader::open(getpid(), {0, 0}), nullptr) << "standard input";
  EXPECT_EQ(SharedReader::open(getpid(), {}), nullptr);
  EXPECT_EQ(SharedReader::open(1 << 30, blocks_->name()), nullptr);
}

TEST_F(SharedMemory, RefusesReferencesThatLeaveIt) {
  for (const SharedReference& bad : {SharedReference{0, 8},
                                     {64, 8},
                                     {129, 8},
                                     {kCapacity, 1},
                                     {128, kCapacity},
                                     {~std::uint64_t{0} - 63, 64},
                                     {128, ~std::uint64_t{0}}}) {
    EXPECT_FALSE(SharedReader::at(reader_, bad)) << bad.offset << " " << bad.size;
  }
  EXPECT_TRUE(SharedReader::at(reader_, {128, kCapacity - 128}));
}

TEST_F(SharedMemory, CannotBeTruncatedUnderAReader) {
  EXPECT_NE(ftruncate(blocks_->name().descriptor, 10), 0);
}

}  // namespace
}  // namespace autodist::comm
