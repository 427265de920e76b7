#include "autodist/report/html/page.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/json_complaint.h"
#include "autodist/base/text.h"
#include "autodist/report/html/assets.h"
#include "autodist/report/html/step_times.h"
#include "autodist/report/html/timeline.h"

namespace autodist::report {
namespace {

using Json = nlohmann::ordered_json;

// What keeps a page below two megabytes.
constexpr std::size_t kTraceRows = 24'000;  // of all traces together: about 35 bytes each
constexpr std::size_t kRunSteps = 2'000;
constexpr std::size_t kVariables = 2'000;
constexpr std::size_t kWaits = 40;
constexpr std::size_t kStepsListed = 2'000;
constexpr std::size_t kRanksListed = 1'024;

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// JSON inside a script element: no character there may end the element or begin a comment.
std::string inside_script(const std::string& json) {
  return escaped(json, {{'<', "\\u003c"}, {'>', "\\u003e"}, {'&', "\\u0026"}});
}

std::string inside_html(const std::string& plain) {
  return escaped(plain, {{'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'"', "&quot;"}});
}

Json rows_json(const Timeline& timeline) {
  Json columns;
  const auto column = [&](const char* name, auto value_of) {
    Json values = Json::array();
    for (const TimelineRow& row : timeline.rows) values.push_back(value_of(row));
    columns[name] = std::move(values);
  };
  std::int64_t before = 0;
  column("track", [](const TimelineRow& row) { return row.track; });
  column("lane", [](const TimelineRow& row) { return row.lane; });
  column("activity", [](const TimelineRow& row) { return row.activity; });
  column("name", [](const TimelineRow& row) { return row.name; });
  column("step", [](const TimelineRow& row) { return row.step; });
  column("start_delta_ns", [&](const TimelineRow& row) {
    return row.start_ns - std::exchange(before, row.start_ns);
  });
  column("length_ns", [](const TimelineRow& row) { return row.end_ns - row.start_ns; });
  column("bytes", [](const TimelineRow& row) { return row.bytes; });
  column("stands_for", [](const TimelineRow& row) { return row.stands_for; });
  return columns;
}

Json ranks_json(const StepTimes& times) {
  Json ranks = Json::array();
  for (const RankTimes& each : times.ranks) {
    if (ranks.size() == kRanksListed) break;
    ranks.push_back({{"rank", each.rank.value},
                     {"computing_seconds", each.computing.value},
                     {"waiting_seconds", each.waiting.value},
                     {"handing_over_seconds", each.handing_over.value},
                     {"between_seconds", each.between.value},
                     {"owning_seconds", each.owning.value},
                     {"sending_seconds", each.sending.value},
                     {"behind_seconds", each.behind.value},
                     {"last_steps", each.last}});
  }
  return ranks;
}

Json waits_json(const StepTimes& times) {
  Json waits = Json::array();
  for (const WaitedFor& each : times.waits) {
    if (waits.size() == kWaits) break;
    waits.push_back({{"name", each.name},
                     {"waits", each.waits},
                     {"seconds_per_step", each.per_step.value},
                     {"longest_seconds", each.longest.value},
                     {"rank", each.rank.value}});
  }
  return waits;
}

Json steps_json(const StepTimes& times, const std::vector<std::uint64_t>& shown) {
  Json steps = Json::array();
  for (const StepTime& each : times.steps) {
    if (steps.size() == kStepsListed) break;
    if (!std::binary_search(shown.begin(), shown.end(), each.step)) continue;
    steps.push_back({{"step", each.step},
                     {"start_ns", each.start_ns},
                     {"seconds", each.length.value},
                     {"whole", each.whole}});
  }
  return steps;
}

Json tracks_json(const Timeline& timeline) {
  Json tracks = Json::array();
  for (const TimelineTrack& track : timeline.tracks) {
    tracks.push_back({{"rank", track.rank.value}, {"name", track.name}, {"lanes", track.lanes}});
  }
  return tracks;
}

// Only names that a row of the page has.
void keep_used_names(Timeline& timeline) {
  std::vector<std::uint32_t> numbers(timeline.names.size(), UINT32_MAX);
  std::vector<std::string> names;
  for (TimelineRow& row : timeline.rows) {
    std::uint32_t& number = numbers[row.name];
    if (number == UINT32_MAX) {
      number = static_cast<std::uint32_t>(names.size());
      names.push_back(timeline.names[row.name]);
    }
    row.name = number;
  }
  timeline.names = std::move(names);
}

Json timeline_json(const PageTrace& trace, std::size_t most_rows) {
  const Timeline whole = read_timeline(trace.chrome_json, trace.title);
  const StepTimes times = times_of(whole);
  Timeline part =
      thinned(whole, times.steps.empty() ? steps_of(whole) : worth_showing(times), most_rows);
  keep_used_names(part);
  const std::vector<std::uint64_t> shown = steps_of(part);
  Json json{{"title", trace.title},
            {"predicted", trace.predicted},
            {"rows_in_trace", whole.rows.size()},
            {"rows_left_out", part.left_out},
            {"steps_in_trace", steps_of(whole).size()},
            {"steps_counted", times.counted},
            {"median_seconds", times.median.value},
            {"median_step", times.median_step},
            {"slowest_step", times.slowest_step},
            {"steps", steps_json(times, shown)},
            {"ranks", ranks_json(times)},
            {"waits", waits_json(times)},
            {"tracks", tracks_json(part)},
            {"activities", part.activities},
            {"names", part.names},
            {"places", trace.places},
            {"rows", rows_json(part)}};
  if (!trace.places.empty()) {
    json["ranks"] = Json::array();
    json["waits"] = Json::array();
  } else if (!times.ranks.empty()) {
    const Verdict verdict = verdict_of(times);
    json["verdict"] = {{"headline", verdict.headline},
                       {"reasons", verdict.reasons},
                       {"what_to_do", verdict.what_to_do}};
  }
  return json;
}

Json traces_json(const std::vector<PageTrace>& traces) {
  Json timelines = Json::array();
  for (const PageTrace& trace : traces) {
    timelines.push_back(timeline_json(trace, kTraceRows / traces.size()));
  }
  return timelines;
}

// Six digits, as charts show; null where it is not finite.
Json figure(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr);
}

// Of all steps of the run that have such a figure, the middle one in order, of an even number the
// lower or the upper one; null where there are none.
Json middle_of(const RunLog& run, const char* name, bool upper) {
  const auto column = std::find(run.names.begin(), run.names.end(), name);
  if (column == run.names.end()) return nullptr;
  std::vector<double> values = run.columns[static_cast<std::size_t>(column - run.names.begin())];
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return nullptr;
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>((upper ? values.size() : values.size() - 1) / 2);
  std::nth_element(values.begin(), at, values.end());
  return figure(*at);
}

Json run_json(const std::optional<RunLog>& run) {
  if (!run) return nullptr;
  const RunLog part = thinned(*run, kRunSteps);
  Json columns = Json::array();
  for (std::size_t i = 0; i < part.names.size(); ++i) {
    Json values = Json::array();
    for (const double value : part.columns[i]) values.push_back(figure(value));
    columns.push_back({{"name", part.names[i]}, {"values", std::move(values)}});
  }
  Json losses = Json::array();
  for (const LostRank& each : run->losses) {
    losses.push_back({{"step", each.step},
                      {"steps_again", each.steps_again},
                      {"away_seconds", figure(each.away.value)}});
  }
  // Of one step where all have the same batch: its time and its rate are a step's samples.
  return {{"steps_in_log", run->steps.size()},
          {"median_step_seconds", middle_of(*run, "step_seconds", /*upper=*/false)},
          {"median_samples_per_second", middle_of(*run, "samples_per_second", /*upper=*/true)},
          {"losses", std::move(losses)},
          {"overwritten_steps", run->overwritten},
          {"steps", part.steps},
          {"plans", part.plans},
          {"plan_of", part.plan_of},
          {"columns", std::move(columns)}};
}

Json plan_json_of(const PageInputs& inputs) {
  const strategy::Strategy* strategy = inputs.strategy ? &*inputs.strategy : nullptr;
  if (inputs.graph != nullptr) {
    return plan_section(*inputs.graph, strategy, inputs.program ? &*inputs.program : nullptr,
                        inputs.alternatives, inputs.next_best, kVariables, inputs.batch);
  }
  return strategy == nullptr ? Json(nullptr) : plan_section(*strategy, kVariables);
}

Json placement_json(const std::optional<PagePlacement>& placement) {
  if (!placement) return nullptr;
  Json devices = Json::array();
  for (const PlacedDevice& each : placement->devices) {
    devices.push_back({{"name", each.name},
                       {"tasks", each.tasks},
                       {"work_seconds", each.work.value},
                       {"transfer_seconds", each.transfers.value},
                       {"memory_bytes", each.memory.value},
                       {"capacity_bytes", each.capacity.value},
                       {"received_bytes", each.received.value},
                       {"sent_bytes", each.sent.value}});
  }
  return {{"graph", placement->graph},
          {"objective", placement->objective},
          {"value_seconds", placement->value.value},
          {"bound_seconds", placement->bound.value},
          {"found_by", placement->found_by},
          {"evaluations", placement->evaluations},
          {"about_timeline", placement->about_timeline},
          {"devices", std::move(devices)}};
}

// Fills {{name}} of the template; what is filled in is not looked at again.
std::string filled(const std::string& text,
                   const std::vector<std::pair<std::string, std::string>>& values) {
  std::string result;
  std::size_t at = 0;
  for (const auto& [name, value] : values) {
    const std::string mark = "{{" + name + "}}";
    const std::size_t found = text.find(mark, at);
    result += text.substr(at, found - at) + value;
    at = found + mark.size();
  }
  return result + text.substr(at);
}

}  // namespace

Json prediction_of(const Json& json) {
  Json prediction{{"step_seconds", json.at("step_seconds").get<double>()},
                  {"bound_seconds", json.at("bound_seconds").get<double>()},
                  {"bound_reason", json.at("bound_reason").get<std::string>()},
                  {"memory", Json::array()}};
  for (const Json& rank : json.at("ranks")) {
    const Json& use = rank.at("memory");
    Json memory{{"device", rank.at("device").get<std::string>()},
                {"parts", Json::array()},
                {"capacity_bytes", use.at("capacity_bytes").get<std::int64_t>()}};
    std::int64_t known = 0;
    for (const char* part :
         {"parameter", "gradient", "activation", "optimizer", "overhead", "communication"}) {
      const std::string key = fmt::format("{}_bytes", part);
      if (!use.contains(key) && key == "overhead_bytes") continue;  // of a GPU
      const auto bytes = use.at(key).get<std::int64_t>();
      if (known + bytes > use.at("device_bytes").get<std::int64_t>()) continue;
      known += bytes;  // communication may lie in the host's memory
      memory["parts"].push_back({{"name", part}, {"bytes", bytes}});
    }
    prediction["memory"].push_back(std::move(memory));
  }
  return prediction;
}

Json parse_prediction(const std::string& text, const std::string& where) {
  try {
    return prediction_of(Json::parse(text));
  } catch (const std::exception& error) {
    fail(ErrorCode::kUsage,
         "{}: not what `autodist simulate --json` prints: {}. Write it again: autodist simulate … "
         "--json > FILE",
         where, json_complaint(error));
  }
}

std::string to_html(const PageInputs& inputs) {
  const Json data{{"title", inputs.title},
                  {"version", AUTODIST_VERSION},
                  {"chosen_by", inputs.chosen_by},
                  {"sources", inputs.sources},
                  {"timelines", traces_json(inputs.traces)},
                  {"run", run_json(inputs.run)},
                  {"prediction", inputs.prediction},
                  {"placement", placement_json(inputs.placement)},
                  {"sweep", inputs.sweep ? inputs.sweep->section : Json(nullptr)},
                  {"remarks", inputs.remarks},
                  {"plan", plan_json_of(inputs)}};
  return filled(kPageTemplate, {{"title", inside_html(inputs.title)},
                                {"style", std::string(kChartStyle) + kPageStyle},
                                {"data", inside_script(text_of(data))},
                                {"charts", kChartScript},
                                {"script", kPageScript}});
}

void write_page(const PageInputs& inputs, const std::string& path) {
  write_file_atomically(path, to_html(inputs));
}

}  // namespace autodist::report
