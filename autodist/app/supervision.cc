#include "autodist/app/supervision.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "autodist/app/this_process.h"
#include "autodist/base/checkpoint_folder.h"
#include "autodist/base/file_system.h"
#include "autodist/base/step_folders.h"
#include "autodist/base/text.h"
#include "autodist/job/control_group.h"

namespace autodist::app {
namespace {

// A network that comes back, or an sshd that is started again, takes seconds.
constexpr Seconds kUntilSecondLook{5};
// As among ranks: a sign of life comes every second.
constexpr Seconds kSilenceIsSaid{3};
constexpr Seconds kLongestLook{1};
// Where the plan changes again and again, or a machine is short of something for a while.
constexpr Seconds kUntilNextStandby{2};
constexpr Seconds kUntilStandbyAgain{60};
constexpr int kMostDoubled = 6;
// It says that it waits every few milliseconds, if the machine lets it.
constexpr Seconds kStandbyIsHeard{0.5};
// Silence that calls for a look at the process.
constexpr Seconds kStrange{2};

// Not where it has ended (nobody may have waited for it yet), is another program by now (exec keeps
// the number, not the memory), or writes a core dump, which takes its time and ends by itself.
bool could_beat(std::int64_t process) {
  const auto read = [&](const char* name) {
    return job::read_if_there(fmt::format("/proc/{}/{}", process, name)).value_or("");
  };
  return read("maps").find("/memfd:autodist-job") != std::string::npos &&
         read("status").find("CoreDumping:\t1") == std::string::npos;
}

}  // namespace

Supervision::~Supervision() {
  if (faults_) faults_->summarise();
}

job::Membership& Supervision::membership() {
  if (!membership_) membership_ = machines_();
  return *membership_;
}

void Supervision::add_faults(const FaultPlan& plan) {
  faults_.emplace(
      plan, [this] { return membership().cluster(); }, membership().cpu_only());
}

std::optional<std::string> Supervision::look(const std::string& chief) {
  look_at_progress();
  look_at_standby();
  return silence_of(chief);
}

// The law among ranks. The chief alone is heard: the others are its own to watch.
std::optional<std::string> Supervision::silence_of(const std::string& chief) {
  constexpr comm::RankNumber kChief = 0;
  constexpr comm::RankNumber kWe = 1;
  const job::JobMemory::Heartbeats heartbeats = memory_.heartbeats();
  const Seconds now = clock_.now();
  const bool deaf = now - std::exchange(looked_, now) > kLongestLook;  // halted with the job
  const bool watched = arbiter_.restarts() > 0 || faults_;  // else nobody starts it again
  if (!watched || chief.empty() || heartbeats.beats == 0 ||
      heartbeats.silence_limit == Seconds{0}) {
    chief_.reset();
    return std::nullopt;
  }
  if (!chief_) {
    chief_.emplace(kWe, 2, heartbeats.silence_limit, heartbeats.silence_limit, now);
    heard_ = now;
  }
  if (heartbeats.beats != std::exchange(heartbeats_, heartbeats).beats) {
    comm::FrameHeader alive;
    alive.kind = comm::FrameKind::kAlive;
    alive.from = kChief;
    chief_->heard(alive, now);
    heard_ = now;
  }
  if (now - heard_ > kStrange && !could_beat(heartbeats.process)) {
    chief_.reset();
    return std::nullopt;
  }
  if (deaf) chief_->deaf_until(now);
  while (const auto news = chief_->news(kSilenceIsSaid, now)) {
    const std::string silent = to_string(news->silent);
    say_line(news->back ? fmt::format("{} is heard again, after {}", chief, silent)
                        : fmt::format("{} is silent for {}; waiting for it until {}", chief, silent,
                                      to_string(heartbeats.silence_limit)));
  }
  if (!chief_->lost(now)) return std::nullopt;
  return fmt::format("the chief, {}, has been silent for {} (--silence-timeout waits longer)",
                     chief, to_string(now - heard_));
}

void Supervision::look_at_progress() {
  if (!lost_at_ && !faults_) return;
  const job::JobMemory::Progress progress = memory_.progress();
  if (faults_) faults_->look(progress, lost_at_.has_value(), memory_.standby_that_runs());
  if (!lost_at_ || !progress.trained) return;
  const Seconds since = clock_.now() - *lost_at_;
  const std::int64_t again = progress.furthest_before - progress.first;
  say_line(fmt::format(
      "training again {} after the loss was noticed, from step {}{}", to_string(since),
      progress.first,
      again > 0 ? fmt::format("; {} step{} done once more", again, again == 1 ? " is" : "s are")
                : ""));
  memory_.note_recovery({progress.first, std::max<std::int64_t>(again, 0), since.value});
  if (faults_) faults_->note_training_again(std::max<std::int64_t>(again, 0));
  lost_at_.reset();
}

// Not beside trials, whose times it would change, and which will keep another plan.
bool Supervision::standby_is_due() const {
  return arbiter_.restarts() > 0 && memory_.progress().trained && !memory_.tries_plans() &&
         clock_.now() >= next_standby_;
}

std::uint32_t Supervision::begin_standby() {
  standby_lost_ = lost();
  standby_plans_ = memory_.plans_kept();
  says_when_ready_ = true;
  next_standby_ = clock_.now() + kUntilNextStandby;
  return ++standby_;
}

bool Supervision::standby_fits() const {
  return standby_lost_ == lost() && standby_plans_ == memory_.plans_kept();
}

bool Supervision::standby_waits() const {
  const job::JobMemory::StandingBy before = memory_.standing_by();
  if (before.standby != standby_) return false;
  const Seconds end = clock_.now() + kStandbyIsHeard;
  while (memory_.standing_by().beats == before.beats) {
    if (clock_.now() > end) return false;  // halted
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return memory_.standing_by().standby == standby_;
}

void Supervision::note_standby_end(const std::string& how) {
  next_standby_ =
      clock_.now() + kUntilStandbyAgain * (1 << std::min(failed_standbys_, kMostDoubled));
  if (failed_standbys_++ > 0) return;
  say_line(fmt::format("no standby: {}; it is tried again now and then", how));
}

void Supervision::look_at_standby() {
  if (!says_when_ready_ || memory_.standing_by().standby != standby_) return;
  says_when_ready_ = false;
  failed_standbys_ = 0;
  say_line("a standby is ready");
}

std::optional<std::string> Supervision::checkpoint_in(const std::string& folder) const {
  const std::int64_t saved = memory_.progress().saved;
  if (folder.empty() || saved < 0) return std::nullopt;
  RealFileSystem files;
  if (!has_step(files, folder, saved)) return std::nullopt;
  return step_folder(folder, saved);
}

void Supervision::save_snapshot() {
  const job::JobMemory::Progress progress = memory_.progress();
  const std::string folder = memory_.folder_of_snapshot();
  if (folder.empty() || progress.kept < 0) return;
  // What was saved elsewhere, by another job of the program say, is no reason to lose it.
  const auto saved = checkpoint_in(folder);
  if (saved && progress.kept <= progress.saved) return;
  const std::string path = step_folder(folder, progress.kept);
  RealFileSystem files;
  const auto write = [&](const std::string& to) {
    for (const std::string& name : memory_.files_of_snapshot()) {
      const std::string bytes = memory_.from_snapshot(name).value_or("");
      files.write_synced(fmt::format("{}/{}", to, name.substr(name.rfind('/') + 1)), {bytes});
    }
  };
  bool is_saved = false;
  const auto written = [&] {
    is_saved = true;
    memory_.note_saved(progress.kept);
    say_line(fmt::format("what was in memory is {}", path));
  };
  try {
    const CheckpointFolder held("save:", folder);  // which may be another job's by now
    put_in_place(files, folder, progress.kept, /*as_snapshot=*/false, write, written);
  } catch (const std::exception& error) {
    say_line(is_saved ? error.what()
                      : fmt::format("{}: what was in memory cannot be saved: {}. Checkpoints stand "
                                    "as they were.",
                                    path, without_dot(error.what())));
  }
}

std::string Supervision::where_it_begins(const std::string& folder) const {
  const job::JobMemory::Progress progress = memory_.progress();
  const std::int64_t saved = progress.saved;
  const std::int64_t kept = progress.kept;
  const auto checkpoint = checkpoint_in(folder);
  if (checkpoint && saved >= kept) return "from " + *checkpoint;
  if (kept >= 0 && (checkpoint || saved < 0 || !folder.empty())) {
    return fmt::format("from step {}, which is in memory", kept);
  }
  std::string newest;
  if (kept >= 0) newest = fmt::format("its newest snapshot is of step {}, ", kept);
  if (saved >= 0 && !folder.empty() && !checkpoint) {
    return "as it was started: its checkpoint is gone";
  }
  if (saved >= 0) return newest + fmt::format("its newest checkpoint is of step {}", saved);
  return "as it was started: it has saved no checkpoint yet";
}

std::vector<std::string> Supervision::lost() const {
  return membership_ ? membership_->lost() : std::vector<std::string>{};
}

Seconds Supervision::note_missing_machines(const job::JobMemory::Progress& progress) {
  if (progress.trained) {
    if (membership_) membership_->note_training();
    return Seconds{0};
  }
  const std::vector<std::string> unusable = memory_.unusable();
  if (!membership_ && unusable.empty()) return Seconds{0};
  const auto after = membership().note_failed_start(unusable);
  for (const std::string& line : after.changes) say_line(line);
  if (!after.changes.empty() || after.second_look) arbiter_.begin_anew();
  return after.second_look ? kUntilSecondLook : Seconds{0};
}

bool Supervision::goes_on(job::GenerationEnd end, const std::string& folder,
                          const std::atomic<bool>& stop, const std::function<bool()>& standby) {
  const job::JobMemory::Progress progress = memory_.progress();
  // A standby that ends before its first step is no loss of the job's: what it was is not counted.
  const bool in_vain =
      memory_.standby_that_runs() > 0 && !progress.trained && end != job::GenerationEnd::kInOrder;
  const bool once_trained = arbiter_.furthest() >= 0;
  const Seconds machines =
      once_trained && !stop && !in_vain ? note_missing_machines(progress) : Seconds{0};
  const auto steps = progress.trained ? std::optional(progress.furthest_all) : std::nullopt;
  auto pause = in_vain ? std::optional(Seconds{0}) : arbiter_.again(end, steps);
  if (!pause || stop) {
    if (arbiter_.gave_up() && arbiter_.restarts() > 0) {
      say_line(fmt::format(
          "given up: {} start{} in a row got no further than step {}. The lines of the first lost "
          "rank say why.",
          arbiter_.restarts(), arbiter_.restarts() == 1 ? "" : "s", progress.furthest));
      const std::string hint = membership_ ? membership_->hint() : "";
      if (!hint.empty()) say_line(hint);
    } else if (!stop && end == job::GenerationEnd::kLost && arbiter_.furthest() < 0 &&
               arbiter_.restarts() > 0) {
      say_line("not started again, as no step was made: what ended it would end it again");
    }
    return false;
  }
  pause = std::max(*pause, machines);
  if (!lost_at_) lost_at_ = clock_.now();
  const bool takes_over = standby();
  say_line(fmt::format("{}{} ({} of {}){}, {}", in_vain ? "the standby made no step: " : "",
                       takes_over ? "the standby takes over" : "starting again",
                       arbiter_.in_a_row(), arbiter_.restarts(),
                       pause->value > 0 ? " in " + to_string(*pause) : "",
                       where_it_begins(folder)));
  const Seconds begin = clock_.now() + *pause;
  while (clock_.now() < begin && !stop) std::this_thread::sleep_for(kLook);
  if (stop) return false;
  memory_.begin_generation(takes_over ? standby_ : 0, checkpoint_in(folder).value_or(""));
  says_when_ready_ = false;
  chief_.reset();
  return true;
}

}  // namespace autodist::app
