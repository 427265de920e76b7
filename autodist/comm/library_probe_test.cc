#include "autodist/comm/library_probe.h"

#include <gtest/gtest.h>

namespace autodist::comm {
namespace {

// Time passes in all-reduces alone.
class Library final : public Collectives, public Clock {
 public:
  Library(double call, double bytes_per_s) : call_(call), bytes_per_s_(bytes_per_s) {}
  void all_reduce(void* data, std::size_t count, DType dtype) override {
    ASSERT_NE(data, nullptr);
    const auto bytes = static_cast<double>(count * size_of(dtype));
    // Whoever begins pays for connections, and now and then a call is slow.
    const double slow = calls_++ % 5 == 0 ? 10 : 1;
    now_ += slow * (call_ + bytes / bytes_per_s_);
  }
  [[nodiscard]] std::string describe() const override { return "a library"; }
  [[nodiscard]] Seconds now() const override { return Seconds(now_); }

 private:
  double call_;
  double bytes_per_s_;
  double now_ = 0;
  int calls_ = 0;
};

TEST(LibraryProbe, TellsWhatACallTakesFromWhatItsBytesDo) {
  Library library(7e-3, 20e6);
  const LibraryFigures figures = probe_library(library, library);
  EXPECT_NEAR(figures.call.value, 7e-3, 1e-5);
  EXPECT_NEAR(figures.bytes_per_s, 20e6, 2e4);
}

TEST(LibraryProbe, ARateIsKnownWhereBytesTakeNoTime) {
  Library library(7e-3, 1e15);
  EXPECT_GT(probe_library(library, library).bytes_per_s, 1e8);
}

}  // namespace
}  // namespace autodist::comm
