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

// At the chief. A run without steps and a trace without rows are left out. Throws
// Error(kEnvironment) where it cannot be written.
void write_report(const JoinedJob& job, const JobStep& step, const std::string& path,
                  const std::string& title, const report::RunLog& run, const program::Trace& trace);

}  // namespace autodist::job
