// Collects a rank's trace rows from its threads.

#pragma once

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "autodist/base/clock.h"
#include "autodist/ir/trace.h"

namespace autodist::exec {

class TraceRecorder {
 public:
  TraceRecorder(const Clock& clock, ir::Rank rank, bool enabled)
      : clock_(clock), rank_(rank), enabled_(enabled), origin_(clock.now()) {}

  [[nodiscard]] bool enabled() const { return enabled_; }
  [[nodiscard]] Seconds now() const { return clock_.now() - origin_; }

  // A row that ends now. Any thread. REQUIRES: enabled().
  void add(ir::Activity activity, ir::StreamKind stream, std::uint64_t step, std::string name,
           Bytes bytes, Seconds start, std::optional<ir::SliceWay> way = std::nullopt) {
    add({activity, rank_, stream, step, std::move(name), bytes, start, now(), way});
  }
  // Times of the clock, not of the trace.
  void add_between(ir::Activity activity, std::uint64_t step, std::string name, Bytes bytes,
                   Seconds start, Seconds end, const ir::SliceWay& way) {
    add({activity, rank_, ir::StreamKind::kTransfer, step, std::move(name), bytes, start - origin_,
         end - origin_, way});
  }

  // The clock's time at which the trace begins.
  [[nodiscard]] Seconds origin() const { return origin_; }

  // Everything since the last call, ordered by start.
  ir::Trace take() {
    ir::Trace trace;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      std::swap(trace, trace_);
    }
    std::stable_sort(trace.rows.begin(), trace.rows.end(),
                     [](const auto& a, const auto& b) { return a.start < b.start; });
    return trace;
  }

 private:
  void add(ir::TraceRow row) {
    const std::lock_guard<std::mutex> lock(mutex_);
    trace_.rows.push_back(std::move(row));
  }

  const Clock& clock_;
  ir::Rank rank_;
  bool enabled_;
  Seconds origin_;
  std::mutex mutex_;
  ir::Trace trace_;
};

}  // namespace autodist::exec
