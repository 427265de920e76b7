// A trace as a file, for the verbs that read one.

#pragma once

#include <cstdint>
#include <string>

#include "autodist/program/trace.h"

namespace autodist::app {

inline constexpr std::int64_t kLargestTrace = std::int64_t{2} << 30;  // bytes

// Throws Error(kUsage), prefixed with `path`, for a file that cannot be read, that is no trace of
// ours (program::read_chrome_json), or that has no rows.
program::Trace read_trace(const std::string& path);

// Throws Error(kUsage) for a trace that says that it is of the other origin.
void expect_origin(program::TraceOrigin origin, const std::string& path, program::TraceOrigin of);

}  // namespace autodist::app
