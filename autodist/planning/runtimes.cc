#include "autodist/planning/runtimes.h"

#include <yaml-cpp/yaml.h>

#include <cmath>

#include "autodist/base/error.h"

namespace autodist::planning {
namespace {

constexpr std::size_t kLongest = 1 << 20;

Seconds time_of(const YAML::Node& node, const std::string& where) {
  double value = 0;
  const bool number = node.IsScalar() && YAML::convert<double>::decode(node, value);
  if (!number || !std::isfinite(value) || value < 0) {
    fail(ErrorCode::kUsage, "{}: '{}' is no time, seconds of 0 or more expected", where,
         node.IsScalar() ? node.Scalar() : "…");
  }
  return Seconds(value);
}

YAML::Node load(const std::string& text, const std::string& where) {
  if (text.size() > kLongest) {
    fail(ErrorCode::kUsage, "{}: {} bytes, at most {} expected of step times", where, text.size(),
         kLongest);
  }
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    fail(ErrorCode::kUsage, "{}:{}: not YAML: {}. Step times expected, as 'average: 0.12'", where,
         error.mark.line + 1, error.msg);
  }
}

}  // namespace

bool operator==(const Runtimes& a, const Runtimes& b) {
  return a.average == b.average && a.steps == b.steps;
}

Runtimes parse_runtimes(const std::string& text, const std::string& where) {
  const YAML::Node root = load(text, where);
  if (!root.IsMap() || !(root["average"] || root["runtime"])) {
    fail(ErrorCode::kUsage,
         "{}: neither 'average' nor 'runtime', seconds expected, as 'average: 0.12'", where);
  }
  Runtimes runtimes;
  const YAML::Node steps = root["runtime"];
  if (steps && !steps.IsSequence()) {
    fail(ErrorCode::kUsage, "{}: runtime: a list of seconds expected, as [0.12, 0.11]", where);
  }
  Seconds sum;
  for (const YAML::Node& step : steps) {
    runtimes.steps.push_back(time_of(step, where + ": runtime"));
    sum += runtimes.steps.back();
  }
  if (root["average"]) {
    runtimes.average = time_of(root["average"], where + ": average");
  } else if (!runtimes.steps.empty()) {
    runtimes.average = sum * (1.0 / static_cast<double>(runtimes.steps.size()));
  }
  return runtimes;
}

std::string to_yaml(const Runtimes& runtimes) {
  std::vector<double> steps;
  for (const Seconds step : runtimes.steps) steps.push_back(step.value);
  return fmt::format("average: {}\nruntime: [{}]\n", runtimes.average.value,
                     fmt::join(steps, ", "));
}

}  // namespace autodist::planning
