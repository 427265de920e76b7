// A standby: all ranks of the job once more, started while the job trains. They have loaded their
// program, met and captured, and wait before their first step; after a loss they go on at once.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "autodist/app/supervision.h"
#include "autodist/base/error.h"

namespace autodist::app {

// `Ranks` are all ranks of one start: ended() says how the first of them ended, and nothing while
// all run; their destructor leaves none behind.
template <typename Ranks>
class Standby {
 public:
  // Starts the ranks of the standby with this number; may throw Error.
  using Start = std::function<std::unique_ptr<Ranks>(std::uint32_t number)>;

  Standby(Supervision& supervision, bool is_wanted, Start start)
      : supervision_(supervision), is_wanted_(is_wanted), start_(std::move(start)) {}

  // Often, while the job's ranks run: starts one when it is time, and ends one that would do
  // something else than the job by now, or whose job is to end.
  void look(bool job_is_to_end) {
    if (ranks_ && (job_is_to_end || !supervision_.standby_fits())) ranks_.reset();
    if (job_is_to_end) return;
    if (const auto ended = ranks_ ? ranks_->ended() : std::nullopt) {
      ranks_.reset();
      supervision_.note_standby_end(*ended);
    }
    if (!is_wanted_ || ranks_ || !supervision_.standby_is_due()) return;
    try {
      ranks_ = start_(supervision_.begin_standby());
    } catch (const Error& error) {
      supervision_.note_standby_end(error.what());
    }
  }

  // When the job's ranks are lost: whether there is one that can take over. One that is not ready
  // yet is given up: what keeps it from that is not known.
  [[nodiscard]] bool is_there() {
    const bool can = ranks_ && supervision_.standby_fits() && supervision_.standby_waits();
    if (!can) ranks_.reset();
    return can;
  }
  // It is the job from here on; null where there is none.
  std::unique_ptr<Ranks> take() { return std::exchange(ranks_, nullptr); }

 private:
  Supervision& supervision_;
  bool is_wanted_;
  Start start_;
  std::unique_ptr<Ranks> ranks_;
};

}  // namespace autodist::app
