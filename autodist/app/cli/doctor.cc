// `autodist doctor`: what is wrong here, and what to do about it.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/doctor.h"
#include "autodist/app/output_file.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"

namespace autodist::app {
namespace {

struct DoctorArguments {
  std::string cluster;
  bool measure = false;
};

// What is measured replaces what the file had of it.
void write_measured(const std::string& path, const sim::Calibration& of_links) {
  sim::Calibration calibration;
  if (std::filesystem::exists(path)) calibration = sim::parse_calibration(read_file(path), path);
  for (const auto& [key, value] : measure_machine()) calibration[key] = value;
  for (const auto& [key, value] : of_links) calibration[key] = value;
  write_file_atomically(path, sim::to_yaml(calibration));
}

nlohmann::ordered_json links_json(const std::vector<MeasuredLink>& links) {
  auto json = nlohmann::ordered_json::array();
  for (const MeasuredLink& link : links) {
    json.push_back({{"from", link.from},
                    {"to", link.to},
                    {"bytes_per_second", link.bytes_per_s},
                    {"round_trip_seconds", link.round_trip.value},
                    {"message_cpu_seconds", link.message_cpu.value}});
  }
  return json;
}

int doctor(const DoctorArguments& arguments, Console& console) {
  // Beside the cluster, where plan, simulate and train look for it.
  const bool is_named = !arguments.cluster.empty();
  const std::string path = sim::calibration_path(is_named ? arguments.cluster : "local:1");
  if (arguments.measure) expect_writable("--measure", path);
  std::size_t ranks = 1;
  std::vector<Finding> of_nodes;
  const MachineFacts machine = machine_facts();
  std::vector<MeasuredLink> links;
  sim::Calibration of_links;
  if (is_named) {
    const cluster::Cluster cluster = cluster::read_cluster(arguments.cluster);
    const std::vector<NodeFacts> nodes = node_facts(cluster);
    of_nodes = findings(nodes);
    for (Finding& each : gpu_findings(machine, nodes)) of_nodes.push_back(std::move(each));
    ranks = 0;
    for (const cluster::Place& place : cluster::ranks_of(cluster)) {
      ranks += nodes[place.node].is_here ? 1 : 0;
    }
    ranks = std::max<std::size_t>(1, ranks);
    if (arguments.measure && cluster.nodes.size() > 1) {
      try {
        links = measure_links(machine.torch_program, arguments.cluster);
      } catch (const Error& error) {
        of_nodes.push_back(
            {"links", Health::kBad, error.what(), "the first rank that failed says why, above"});
      }
      of_links = link_calibration(links, cluster);
      for (Finding& finding : findings(links, cluster)) of_nodes.push_back(std::move(finding));
    }
  }
  std::vector<Finding> all = findings(machine, ranks);
  all.insert(all.end(), of_nodes.begin(), of_nodes.end());
  if (arguments.measure) write_measured(path, of_links);
  if (is_named || arguments.measure) {
    all.push_back(calibration_finding(path, std::filesystem::exists(path), is_named));
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
    if (arguments.measure) json["links"] = links_json(links);
    console.answer(json);
    return code;
  }
  for (const Finding& finding : all) {
    console.out << fmt::format("{:<5} {:<14} {}\n", name_of(finding.health), finding.subject,
                               finding.found);
    if (!finding.remedy.empty()) console.out << fmt::format("      -> {}\n", finding.remedy);
  }
  if (!links.empty()) console.out << "\n" << link_table(links);
  return code;
}

}  // namespace

Action declare_doctor(CLI::App& verb) {
  auto arguments = std::make_shared<DoctorArguments>();
  verb.add_option("--cluster", arguments->cluster,
                  "check its addresses, too: a cluster file, a host file, or local:N");
  verb.add_flag("--measure", arguments->measure,
                "measure this machine, and the links between those of a cluster, whose ranks are "
                "started for it, and write the calibration beside the cluster file");
  return [arguments](Console& console) { return doctor(*arguments, console); };
}

}  // namespace autodist::app
