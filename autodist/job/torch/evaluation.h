// The statistics that a job's evaluations use: one rank's, or the mean of all, in the place of each
// rank's own. Private to the session.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "autodist/job/torch/job_steps.h"
#include "autodist/job/torch/joined_job.h"

namespace autodist::job {

class EvaluatedStatistics {
 public:
  // Both outlive this.
  EvaluatedStatistics(const JoinedJob& job, const JobSteps& steps) : job_(job), steps_(steps) {}

  // What Session says of an evaluation. REQUIRES: the steps have started.
  void prepare(Statistics statistics);
  void begin(Statistics statistics);
  void end();

 private:
  [[nodiscard]] std::vector<NamedTensor> buffers_written() const;

  const JoinedJob& job_;
  const JobSteps& steps_;
  // The buffers that steps write, by whose they are, after so many steps.
  std::map<Statistics, std::vector<torch::Tensor>> statistics_;
  std::int64_t steps_done_ = -1;
  std::vector<torch::Tensor> own_;  // this rank's, while an evaluation goes on
};

}  // namespace autodist::job
