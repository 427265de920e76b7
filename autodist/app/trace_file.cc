#include "autodist/app/trace_file.h"

#include "autodist/base/error.h"
#include "autodist/base/file.h"

namespace autodist::app {

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
