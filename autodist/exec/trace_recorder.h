// Collects a rank's trace rows from its threads: of all steps, or of the last so many.

#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "autodist/base/clock.h"
#include "autodist/base/mutex.h"
#include "autodist/program/trace.h"

namespace autodist::exec {

// Of a trace that has ended: the rows that nobody has taken, and the clock's time when it began.
struct EarlierTrace {
  program::Trace rows;
  std::optional<Seconds> origin;  // nothing: there was none
};

class TraceRecorder {
 public:
  // Keeps rows of the newest `steps` steps; 0: of all.
  // `earlier`: goes on where another one ended.
  TraceRecorder(const Clock& clock, program::Rank rank, bool enabled, std::uint64_t steps = 0,
                const EarlierTrace& earlier = {})
      : clock_(clock),
        rank_(rank),
        enabled_(enabled),
        steps_(steps),
        origin_(earlier.origin.value_or(clock.now())) {
    for (const program::TraceRow& row : earlier.rows.rows) add(row);
  }

  [[nodiscard]] bool enabled() const { return enabled_; }
  [[nodiscard]] Seconds now() const { return clock_.now() - origin_; }
  // When a row begins that add() ends. Where none are kept no clock is read.
  [[nodiscard]] Seconds start_of_row() const { return enabled_ ? now() : Seconds{}; }

  // A row that ends now, where rows are kept. Any thread.
  void add(program::Activity activity, program::StreamKind stream, std::uint64_t step,
           const std::string& name, Bytes bytes, Seconds start,
           std::optional<program::SliceHop> hop = std::nullopt) {
    if (enabled_) add({activity, rank_, stream, step, name, bytes, start, now(), hop});
  }
  // Times of the clock, not of the trace. REQUIRES: enabled().
  void add_between(program::Activity activity, std::uint64_t step, std::string name, Bytes bytes,
                   Seconds start, Seconds end, const program::SliceHop& hop) {
    add({activity, rank_, program::StreamKind::kTransfer, step, std::move(name), bytes,
         start - origin_, end - origin_, hop});
  }

  // The clock's time at which the trace begins.
  [[nodiscard]] Seconds origin() const { return origin_; }

  // Everything since the last call, ordered by start.
  program::Trace take() {
    std::deque<program::TraceRow> rows;
    std::uint64_t first = 0;  // of a step that came late, rows may stand behind newer ones
    {
      const MutexLock lock(mutex_);
      std::swap(rows, rows_);
      first = kept_from();
    }
    program::Trace trace;
    trace.origin = program::TraceOrigin::kRun;
    for (program::TraceRow& row : rows) {
      if (row.step >= first) trace.rows.push_back(std::move(row));
    }
    std::stable_sort(trace.rows.begin(), trace.rows.end(),
                     [](const auto& a, const auto& b) { return a.start < b.start; });
    return trace;
  }

 private:
  void add(program::TraceRow row) {
    const MutexLock lock(mutex_);
    newest_ = std::max(newest_, row.step);
    rows_.push_back(std::move(row));
    while (rows_.front().step < kept_from()) rows_.pop_front();
  }

  [[nodiscard]] std::uint64_t kept_from() const AD_REQUIRES(mutex_) {
    return steps_ == 0 || newest_ < steps_ ? 0 : newest_ - steps_ + 1;
  }

  const Clock& clock_;
  program::Rank rank_;
  bool enabled_;
  std::uint64_t steps_;
  Seconds origin_;
  Mutex mutex_;
  std::uint64_t newest_ AD_GUARDED_BY(mutex_) = 0;
  std::deque<program::TraceRow> rows_ AD_GUARDED_BY(mutex_);
};

}  // namespace autodist::exec
