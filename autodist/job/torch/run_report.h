// A page for a browser of a training that has run.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <string>

#include "autodist/job/torch/job_step.h"
#include "autodist/job/torch/joined_job.h"
#include "autodist/program/trace.h"
#include "autodist/report/html/run_log.h"

namespace autodist::job {

struct RunReport {
  std::string path;
  std::string title;
  const report::RunLog& run;    // no steps: left out
  const program::Trace& trace;  // no rows: left out
};

// At the chief. Throws Error(kEnvironment) where it cannot be written.
void write_report(const JoinedJob& job, const JobStep& step, const RunReport& what);

}  // namespace autodist::job
