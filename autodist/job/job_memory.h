// What a job remembers when all of its ranks have ended and are started again: how far it was, what
// it had saved, which plan it ran, which machines could not be used, what its ranks computed with
// and which losses, how it came back before, and the newest snapshot of its state; and whether its
// chief lives.
//
// It is memory without a name in any file system, made by the process that supervises the job and
// inherited by every generation's chief. It is gone when both have ended, however they end.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autodist/base/environment.h"
#include "autodist/base/file.h"
#include "autodist/base/units.h"

namespace autodist::job {

class JobMemory {
 public:
  // The variable from which a chief knows the descriptor.
  static constexpr const char* kVariable = "AUTODIST_JOB_FD";

  // A supervisor's, empty. Throws Error(kEnvironment).
  JobMemory();
  // The one that a chief has inherited; nothing for a job that nobody supervises. Processes that
  // the chief starts do not inherit it. Throws Error(kUsage) where the variable names something
  // else.
  static std::optional<JobMemory> inherited(const Environment& environment);
  ~JobMemory();
  JobMemory(JobMemory&& other) noexcept;
  JobMemory& operator=(JobMemory&& other) noexcept;

  [[nodiscard]] int descriptor() const { return file_.get(); }

  // A program may train several models, one after the other or in turn: each is counted by itself.
  struct Progress {
    std::int64_t first = -1;  // the step with which this generation began to train; -1: it has not
    std::int64_t done = -1;   // steps done, of the whole job; -1: it trains not yet
    bool trained = false;     // this generation has done a step
    std::int64_t furthest = 0;      // the most steps done of the model that was trained last
    std::int64_t furthest_all = 0;  // and of every model together
    // That `furthest` of the generations before this one: steps up to it are done once more.
    std::int64_t furthest_before = 0;
    std::int64_t saved = -1;  // the newest checkpoint that the job has written; -1: none
    std::int64_t kept = -1;   // the step of the snapshot; -1: none
  };
  // As it stands; the chief may be writing.
  [[nodiscard]] Progress progress() const;

  struct Recovery {
    std::int64_t step = 0;         // with which the job trained again
    std::int64_t steps_again = 0;  // done once more
    double seconds = 0;            // since the loss was noticed
  };
  // By the supervisor; the last ones, as many as fit.
  void note_recovery(const Recovery& recovery);
  [[nodiscard]] std::vector<Recovery> recoveries() const;

  // By who starts the ranks: these machines could not be used, in this generation. As many as fit.
  void note_unusable(const std::vector<std::string>& addresses);
  [[nodiscard]] std::vector<std::string> unusable() const;

  // By the supervisor, while none of the last generation's ranks lives: the next one has done
  // nothing yet. It is this standby, where it is one, and goes on from this checkpoint, or (empty)
  // from where its program says, unless a snapshot is newer.
  void begin_generation(std::uint32_t standby = 0, const std::string& checkpoint = "");
  // By a standby's chief, again and again: all of its ranks wait for their turn; or (0) they do no
  // more.
  void note_standing_by(std::uint32_t standby);
  // By a standby's chief: the checkpoint of begin_generation(), once its turn has come.
  [[nodiscard]] std::optional<std::string> turn_of(std::uint32_t standby) const;
  struct StandingBy {
    std::uint32_t standby = 0;  // that waits; 0: none
    std::int64_t beats = 0;     // how often it has said so
  };
  [[nodiscard]] StandingBy standing_by() const;
  // Which standby the generation is; 0: none.
  [[nodiscard]] std::uint32_t standby_that_runs() const;
  // By the chief: so many steps are done of the program's first, second, … model. The first call
  // says where its training begins.
  void note_steps(std::size_t model, std::int64_t done);
  // By the chief, from any thread: a checkpoint of this step is on a disk; one that is a snapshot
  // goes with forget_snapshot().
  void note_saved(std::int64_t step, bool is_snapshot = false);

  // By the chief, from any thread, again and again: it lives. When it has not said so for the limit
  // it is lost; a limit of 0 s: it need not say so any more.
  void beat(Seconds silence_limit);
  struct Heartbeats {
    std::int64_t beats = 0;  // in this generation
    Seconds silence_limit;
    std::int64_t process = 0;  // whose it is, which may be one that rank 0's process has started
  };
  [[nodiscard]] Heartbeats heartbeats() const;

  // By the chief: the loss of the last step, after which so many are done.
  void note_last_loss(std::int64_t done, double loss);
  // That one, where so many are done.
  [[nodiscard]] std::optional<double> last_loss(std::int64_t done) const;

  // By the chief: StepLosses::compare() for this generation.
  std::optional<double> compare_loss(std::uint64_t series, std::int64_t step, double loss);
  // Nothing is compared with them any more: the job has ended in order.
  void forget_compared_losses();

  // By the chief: what each rank of a job computes with, in a line; `job_number`: of the program's
  // jobs, from 0. Returns those of the generation before; none: there was none. Throws
  // Error(kEnvironment).
  std::vector<std::string> note_computing(std::size_t job_number,
                                          const std::vector<std::string>& ranks);

  // Plans by name, of which the last that is kept counts. By the chief. keep_plan() throws
  // Error(kEnvironment).
  [[nodiscard]] std::optional<std::string> plan(const std::string& name) const;
  void keep_plan(const std::string& name, const std::string& document);
  // How often one was kept: a standby has those of its start. And whether plans are being tried, of
  // which one will be kept: by the chief.
  [[nodiscard]] std::int64_t plans_kept() const;
  void note_trials(bool go_on);
  [[nodiscard]] bool tries_plans() const;

  // A snapshot is a checkpoint's files. Until another is complete, the one before it is kept. By
  // the chief, one at a time. add_to_snapshot() throws Error(kEnvironment) where there is no room.
  void begin_snapshot();
  void add_to_snapshot(const std::string& name, const std::vector<std::string_view>& pieces);
  void end_snapshot(std::int64_t step);
  // There is none any more, and the newest checkpoint is the last one that is no snapshot. By the
  // chief.
  void forget_snapshot();
  // A file of the one that is kept.
  [[nodiscard]] std::optional<std::string> from_snapshot(const std::string& name) const;
  [[nodiscard]] std::vector<std::string> files_of_snapshot() const;
  // By the chief: where a job whose files' names begin with `prefix` looks for its checkpoints on a
  // disk, as an absolute path. Throws Error(kEnvironment). And that of the job that has taken the
  // snapshot; "" where it is not known.
  void note_folder(const std::string& prefix, const std::string& path);
  [[nodiscard]] std::string folder_of_snapshot() const;

 private:
  struct Shared;
  explicit JobMemory(Descriptor file);
  [[nodiscard]] std::optional<std::string> read(std::int64_t at, std::uint64_t size) const;
  // Documents by name, one after the other from `at` on, are read in order, and appended to.
  template <typename Visit>
  std::int64_t for_each_entry(std::int64_t at, Visit visit) const;
  [[nodiscard]] std::optional<std::string> last_of(std::int64_t at, const std::string& name) const;
  void append(std::int64_t at, const std::string& name,
              const std::vector<std::string_view>& document);

  Descriptor file_;
  Shared* shared_ = nullptr;  // its head
  std::int64_t writes_ = 0;   // the slot of the snapshot that is being written
};

}  // namespace autodist::job
