// What all parts of one rank (exec/engine.h) share.

#pragma once

#include "autodist/exec/runner_options.h"
#include "autodist/exec/signal.h"
#include "autodist/exec/trace_recorder.h"
#include "autodist/program/program.h"

namespace autodist::exec {

// All of it outlives the parts; a part copies what it uses.
struct RankContext {
  const program::Program& program;
  program::Rank self;
  const RunnerOptions& options;
  Signal& signal;
  TraceRecorder& trace;
};

}  // namespace autodist::exec
