// What happened, row by row, in a step that was run or simulated. A prediction is compared with a
// measurement by comparing two Traces.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/program/program.h"

namespace autodist::program {

enum class Activity : std::uint8_t {
  kCompute,
  kGate,
  kQueue,  // a slice waits at the rank that sends it
  kWire,   // from there until its destination has acknowledged it
  kMerge,
  kUpdate,
  kInstall,
  kCollective,
  kSend,
  kRecv,
  kContribute,  // a gradient is cut into slices and handed over
};
std::string name_of(Activity activity);
std::optional<Activity> activity_named(const std::string& name);  // nothing for another name

// Which slice a row is about, and on which hop of its route.
struct SliceHop {
  SliceId slice;
  Rank peer;               // where it goes; of a merge the owner itself
  bool is_result = false;  // on its way back from the owner

  friend bool operator==(const SliceHop& a, const SliceHop& b) {
    return a.slice == b.slice && a.peer == b.peer && a.is_result == b.is_result;
  }
};

struct TraceRow {
  Activity activity = Activity::kCompute;
  Rank rank;
  StreamKind stream = StreamKind::kCompute;
  std::uint64_t step = 0;
  std::string name;  // of the op, variable or slice
  Bytes bytes;
  Seconds start;  // since the start of the trace
  Seconds end;
  std::optional<SliceHop> hop = std::nullopt;  // of kQueue, kWire and kMerge

  friend bool operator==(const TraceRow& a, const TraceRow& b);
};

enum class TraceOrigin : std::uint8_t { kUnknown, kRun, kSimulation };

struct Trace {
  std::vector<TraceRow> rows;  // ordered by start
  TraceOrigin origin = TraceOrigin::kUnknown;
  std::string graph = {};  // its name; "" where nobody says it
};

// Rows of several ranks as one trace, ordered by start. Their clocks must agree.
Trace merged(std::vector<Trace> traces);

// Chrome/Perfetto JSON (trace events): one process per rank, a track per stream. Rows that overlap
// stand on further tracks, so none hides another; slices that wait are asynchronous events. Arrows
// lead from a variable's contribution to the installation that it was for.
std::string to_chrome_json(const Trace& trace);

// What to_chrome_json wrote, to the nanosecond. `where` names the source in messages; throws
// Error(kUsage) for text that is no trace of ours.
Trace read_chrome_json(const std::string& text, const std::string& where);

// Of such text, from its beginning; kUnknown for a trace of somebody else's.
TraceOrigin origin_of(std::string_view text);
// The graph's name in such text; "" where it says none.
std::string graph_of(std::string_view text);

}  // namespace autodist::program
