#include "autodist/program/trace.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/json_complaint.h"

namespace autodist::program {
namespace {

constexpr std::pair<TraceOrigin, const char*> kOrigins[] = {
    {TraceOrigin::kRun, "run"}, {TraceOrigin::kSimulation, "simulation"}};

using Json = nlohmann::ordered_json;

constexpr double kMicroseconds = 1e6;     // the unit of trace events
constexpr std::size_t kBeginning = 1000;  // of a trace's text, in which stands what it is of
constexpr int kLanes = 1000;              // of one track
constexpr const char* kNames[] = {"compute", "gate",       "queue", "wire", "merge",     "update",
                                  "install", "collective", "send",  "recv", "contribute"};

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
    case Activity::kContribute:
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

// Numbers the tracks so that no two rows of one overlap.
class Lanes {
 public:
  // By ascending start.
  int of(const TraceRow& row, const Track& track) {
    std::vector<Seconds>& ends = ends_[{row.rank.value, track.id}];
    const auto free =
        std::find_if(ends.begin(), ends.end(), [&](Seconds end) { return end <= row.start; });
    const auto lane = static_cast<int>(free - ends.begin());
    if (free == ends.end()) {
      ends.push_back(row.end);
    } else {
      *free = row.end;
    }
    return track.id * kLanes + lane;
  }

 private:
  std::map<std::pair<std::uint32_t, int>, std::vector<Seconds>> ends_;
};

Json name_event(const char* what, std::uint32_t rank, int track, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", track}, {"args", {{"name", name}}}};
}

Json arguments_of(const TraceRow& row) {
  Json arguments{{"step", row.step}, {"bytes", row.bytes.value}, {"stream", name_of(row.stream)}};
  if (row.hop) {
    arguments["slice"] = row.hop->slice.value;
    arguments["to"] = row.hop->peer.value;
    arguments["result"] = row.hop->is_result;
  }
  return arguments;
}

Json event_of(const TraceRow& row, const char* phase, int track, Seconds at) {
  return {{"name", row.name}, {"cat", name_of(row.activity)},
          {"ph", phase},      {"pid", row.rank.value},
          {"tid", track},     {"ts", at.value * kMicroseconds}};
}

class EventWriter {
 public:
  void add(const TraceRow& row) {
    const Track track = track_of(row);
    const bool waits = row.activity == Activity::kQueue;
    const int lane = waits ? track.id * kLanes : lanes_.of(row, track);
    name_track(row, track, lane);
    const double duration = (row.end - row.start).value * kMicroseconds;
    Json event = event_of(row, waits ? "b" : "X", lane, row.start);
    event["args"] = arguments_of(row);
    if (waits) {
      event["id"] = ++waits_;
      event["args"]["dur"] = duration;
      events_.push_back(event);
      Json end = event_of(row, "e", lane, row.end);
      end["id"] = waits_;
      events_.push_back(std::move(end));
      return;
    }
    event["dur"] = duration;
    events_.push_back(std::move(event));
    add_arrow(row, lane);
  }

  std::string text(TraceOrigin origin, const std::string& graph) {
    Json json{{"displayTimeUnit", "ms"}};
    for (const auto& [known, name] : kOrigins) {
      if (known == origin) json["otherData"]["origin"] = name;
    }
    if (!graph.empty()) json["otherData"]["graph"] = graph;
    json["traceEvents"] = std::move(events_);
    return json.dump();
  }

 private:
  void name_track(const TraceRow& row, const Track& track, int lane) {
    const std::uint32_t rank = row.rank.value;
    if (!named_.insert({rank, lane}).second) return;
    const int further = lane % kLanes;
    events_.push_back(name_event("process_name", rank, 0, fmt::format("rank {}", rank)));
    events_.push_back(
        name_event("thread_name", rank, lane,
                   further == 0 ? track.name : fmt::format("{} ({})", track.name, further + 1)));
  }

  // One per variable, step and rank: an arrow ends only where it began.
  void add_arrow(const TraceRow& row, int lane) {
    const bool begins = row.activity == Activity::kContribute;
    if (!begins && row.activity != Activity::kInstall) return;
    const std::string id = fmt::format("{}/{}/{}", row.rank, row.step, row.name);
    if (begins) open_.insert(id);
    if (!begins && open_.erase(id) == 0) return;
    Json arrow = event_of(row, begins ? "s" : "f", lane, row.start);
    arrow["cat"] = "contribution";
    arrow["id"] = id;
    if (!begins) arrow["bp"] = "e";
    events_.push_back(std::move(arrow));
  }

