// What a job remembers when all of its ranks have ended and are started again: how far it was, what
// it had saved, which plan it ran, which machines could not be used, and how it came back before.
//
// It is memory without a name in any file system, made by the process that supervises the job and
// inherited by every generation's chief. It is gone when both have ended, however they end.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autodist/base/environment.h"
#include "autodist/base/file.h"

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

  struct Progress {
    std::int64_t first = -1;  // the step with which this generation began to train; -1: it has not
    std::int64_t done = -1;   // steps done, of the whole job; -1: as above
    std::int64_t saved = -1;  // the newest checkpoint that the job has written; -1: none

    [[nodiscard]] bool trained() const { return done > first; }
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

  // By the supervisor, while no rank of the job lives: another generation has done nothing yet.
  void begin_generation();
  // By the chief: so many steps are done. The first call says where its training begins.
  void note_steps(std::int64_t done);
  // By the chief, from any thread: a checkpoint of this step is written.
  void note_saved(std::int64_t step);

  // Plans by name, of which the last that is kept counts. By the chief. keep_plan() throws
  // Error(kEnvironment).
  [[nodiscard]] std::optional<std::string> plan(const std::string& name) const;
  void keep_plan(const std::string& name, const std::string& document);

 private:
  struct Shared;
  explicit JobMemory(Descriptor file);
  [[nodiscard]] std::optional<std::string> read(std::int64_t at, std::uint64_t size) const;

  Descriptor file_;
  Shared* shared_ = nullptr;  // its first page
};

}  // namespace autodist::job
