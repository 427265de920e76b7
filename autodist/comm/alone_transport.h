// The transport of a job of one rank, which has nobody to talk to.

#pragma once

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "autodist/base/check.h"
#include "autodist/comm/transport.h"

namespace autodist::comm {

class AloneTransport final : public Transport {
 public:
  [[nodiscard]] RankNumber self() const override { return 0; }
  [[nodiscard]] RankNumber size() const override { return 1; }
  [[nodiscard]] std::string describe(RankNumber rank) const override {
    return fmt::format("rank {} (in this process)", rank);
  }
  void send(RankNumber to, Frame) override { AD_CHECK(false) << "to " << to << " from 0"; }
  void close(Seconds) override {}

 protected:
  std::optional<Frame> receive_next(Seconds timeout) override {
    std::this_thread::sleep_for(std::chrono::duration<double>(timeout.value));
    return std::nullopt;
  }
};

}  // namespace autodist::comm
