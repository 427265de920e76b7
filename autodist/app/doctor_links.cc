// Links between the machines of a cluster, as `autodist doctor` judges them.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "autodist/app/doctor.h"
#include "autodist/base/error.h"
#include "autodist/base/statistics.h"
#include "autodist/base/units.h"
#include "autodist/job/subprocess.h"

namespace autodist::app {
namespace {

constexpr double kSlow = 0.8;      // of what the file says, or of the median
constexpr double kFast = 1.25;     // of what the file says
constexpr double kLate = 3;        // times the median round trip
constexpr Seconds kThreads{2e-4};  // of a round trip: those of both ranks, whatever the link

// What the file says, or leaves at the default, that the slower card of both carries.
struct Nominal {
  double bytes_per_s = 0;  // 0: of a machine that is not in the file
  bool is_stated = true;
};

Nominal nominal(const cluster::Cluster& cluster, const MeasuredLink& link) {
  Nominal slower;
  for (const cluster::Node& node : cluster.nodes) {
    if (node.address != link.from && node.address != link.to) continue;
    if (slower.bytes_per_s > 0 && slower.bytes_per_s <= node.bandwidth_bytes_per_s) continue;
    slower = {node.bandwidth_bytes_per_s, node.bandwidth_is_stated};
  }
  return slower;
}

template <typename Of>
double median(const std::vector<MeasuredLink>& links, Of of) {
  std::vector<double> values;
  for (const MeasuredLink& link : links) values.push_back(of(link));
  return median_of(std::move(values));
}

std::string gbit(double bytes_per_s) { return fmt::format("{:.3g} Gbit/s", 8e-9 * bytes_per_s); }

Finding finding(const MeasuredLink& link, const cluster::Cluster& cluster, double usual,
                double usual_trip) {
  const std::string found = fmt::format("{} to {}: {}, round trip {}", link.from, link.to,
                                        gbit(link.bytes_per_s), to_string(link.round_trip));
  const auto [said, is_stated] = nominal(cluster, link);
  if (link.bytes_per_s < kSlow * usual) {
    return {"link", Health::kPoor, fmt::format("{}; others have {}", found, gbit(usual)),
            "look at its cable, switch port and card (ethtool): the slowest link is every step's"};
  }
  if (said > 0 && (link.bytes_per_s < kSlow * said || link.bytes_per_s > kFast * said)) {
    return {"link", Health::kPoor,
            fmt::format("{}; the file says {}{}", found,
                        is_stated ? "" : "nothing, which counts as ", gbit(said)),
            fmt::format("network_bandwidth: {:.3g}, if nothing else is using it, so that plans are "
                        "for this link",
                        8e-9 * link.bytes_per_s)};
  }
  if (link.round_trip.value > kLate * usual_trip && link.round_trip > kThreads * kLate) {
    return {"link", Health::kPoor,
            fmt::format("{}; others take {}", found, to_string(Seconds(usual_trip))),
            "look at what is between them: another switch, a firewall, a tunnel"};
  }
  return {"link", Health::kGood, found, ""};
}

}  // namespace

std::vector<MeasuredLink> measure_links(const std::string& torch_program,
                                        const std::string& cluster_file) {
  if (torch_program.empty()) {
    fail(
        ErrorCode::kEnvironment,
        "no autodist-torch beside this program to measure them with. Build with libtorch, or leave "
        "--measure out.");
  }
  const job::Finished measured = job::run_to_end(
      {torch_program, "bench", "links", "--cluster", cluster_file, "--encrypt", "auto", "--json"});
  if (measured.exit_code != 0) {
    fail(ErrorCode::kEnvironment, "no rank on every machine of '{}' to measure with", cluster_file);
  }
  std::vector<MeasuredLink> links;
  const auto json = nlohmann::json::parse(measured.output);
  for (const auto& link : json.at("links")) {
    links.push_back({link.at("from"), link.at("to"), link.at("bytes_per_second"),
                     Seconds(link.at("round_trip_seconds")),
                     Seconds(link.at("message_cpu_seconds"))});
  }
  return links;
}

std::vector<Finding> findings(const std::vector<MeasuredLink>& links,
                              const cluster::Cluster& cluster) {
  std::vector<Finding> all;
  if (links.empty()) return all;
  const double usual = median(links, [](const auto& link) { return link.bytes_per_s; });
  const double trip = median(links, [](const auto& link) { return link.round_trip.value; });
  for (const MeasuredLink& link : links) all.push_back(finding(link, cluster, usual, trip));
  return all;
}

std::string link_table(const std::vector<MeasuredLink>& links) {
  std::vector<std::string> machines;
  std::map<std::pair<std::size_t, std::size_t>, std::string> cells;
  const auto index = [&](const std::string& name) {
    const auto at = static_cast<std::size_t>(std::find(machines.begin(), machines.end(), name) -
                                             machines.begin());
    if (at == machines.size()) machines.push_back(name);
    return at;
  };
  for (const MeasuredLink& link : links) {
    const std::size_t from = index(link.from);
    const std::size_t to = index(link.to);
    cells[{from, to}] = gbit(link.bytes_per_s);
    cells[{to, from}] = to_string(link.round_trip);
  }
  std::string text = fmt::format("{:<20}", "");
  for (std::size_t i = 0; i < machines.size(); ++i) text += fmt::format(" {:>13}", i);
  text += "\n";
  for (std::size_t row = 0; row < machines.size(); ++row) {
    text += fmt::format("{:<3} {:<16}", row, machines[row]);
    for (std::size_t column = 0; column < machines.size(); ++column) {
      text += fmt::format(" {:>13}", row == column ? "-" : cells[{row, column}]);
    }
    text += "\n";
  }
  return text;
}

sim::Calibration link_calibration(const std::vector<MeasuredLink>& links,
                                  const cluster::Cluster& cluster) {
  sim::Calibration calibration;
  if (links.empty()) return calibration;
  double share = 1;
  for (const MeasuredLink& link : links) {
    const double said = nominal(cluster, link).bytes_per_s;
    if (said > 0) share = std::min(share, link.bytes_per_s / said);
  }
  calibration["goodput"] = std::max(share, 1e-3);  // the least that such a file may say
  return calibration;
}

}  // namespace autodist::app
