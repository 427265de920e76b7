// What was measured on the machines of a cluster: a small file beside the cluster's
// (docs/formats/calibration.md). What it does not hold stays at its default, which every prediction
// names as uncalibrated.

#pragma once

#include <map>
#include <string>

#include "autodist/sim/cost_model.h"

namespace autodist::sim {

// Values by key; the keys are those of calibration_keys().
using Calibration = std::map<std::string, double>;

struct CalibrationKey {
  std::string name;     // "message_seconds"
  std::string meaning;  // one line, with its unit
  double least = 0;     // values outside are refused
  double most = 1e18;
  bool is_whole = false;
};
const std::vector<CalibrationKey>& calibration_keys();

// "cluster.yml" -> "cluster.calibration.yml". Every local:N is this machine, whatever its ranks:
// "local.calibration.yml".
std::string calibration_path(const std::string& cluster_path);

// A YAML map of keys to numbers. Throws Error(kUsage), prefixed with `where`: an unknown key (the
// nearest known one given), one that stands twice, a value that is no number or out of range.
Calibration parse_calibration(const std::string& text, const std::string& where);
// The file `path`, or where that is "", the one beside the cluster's; "" where there is none, or no
// file names the cluster (a launcher's ranks have none).
std::string calibration_file(const std::string& cluster_path, const std::string& path = "");
// What stands there.
Calibration read_calibration(const std::string& cluster_path, const std::string& path = "");
// Parses back to the same, bit for bit.
std::string to_yaml(const Calibration& calibration);

// Sets what the calibration holds and takes it off the list of what is uncalibrated.
void apply(const Calibration& calibration, CostModel& costs);

// What things cost on `cluster`, as cost_model() says, and as was measured there.
CostModel calibrated_costs(const program::Program& program, const cluster::Cluster& cluster,
                           const CostOptions& options, const Calibration& calibration);

}  // namespace autodist::sim
