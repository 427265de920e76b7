#include "autodist/app/trace_file.h"

#include "autodist/base/error.h"
#include "autodist/base/file.h"

namespace autodist::app {

void expect_origin(program::TraceOrigin origin, const std::string& path, program::TraceOrigin of) {
  if (origin == program::TraceOrigin::kUnknown || origin == of) return;
  const bool is_simulated = origin == program::TraceOrigin::kSimulation;
  fail(ErrorCode::kUsage, "{}: is of a {}; one that `autodist {} --trace` wrote belongs there.",
       path, is_simulated ? "simulation" : "run", is_simulated ? "train" : "simulate");
}

program::Trace read_trace(const std::string& path) {
  program::Trace trace = program::read_chrome_json(read_file(path, kLargestTrace), path);
  if (trace.rows.empty()) {
    fail(ErrorCode::kUsage,
         "{}: a trace without rows. Write one by `autodist simulate --trace` or `autodist train "
         "--trace`.",
         path);
  }
  return trace;
}

}  // namespace autodist::app
