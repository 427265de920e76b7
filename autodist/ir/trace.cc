#include "autodist/ir/trace.h"

#include <nlohmann/json.hpp>
#include <set>

#include "autodist/base/check.h"

namespace autodist::ir {
namespace {

constexpr double kMicroseconds = 1e6;  // the unit of trace events

// Rows of one rank that may overlap in time stand on different tracks: what computes, what waits
// for the network, what the owner does.
struct Track {
  int id;
  const char* name;
};

Track track_of(const TraceRow& row) {
  switch (row.activity) {
    case Activity::kCompute:
    case Activity::kGate:
      return {0, "compute"};
    case Activity::kMerge:
    case Activity::kUpdate:
      return {1, "owner"};
    case Activity::kInstall:
      return {2, "install"};
    case Activity::kCollective:
      return {3, "collective"};
    case Activity::kQueue:
      return {4, "queue"};
    case Activity::kWire:
    case Activity::kSend:
    case Activity::kRecv:
      return {5, "wire"};
  }
  AD_CHECK(false) << "activity " << static_cast<int>(row.activity);
  return {0, ""};
}

nlohmann::ordered_json name_event(const char* what, std::uint32_t rank, int track,
                                  const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", track}, {"args", {{"name", name}}}};
}

}  // namespace

std::string name_of(Activity activity) {
  static constexpr const char* kNames[] = {"compute", "gate",    "queue",      "wire", "merge",
                                           "update",  "install", "collective", "send", "recv"};
  return kNames[static_cast<int>(activity)];
}

std::string to_chrome_json(const Trace& trace) {
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  std::set<std::pair<std::uint32_t, int>> seen;
  for (const TraceRow& row : trace.rows) {
    const Track track = track_of(row);
    if (seen.insert({row.rank.value, track.id}).second) {
      events.push_back(
          name_event("process_name", row.rank.value, 0, fmt::format("rank {}", row.rank)));
      events.push_back(name_event("thread_name", row.rank.value, track.id, track.name));
    }
    events.push_back({{"name", row.name},
                      {"cat", name_of(row.activity)},
                      {"ph", "X"},
                      {"pid", row.rank.value},
                      {"tid", track.id},
                      {"ts", row.start.value * kMicroseconds},
                      {"dur", (row.end - row.start).value * kMicroseconds},
                      {"args", {{"step", row.step}, {"bytes", row.bytes.value}}}});
  }
  return nlohmann::ordered_json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}
      .dump();
}

}  // namespace autodist::ir
