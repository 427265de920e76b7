#include "autodist/app/metrics.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "autodist/app/event.pb.h"
#include "autodist/base/error.h"
#include "tests/outcome_of.h"

namespace autodist::app {
namespace {

namespace fs = std::filesystem;
using testing_jobs::slurp;

class Metrics : public ::testing::Test {
 protected:
  static StepMetrics at(std::int64_t step) {
    return {step,
            1.5e9 + static_cast<double>(step),
            {{"loss", 0.25 * static_cast<double>(step)}, {"samples_per_second", 1000}}};
  }

  const std::vector<std::string> kNames{"loss", "samples_per_second"};
  const testing_jobs::Scratch folder_;
};

TEST_F(Metrics, JsonLinesAndCsvGoByTheName) {
  for (const std::int64_t step : {3, 4}) {  // each run appends
    open_lines("--log", folder_ / "log.jsonl", kNames)->write(at(step));
    open_lines("--log", folder_ / "log.csv", kNames)->write(at(step));
  }
  EXPECT_EQ(slurp(folder_ / "log.jsonl"),
            "{\"step\":3,\"loss\":0.75,\"samples_per_second\":1000.0}\n"
            "{\"step\":4,\"loss\":1.0,\"samples_per_second\":1000.0}\n");
  EXPECT_EQ(slurp(folder_ / "log.csv"), "step,loss,samples_per_second\n3,0.75,1000\n4,1,1000\n");
  EXPECT_THROW(open_lines("--log", folder_ / "no/such/folder/log.csv", kNames), Error);
}

TEST_F(Metrics, ThePlanOfAStepStandsLast) {
  StepMetrics metrics = at(3);
  metrics.plan = "builder AllReduce:chunk_size=1,algorithm=ring";
  for (int run = 0; run < 2; ++run) {
    open_lines("--log", folder_ / "log.jsonl", kNames)->write(metrics);
    open_lines("--log", folder_ / "log.csv", kNames)->write(metrics);
  }
  const std::string line =
      "{\"step\":3,\"loss\":0.75,\"samples_per_second\":1000.0,"
      "\"plan\":\"builder AllReduce:chunk_size=1,algorithm=ring\"}\n";
  EXPECT_EQ(slurp(folder_ / "log.jsonl"), line + line);
  const std::string row = "3,0.75,1000,\"builder AllReduce:chunk_size=1,algorithm=ring\"\n";
  EXPECT_EQ(slurp(folder_ / "log.csv"), "step,loss,samples_per_second,plan\n" + row + row);

  open_lines("--log", folder_ / "old.csv", kNames)->write(at(2));
  open_lines("--log", folder_ / "old.csv", kNames)->write(metrics);
  EXPECT_EQ(slurp(folder_ / "old.csv"), "step,loss,samples_per_second\n2,0.5,1000\n3,0.75,1000\n");
}

TEST_F(Metrics, AreNotPutUnderOtherColumns) {
  const std::string path = folder_ / "log.csv";
  EXPECT_NO_THROW(expect_lines("--log", path, kNames));
  open_lines("--log", path, kNames)->write(at(1));
  EXPECT_NO_THROW(expect_lines("--log", path, kNames));
  const std::vector<std::string> others{"loss", "lr", "samples_per_second"};
  EXPECT_EQ(testing_jobs::refusal([&] { expect_lines("--log", path, others); }),
            "--log " + path +
                ": has the columns 'step,loss,samples_per_second', "
                "'step,loss,lr,samples_per_second' expected. Name another file.");
  EXPECT_THROW(open_lines("--log", path, others), Error);
  EXPECT_NO_THROW(expect_lines("--log", "", others));
}

TEST_F(Metrics, AFullDiskIsSaidAndLeavesWholeRows) {
  const auto full = open_lines("log=", "/dev/full", kNames);
  EXPECT_EQ(full->failure(), "");
  EXPECT_FALSE(full->write(at(1)));
  EXPECT_FALSE(full->write(at(2)));
  EXPECT_EQ(full->failure(), "log= /dev/full: No space left on device");

  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto limit = [&](rlim_t bytes) {
    const rlimit low{bytes, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &low);
  };
  const auto csv = open_lines("--log", folder_ / "log.csv", kNames);
  limit(10);  // the head fits, its row does not
  EXPECT_FALSE(csv->write(at(1)));
  limit(before.rlim_cur);
  EXPECT_TRUE(csv->write(at(2)));
  limit(60);
  EXPECT_FALSE(csv->write(at(1'000'000'000'000'000'000)));
  limit(before.rlim_cur);
  EXPECT_TRUE(csv->write(at(3)));
  EXPECT_EQ(slurp(folder_ / "log.csv"), "step,loss,samples_per_second\n2,0.5,1000\n3,0.75,1000\n");
  EXPECT_EQ(csv->failure(), "--log " + (folder_ / "log.csv") + ": File too large");
}

// The CRC-32C of "123456789" is 0xe3069283 (RFC 3720, appendix B.4); rotated right by 15 bits,
// 0x2507c60d.
TEST(TensorBoardRecord, HasLengthAndMaskedChecksums) {
  const std::string record = tensorboard_record("123456789");
  ASSERT_EQ(record.size(), 8U + 4 + 9 + 4);
  EXPECT_EQ(record.substr(0, 8), std::string("\x09\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 9), "123456789");
  std::uint32_t checksum = 0;
  std::memcpy(&checksum, record.data() + 21, 4);
  EXPECT_EQ(checksum, 0x2507c60dU + 0xa282ead8U);
}

TEST_F(Metrics, TensorBoardsEventsSayStepAndValues) {
  {
    const auto log = open_tensorboard("--tensorboard", folder_ / "runs/a", 1.5e9);
    log->write(at(0));
    log->write(at(7));
  }
  const auto file = fs::directory_iterator(folder_ / "runs/a");
  EXPECT_EQ(file->path().filename().string().rfind("events.out.tfevents.1500000000.", 0), 0U);
  const std::string bytes = slurp(file->path());
  std::vector<tensorboard::Event> events;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint64_t size = 0;
    std::memcpy(&size, bytes.data() + at, sizeof size);
    const std::string body = bytes.substr(at + 12, size);
    EXPECT_EQ(bytes.substr(at, size + 16), tensorboard_record(body));
    ASSERT_TRUE(events.emplace_back().ParseFromString(body));
    at += size + 16;
  }
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[2].step(), 7);
  EXPECT_EQ(events[2].wall_time(), 1.5e9 + 7);
  EXPECT_EQ(events[2].summary().value(0).tag(), "loss");
  EXPECT_EQ(events[2].summary().value(0).simple_value(), 1.75F);
}

}  // namespace
}  // namespace autodist::app