  Json events_ = Json::array();
  Lanes lanes_;
  std::set<std::pair<std::uint32_t, int>> named_;
  std::set<std::string> open_;
  std::uint64_t waits_ = 0;
};

StreamKind stream_named(const std::string& name) {
  for (const StreamKind kind :
       {StreamKind::kCompute, StreamKind::kCollective, StreamKind::kTransfer}) {
    if (name_of(kind) == name) return kind;
  }
  throw std::invalid_argument("stream '" + name + "'");
}

TraceRow row_of(const Json& event, Activity activity) {
  const Json& arguments = event.at("args");
  TraceRow row;
  row.activity = activity;
  row.rank = Rank(event.at("pid").get<std::uint32_t>());
  row.stream = stream_named(arguments.at("stream").get<std::string>());
  row.step = arguments.at("step").get<std::uint64_t>();
  row.name = event.at("name").get<std::string>();
  row.bytes = Bytes(arguments.at("bytes").get<std::int64_t>());
  row.start = Seconds(event.at("ts").get<double>() / kMicroseconds);
  const Json& duration = event.contains("dur") ? event.at("dur") : arguments.at("dur");
  row.end = row.start + Seconds(duration.get<double>() / kMicroseconds);
  if (arguments.contains("slice")) {
    row.hop =
        SliceHop{SliceId(arguments.at("slice").get<std::uint32_t>()),
                 Rank(arguments.at("to").get<std::uint32_t>()), arguments.at("result").get<bool>()};
  }
  return row;
}

}  // namespace

bool operator==(const TraceRow&, const TraceRow&) = default;

std::string name_of(Activity activity) { return kNames[static_cast<int>(activity)]; }

std::optional<Activity> activity_named(const std::string& name) {
  const auto* const found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) return std::nullopt;
  return static_cast<Activity>(found - std::begin(kNames));
}

Trace merged(std::vector<Trace> traces) {
  Trace all;
  if (!traces.empty()) {
    all.origin = traces.front().origin;
    all.graph = traces.front().graph;
  }
  for (Trace& trace : traces) {
    std::move(trace.rows.begin(), trace.rows.end(), std::back_inserter(all.rows));
  }
  std::stable_sort(all.rows.begin(), all.rows.end(),
                   [](const TraceRow& a, const TraceRow& b) { return a.start < b.start; });
  return all;
}

std::string to_chrome_json(const Trace& trace) {
  EventWriter writer;
  for (const TraceRow& row : trace.rows) writer.add(row);
  return writer.text(trace.origin, trace.graph);
}

Trace read_chrome_json(const std::string& text, const std::string& where) {
  Trace trace;
  trace.origin = origin_of(text);
  trace.graph = graph_of(text);
  try {
    const Json json = Json::parse(text);
    for (const Json& event : json.at("traceEvents")) {
      const auto phase = event.at("ph").get<std::string>();
      if (phase != "X" && phase != "b") continue;
      if (const auto activity = activity_named(event.at("cat").get<std::string>())) {
        trace.rows.push_back(row_of(event, *activity));
      }
    }
  } catch (const std::exception& error) {
    fail(ErrorCode::kUsage, "{}: not a trace of `train --trace`: {}. Write it again.", where,
         json_complaint(error));
  }
  return trace;
}

std::string graph_of(std::string_view text) {
  constexpr std::string_view kEvents = R"("traceEvents")";
  // What stands before the events, as an object of its own: these may be many.
  const std::size_t events = text.substr(0, kBeginning).find(kEvents);
  const std::size_t comma = events == std::string_view::npos ? events : text.rfind(',', events);
  if (comma == std::string_view::npos) return "";
  const Json head = Json::parse(std::string(text.substr(0, comma)) + "}", nullptr,
                                /*allow_exceptions=*/false);
  if (!head.is_object() || !head.contains("otherData")) return "";
  const Json& other = head.at("otherData");
  if (!other.is_object() || !other.contains("graph") || !other.at("graph").is_string()) return "";
  return other.at("graph").get<std::string>();
}

TraceOrigin origin_of(std::string_view text) {
  text = text.substr(0, kBeginning);
  for (const auto& [origin, name] : kOrigins) {
    if (text.find(fmt::format(R"("origin":"{}")", name)) != std::string_view::npos) return origin;
  }
  return TraceOrigin::kUnknown;
}

}  // namespace autodist::program
