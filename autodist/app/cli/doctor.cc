// `autodist doctor`: what is wrong here, and what to do about it.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/doctor.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"

namespace autodist::app {
namespace {

struct DoctorArguments {
  std::string cluster;
  bool measure = false;
};

// What is measured replaces what the file had of it.
std::string write_measured(const std::string& path) {
  sim::Calibration calibration;
  if (std::filesystem::exists(path)) calibration = sim::parse_calibration(read_file(path), path);
  for (const auto& [key, value] : measure_machine()) calibration[key] = value;
  write_file_atomically(path, sim::to_yaml(calibration));
  return path;
}

int doctor(const DoctorArguments& arguments, Console& console) {
  const std::string path = sim::calibration_path(
      arguments.cluster.empty() || arguments.cluster.rfind("local", 0) == 0 ? "local"
                                                                            : arguments.cluster);
  std::vector<Finding> all;
  std::size_t ranks = 1;
  std::vector<Finding> of_nodes;
  if (!arguments.cluster.empty()) {
    const cluster::Cluster cluster = cluster::read_cluster(arguments.cluster);
    const std::vector<NodeFacts> nodes = node_facts(cluster);
    of_nodes = findings(nodes);
    ranks = 0;
    for (const cluster::Place& place : cluster::ranks_of(cluster)) {
      ranks += nodes[place.node].is_here ? 1 : 0;
    }
    ranks = std::max<std::size_t>(1, ranks);
  }
  all = findings(machine_facts(), ranks);
  all.insert(all.end(), of_nodes.begin(), of_nodes.end());
  if (arguments.measure) write_measured(path);
  if (!arguments.cluster.empty() || arguments.measure) {
    all.push_back(calibration_finding(path, std::filesystem::exists(path)));
  }

  const bool bad = std::any_of(all.begin(), all.end(), [](const Finding& finding) {
    return finding.health == Health::kBad;
  });
  const int code = bad ? static_cast<int>(ErrorCode::kEnvironment) : 0;
  if (console.json) {
    nlohmann::ordered_json json{{"healthy", !bad}};
    json["findings"] = nlohmann::ordered_json::array();
    for (const Finding& finding : all) {
      json["findings"].push_back({{"subject", finding.subject},
                                  {"health", name_of(finding.health)},
                                  {"found", finding.found},
                                  {"remedy", finding.remedy}});
    }
    console.out << json.dump() << "\n";
    return code;
  }
  for (const Finding& finding : all) {
    console.out << fmt::format("{:<5} {:<14} {}\n", name_of(finding.health), finding.subject,
                               finding.found);
    if (!finding.remedy.empty()) console.out << fmt::format("      -> {}\n", finding.remedy);
  }
  return code;
}

}  // namespace

Action declare_doctor(CLI::App& verb) {
  auto arguments = std::make_shared<DoctorArguments>();
  verb.add_option("--cluster", arguments->cluster,
                  "check its addresses, too: resource specification, host file, or local:N");
  verb.add_flag("--measure", arguments->measure,
                "measure this machine and write the calibration beside the cluster file");
  return [arguments](Console& console) { return doctor(*arguments, console); };
}

}  // namespace autodist::app
