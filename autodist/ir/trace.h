// What happened, row by row, in a step that was run or simulated. A prediction is compared with a
// measurement by comparing two Traces.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/ir/program.h"

namespace autodist::ir {

enum class Activity : std::uint8_t {
  kCompute,
  kGate,
  kQueue,
  kWire,
  kMerge,
  kUpdate,
  kInstall,
  kCollective,
  kSend,
  kRecv,
};
std::string name_of(Activity activity);

struct TraceRow {
  Activity activity = Activity::kCompute;
  Rank rank;
  StreamKind stream = StreamKind::kCompute;
  std::uint64_t step = 0;
  std::string name;  // of the op, variable or slice
  Bytes bytes;
  Seconds start;  // since the start of the trace
  Seconds end;
};

struct Trace {
  std::vector<TraceRow> rows;  // ordered by start
};

// Chrome/Perfetto JSON (trace events): one process per rank, one thread per stream.
std::string to_chrome_json(const Trace& trace);

}  // namespace autodist::ir
