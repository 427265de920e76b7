#include "autodist/app/supervision.h"

#include <fmt/format.h>

#include <thread>

#include "autodist/app/this_process.h"

namespace autodist::app {
namespace {

constexpr std::chrono::milliseconds kLook{20};

}  // namespace

void Supervision::look() {
  if (!lost_at_) return;
  const job::JobMemory::Progress progress = memory_.progress();
  if (!progress.trained()) return;
  const Seconds since{std::chrono::duration<double>(Clock::now() - *lost_at_).count()};
  const std::int64_t again = arbiter_.furthest() - progress.first;
  say_line(fmt::format("training again {} after the loss was noticed, from step {}{}",
                       to_string(since), progress.first,
                       again > 0 ? fmt::format("; {} steps are done once more", again) : ""));
  lost_at_.reset();
}

std::optional<std::string> Supervision::checkpoint_in(const std::string& folder) const {
  const std::int64_t saved = memory_.progress().saved;
  if (folder.empty() || saved < 0) return std::nullopt;
  return fmt::format("{}/step-{}", folder, saved);
}

std::string Supervision::where_it_begins(const std::string& folder) const {
  if (const auto checkpoint = checkpoint_in(folder)) return "from " + *checkpoint;
  const std::int64_t saved = memory_.progress().saved;
  if (saved >= 0) return fmt::format("its newest checkpoint is of step {}", saved);
  return "as it was started: it has saved no checkpoint yet";
}

bool Supervision::goes_on(job::GenerationEnd end, const std::string& folder,
                          const std::atomic<bool>& stop) {
  const job::JobMemory::Progress progress = memory_.progress();
  const auto pause =
      arbiter_.again(end, progress.trained() ? std::optional(progress.done) : std::nullopt);
  if (!pause || stop) {
    if (arbiter_.gave_up() && arbiter_.restarts() > 0) {
      say_line(fmt::format("given up: {} start{} in a row got no further than step {}",
                           arbiter_.restarts(), arbiter_.restarts() == 1 ? "" : "s",
                           arbiter_.furthest()));
    }
    return false;
  }
  if (!lost_at_) lost_at_ = Clock::now();
  say_line(fmt::format("starting again ({} of {}){}, {}", arbiter_.in_a_row(), arbiter_.restarts(),
                       pause->value > 0 ? " in " + to_string(*pause) : "",
                       where_it_begins(folder)));
  const auto begin = Clock::now() + std::chrono::duration<double>(pause->value);
  while (Clock::now() < begin && !stop) std::this_thread::sleep_for(kLook);
  memory_.begin_generation();
  return !stop;
}

}  // namespace autodist::app
