// `autodist bench links`: what the links between the machines of a cluster can do, each pair by
// itself. `autodist doctor --measure` runs it.

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "autodist/app/this_process.h"
#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/comm/link_probe.h"
#include "autodist/job/torch/joined_job.h"
#include "autodist/planning/link_tuning.h"
#include "autodist/studies/torch/bench.h"

namespace autodist::studies {
namespace {

// The first rank of every machine, and which machine that is.
std::map<comm::RankNumber, std::string> one_per_machine(const cluster::Cluster& cluster) {
  std::map<comm::RankNumber, std::string> ranks;
  std::map<std::string, comm::RankNumber> first;
  comm::RankNumber rank = 0;
  for (const cluster::Place& place : cluster::ranks_of(cluster)) {
    const std::string& address = cluster.nodes[place.node].address;
    if (first.emplace(address, rank).second) ranks.emplace(rank, address);
    ++rank;
  }
  return ranks;
}

}  // namespace

int bench_links(const SyncArguments& arguments, app::Console& console) {
  JobOptions options;
  options.cpu_only = true;  // nothing is computed
  options.encryption = arguments.encryption;
  job::JoinedJob job(arguments.cluster, options, app::this_process());
  const std::map<comm::RankNumber, std::string> machines = one_per_machine(job.cluster());
  if (machines.size() < 2) {
    fail(ErrorCode::kUsage, "bench links: '{}' is one machine; two or more expected",
         arguments.cluster);
  }
  std::vector<comm::RankNumber> members;
  for (const auto& [rank, address] : machines) members.push_back(rank);
  const std::vector<comm::ProbedLink> links = comm::probe_all_links(
      job.transport(), members, job.clock(), ProcessCpuClock(), job.options().join_limit);
  job.end();
  if (!job.is_chief()) return 0;
  nlohmann::ordered_json json{{"links", nlohmann::ordered_json::array()}};
  for (const comm::ProbedLink& link : links) {
    const comm::LinkFigures& figures = link.figures;
    json["links"].push_back({{"from", machines.at(link.from)},
                             {"to", machines.at(link.to)},
                             {"bytes_per_second", figures.bandwidth_bytes_per_s},
                             {"round_trip_seconds", figures.round_trip.value},
                             {"message_cpu_seconds", figures.message_cost.value}});
    if (console.json) continue;
    console.out << fmt::format("{:<24} {:<24} {:>9.1f} Mbit/s  round trip {:>9}  a message {:>9}\n",
                               machines.at(link.from), machines.at(link.to),
                               8e-6 * figures.bandwidth_bytes_per_s, to_string(figures.round_trip),
                               to_string(figures.message_cost));
  }
  if (console.json) console.out << json.dump() << "\n";
  return 0;
}

}  // namespace autodist::studies
