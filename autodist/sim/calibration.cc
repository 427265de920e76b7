#include "autodist/sim/calibration.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/nearest.h"

namespace autodist::sim {
namespace {

struct Entry {
  CalibrationKey key;
  std::function<void(CostModel&, double)> set;
};

constexpr double kGigabyte = 1e9;

const std::vector<Entry>& entries() {
  static const std::vector<Entry> table{
      {{"compute_scale", "measured step time / sum of the graph's op times", 1e-3},
       [](CostModel& costs, double value) {
         for (DeviceCost& device : costs.devices) {
           for (Seconds& op : device.ops) op = op * value;
           device.with_less = device.with_less * value;
           device.with_more = device.with_more * value;
         }
       }},
      {{"cores", "cores per node that the ranks and the engine share", 1, 65536, true},
       [](CostModel& costs, double value) { costs.cores = static_cast<std::uint32_t>(value); }},
      {{"message_seconds", "per slice at each end, besides its bytes", 0},
       [](CostModel& costs, double value) { costs.engine.message = Seconds(value); }},
      {{"goodput", "payload's share of a link's nominal rate", 1e-3, 1},
       [](CostModel& costs, double value) { costs.engine.goodput = value; }},
      {{"goodput_gbit_per_s", "most payload that one card carries; 0: no cap", 0},
       [](CostModel& costs, double value) {
         costs.engine.goodput_bytes_per_s = value * kBytesPerGigabit;
       }},
      {{"send_cpu_seconds_per_gb", "core seconds per GB that a rank sends", 0},
       [](CostModel& costs, double value) {
         costs.engine.send_cpu_s_per_byte = value / kGigabyte;
       }},
      {{"receive_cpu_seconds_per_gb", "core seconds per GB that a rank receives", 0},
       [](CostModel& costs, double value) {
         costs.engine.receive_cpu_s_per_byte = value / kGigabyte;
       }},
      {{"sum_gb_per_s", "contributions read while they are summed", 1e-6},
       [](CostModel& costs, double value) { costs.engine.sum_bytes_per_s = value * kGigabyte; }},
      {{"update_gb_per_s", "parameters updated by owners, and by ranks on CPUs, plain SGD", 1e-6},
       [](CostModel& costs, double value) { costs.engine.update_bytes_per_s = value * kGigabyte; }},
      {{"install_gb_per_s", "parameters copied into place", 1e-6},
       [](CostModel& costs, double value) {
         costs.engine.install_bytes_per_s = value * kGigabyte;
       }},
      {{"encode_gb_per_s", "gradients compressed or decoded", 1e-6},
       [](CostModel& costs, double value) { costs.engine.encode_bytes_per_s = value * kGigabyte; }},
      {{"multiply_gflop_per_s", "factors multiplied on hosts of GPUs", 1e-6},
       [](CostModel& costs, double value) { costs.engine.multiply_flop_per_s = value * 1e9; }},
      {{"collective_start_seconds", "of a library's all-reduce, per call", 0},
       [](CostModel& costs, double value) { costs.collectives.start = Seconds(value); }},
      {{"collective_round_seconds", "of a library's all-reduce, per round of its ring", 0},
       [](CostModel& costs, double value) { costs.collectives.round = Seconds(value); }},
      {{"collective_efficiency", "share of the links' goodput that the library reaches", 1e-3},
       [](CostModel& costs, double value) { costs.collectives.efficiency = value; }},
      {{"collective_cpu_seconds_per_gb", "core seconds of a member per GB sent or received", 0},
       [](CostModel& costs, double value) {
         costs.collectives.cpu_s_per_byte = value / kGigabyte;
       }},
  };
  return table;
}

const Entry* find(const std::string& name) {
  const auto found = std::find_if(entries().begin(), entries().end(),
                                  [&](const Entry& entry) { return entry.key.name == name; });
  return found == entries().end() ? nullptr : &*found;
}

constexpr char kHowToCalibrate[] =
    "A line per key expected, as 'cores: 4'; `autodist doctor --measure` writes such a file.";

// NaN compares false to everything, so it lies in no range.
bool fits(const CalibrationKey& key, double value) {
  return value >= key.least && value <= key.most && (!key.is_whole || value == std::floor(value));
}

std::string range_of(const CalibrationKey& key) {
  const char* number = key.is_whole ? "a whole number" : "a number";
  return key.most < CalibrationKey{}.most
             ? fmt::format("{} from {:g} to {:g}", number, key.least, key.most)
             : fmt::format("{} of at least {:g}", number, key.least);
}

}  // namespace

const std::vector<CalibrationKey>& calibration_keys() {
  static const std::vector<CalibrationKey> keys = [] {
    std::vector<CalibrationKey> all;
    for (const Entry& entry : entries()) all.push_back(entry.key);
    return all;
  }();
  return keys;
}

std::string calibration_path(const std::string& cluster_path) {
  if (cluster_path.rfind("local:", 0) == 0) return "local.calibration.yml";
  const std::size_t slash = cluster_path.rfind('/');
  const std::size_t dot = cluster_path.rfind('.');
  const bool has_end = dot != std::string::npos && (slash == std::string::npos || dot > slash);
  return (has_end ? cluster_path.substr(0, dot) : cluster_path) + ".calibration.yml";
}

std::string calibration_file(const std::string& cluster_path, const std::string& path) {
  if (!path.empty() || cluster_path.empty()) return path;
  const std::string beside = calibration_path(cluster_path);
  return std::filesystem::exists(beside) ? beside : "";
}

Calibration read_calibration(const std::string& cluster_path, const std::string& path) {
  const std::string file = calibration_file(cluster_path, path);
  return file.empty() ? Calibration{} : parse_calibration(read_file(file), file);
}

Calibration parse_calibration(const std::string& text, const std::string& where) {
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    fail(ErrorCode::kUsage, "{}:{}: not YAML: {}. {}", where, error.mark.line + 1, error.msg,
         kHowToCalibrate);
  }
  if (!root.IsMap()) {
    fail(ErrorCode::kUsage, "{}: no map of keys to numbers. {}", where, kHowToCalibrate);
  }
  Calibration calibration;
  for (const auto& item : root) {
    if (!item.first.IsScalar()) {
      fail(ErrorCode::kUsage, "{}: a key that is no word. {}", where, kHowToCalibrate);
    }
    const std::string name = item.first.Scalar();
    const Entry* entry = find(name);
    if (entry == nullptr) {
      std::vector<std::string> names;
      for (const Entry& each : entries()) names.push_back(each.key.name);
      fail(ErrorCode::kUsage, "{}: unknown key '{}', one of {} expected{}", where, name,
           fmt::join(names, ", "), nearest_hint(name, names));
    }
    double value = 0;
    const bool is_number =
        item.second.IsScalar() && YAML::convert<double>::decode(item.second, value);
    if (!is_number || !fits(entry->key, value)) {
      fail(ErrorCode::kUsage,
           "{}: {}: '{}', {} expected ({}). Correct it, or leave the key out for its default.",
           where, name, item.second.IsScalar() ? item.second.Scalar() : "…", range_of(entry->key),
           entry->key.meaning);
    }
    if (!calibration.emplace(name, value).second) {
      fail(ErrorCode::kUsage, "{}: the key {} stands twice. Keep one.", where, name);
    }
  }
  return calibration;
}

