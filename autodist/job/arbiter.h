// Decides whether a job that has lost a rank is started again. A generation is all ranks from one
// start to one end: it has a key of its own, so that nothing which is still on its way, and no rank
// that does not know of its end yet, can reach the next one. No clock, process or socket.

#pragma once

#include <cstdint>
#include <optional>

#include "autodist/base/units.h"

namespace autodist::job {

// How a generation ended.
enum class GenerationEnd {
  kInOrder,      // it is through, or has done what a signal asked for
  kLost,         // a rank died, hung, left, or threw
  kEnvironment,  // a machine, a port, a device that is not there
  kRefused,      // the same again would be refused again: arguments, files, a plan, a loss
};

// Of the rank because of which it ended, with this exit code, or by this signal: by one that asks a
// process to end, somebody wanted it so.
GenerationEnd end_of_exit(int code);
GenerationEnd end_of_signal(int number);

class Arbiter {
 public:
  // Gives up after so many starts in a row that got no further than the job had been before.
  explicit Arbiter(std::uint32_t restarts) : restarts_(restarts) {}

  // The job had done `steps` when the generation ended; nothing: it had not begun to train. Returns
  // how long to wait before all ranks are started again; nothing: the job is over. A job that has
  // never trained is over.
  std::optional<Seconds> again(GenerationEnd end, std::optional<std::int64_t> steps);

  // The job goes on with other machines, or takes a last look at one: starts in a row count anew.
  void begin_anew() { in_a_row_ = 0; }

  // Of the starts in a row: the number of the one that again() allowed.
  [[nodiscard]] std::uint32_t in_a_row() const { return in_a_row_; }
  [[nodiscard]] std::uint32_t restarts() const { return restarts_; }
  // Whether the job is over because there were as many as that.
  [[nodiscard]] bool gave_up() const { return gave_up_; }
  // The most steps that the job has done; -1: it has not trained.
  [[nodiscard]] std::int64_t furthest() const { return furthest_; }

 private:
  std::uint32_t restarts_;
  std::uint32_t in_a_row_ = 0;
  bool gave_up_ = false;
  std::int64_t furthest_ = -1;
};

}  // namespace autodist::job
