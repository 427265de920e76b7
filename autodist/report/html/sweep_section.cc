#include "autodist/report/html/sweep_section.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

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

SweptPrediction prediction_of(const Json& entry, const std::string& varies) {
  const Json& json = entry.at("prediction");
  SweptPrediction of;
  of.value = entry.at(varies).get<std::string>();
  of.efficiency = entry.at("efficiency").get<double>();
  of.step = Seconds(json.at("step_seconds").get<double>());
  of.samples = json.at("batch_samples").get<std::int64_t>();
  of.samples_per_second = json.at("samples_per_second").get<double>();
  if (const auto peak = if_there<std::int64_t>(json, "peak_bytes")) of.peak = Bytes(*peak);
  if (const auto epoch = if_there<double>(json, "epoch_seconds")) of.epoch = Seconds(*epoch);
  of.cost = if_there<double>(json, of.epoch ? "cost_of_epoch" : "cost_of_million_samples");
  return of;
}

}  // namespace

PageSweep parse_sweep(const std::string& text, const std::string& where) {
  try {
    const Json all = Json::parse(text);
    PageSweep sweep;
    if (!all.at(0).empty()) sweep.varies = all.at(0).begin().key();
    const Json& first = all.at(0).at("prediction");
    if (const auto model = if_there<std::string>(first, "model")) {
      sweep.job = fmt::format("{} on {} by {}", *model, first.at("cluster").get<std::string>(),
                              first.at("plan").get<std::string>());
    }
    sweep.precision = if_there<std::string>(first, "precision").value_or("");
    sweep.sequence = if_there<std::int64_t>(first, "sequence_length").value_or(0);
    for (const Json& entry : all) sweep.predictions.push_back(prediction_of(entry, sweep.varies));
    return sweep;
  } catch (const std::exception& error) {
    fail(ErrorCode::kUsage,
         "{}: not what `autodist simulate --what-if … --json` prints where one value varies: {}. "
         "Write it again: autodist simulate … --what-if nodes=1..8 --json > FILE",
         where, json_complaint(error));
  }
}

Json sweep_section(const PageSweep& sweep) {
  Json rows = Json::array();
  for (const SweptPrediction& each : sweep.predictions) {
    Json row{{"value", each.value},
             {"step_seconds", each.step.value},
             {"samples", each.samples},
             {"samples_per_second", each.samples_per_second},
             {"efficiency", each.efficiency}};
    if (each.peak) row["peak_bytes"] = each.peak->value;
    if (each.epoch) row["epoch_seconds"] = each.epoch->value;
    if (each.cost) row["cost"] = *each.cost;
    rows.push_back(std::move(row));
  }
  return {{"varies", sweep.varies},
          {"job", sweep.job},
          {"precision", sweep.precision},
          {"sequence_length", sweep.sequence},
          {"predictions", std::move(rows)}};
}

}  // namespace autodist::report
