#include "autodist/report/html/sweep_section.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>

#include "autodist/base/error.h"
#include "autodist/base/json_complaint.h"

namespace autodist::report {
namespace {

using Json = nlohmann::ordered_json;

template <typename Value>
std::optional<Value> if_there(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found == json.end() ? std::optional<Value>() : found->get<Value>();
}

// What the page shows of one value.
Json swept_row(const Json& entry, const std::string& varies) {
  const Json& json = entry.at("prediction");
  Json row{{"value", entry.at(varies).get<std::string>()},
           {"step_seconds", json.at("step_seconds").get<double>()},
           {"samples", json.at("batch_samples").get<std::int64_t>()},
           {"samples_per_second", json.at("samples_per_second").get<double>()},
           {"efficiency", entry.at("efficiency").get<double>()}};
  if (const auto peak = if_there<std::int64_t>(json, "peak_bytes")) row["peak_bytes"] = *peak;
  const auto epoch = if_there<double>(json, "epoch_seconds");
  if (epoch) row["epoch_seconds"] = *epoch;
  const char* price = epoch ? "cost_of_epoch" : "cost_of_million_samples";
  if (const auto cost = if_there<double>(json, price)) row["cost"] = *cost;
  return row;
}

}  // namespace

PageSweep parse_sweep(const std::string& text, const std::string& where) {
  try {
    const Json all = Json::parse(text);
    const std::string varies = all.at(0).empty() ? "" : all.at(0).begin().key();
    const Json& first = all.at(0).at("prediction");
    PageSweep sweep;
    if (const auto model = if_there<std::string>(first, "model")) {
      sweep.job = fmt::format("{} on {} by {}", *model, first.at("cluster").get<std::string>(),
                              first.at("plan").get<std::string>());
    }
    sweep.section = {
        {"varies", varies},
        {"job", sweep.job},
        {"precision", if_there<std::string>(first, "precision").value_or("")},
        {"sequence_length", if_there<std::int64_t>(first, "sequence_length").value_or(0)},
        {"predictions", Json::array()}};
    for (const Json& entry : all) sweep.section["predictions"].push_back(swept_row(entry, varies));
    return sweep;
  } catch (const std::exception& error) {
    fail(ErrorCode::kUsage,
         "{}: not what `autodist simulate --what-if … --json` prints where one value varies: {}. "
         "Write it again: autodist simulate … --what-if nodes=1..8 --json > FILE",
         where, json_complaint(error));
  }
}

}  // namespace autodist::report