std::string to_yaml(const Calibration& calibration) {
  std::string text = "# Measured on the machines of the cluster that this file is named after.\n";
  for (const Entry& entry : entries()) {
    const auto found = calibration.find(entry.key.name);
    if (found == calibration.end()) continue;
    text += fmt::format("{}: {}  # {}\n", found->first, found->second, entry.key.meaning);
  }
  return text;
}

void apply(const Calibration& calibration, CostModel& costs) {
  if (calibration.empty()) return;
  const auto of_library = [](const std::string& name) { return name.rfind("collective_", 0) == 0; };
  const bool library_alone = std::all_of(calibration.begin(), calibration.end(),
                                         [&](const auto& each) { return of_library(each.first); });
  auto& list = costs.uncalibrated;
  const auto says_cores = [](const std::string& line) {
    return line.rfind(kCoresOfAMachine, 0) == 0;
  };
  if (calibration.count("cores") > 0) std::erase_if(list, says_cores);
  const bool cores_are_said = std::any_of(list.begin(), list.end(), says_cores);
  std::vector<std::string> missing;
  if (library_alone) missing.push_back(kEngineRates);
  for (const Entry& entry : entries()) {
    const auto found = calibration.find(entry.key.name);
    if (found != calibration.end()) {
      entry.set(costs, found->second);
    } else if (library_alone && !of_library(entry.key.name)) {
      continue;
    } else if (entry.key.name == "cores" && cores_are_said) {
      continue;
    } else if (entry.key.name != "goodput_gbit_per_s" && entry.key.name != "compute_scale") {
      missing.push_back(entry.key.name);
    }
  }
  // Times by roofline and copies to devices stay what they were; the engine's line is replaced.
  std::erase_if(
      list, [](const std::string& line) { return line.find(kEngineRates) != std::string::npos; });
  if (!missing.empty()) list.push_back(fmt::format("{}", fmt::join(missing, ", ")));
}

CostModel calibrated_costs(const program::Program& program, const cluster::Cluster& cluster,
                           const CostOptions& options, const Calibration& calibration) {
  CostModel costs = cost_model(program, cluster, options);
  apply(calibration, costs);
  return costs;
}

}  // namespace autodist::sim
