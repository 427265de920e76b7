#include "autodist/sim/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <vector>

#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/sim/device_table.h"

namespace autodist::sim {
namespace {

constexpr double kBytesPerGigabit = 1e9 / 8;
constexpr double kMostNodes = 1 << 17;

double number(const std::string& key, const std::string& value, double least, double most) {
  double result = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, result);
  if (error != std::errc() || stop != end || !(result >= least && result <= most)) {
    fail(ErrorCode::kUsage, "--what-if: {}='{}', a number from {:g} to {:g} expected", key, value,
         least, most);
  }
  return result;
}

}  // namespace

WhatIf parse_what_if(const std::string& text) {
  static const std::vector<std::string> kKeys{"nodes", "bandwidth", "latency", "device", "batch"};
  WhatIf what_if;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    const std::size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : item.substr(equals + 1);
    if (key == "nodes") {
      what_if.nodes = static_cast<std::uint32_t>(number(key, value, 1, kMostNodes));
    } else if (key == "bandwidth") {
      what_if.bandwidth = number(key, value, 1e-6, 1e6);
    } else if (key == "latency") {
      what_if.latency = number(key, value, 0, 1e3);
    } else if (key == "batch") {
      what_if.batch = static_cast<std::int64_t>(number(key, value, 1, 1e9));
    } else if (key == "device") {
      what_if.device = find_device(value, "--what-if").kind;
    } else {
      const std::string meant = nearest(key, kKeys);
      fail(ErrorCode::kUsage, "--what-if: unknown key '{}', one of {} expected{}", key,
           fmt::join(kKeys, ", "), meant.empty() ? "" : fmt::format(". Nearest: '{}'.", meant));
    }
  }
  return what_if;
}

cluster::Cluster changed(cluster::Cluster cluster, const WhatIf& what_if) {
  auto& nodes = cluster.nodes;
  if (what_if.nodes != 0 && what_if.nodes < nodes.size()) {
    nodes.resize(what_if.nodes);
    const bool has_chief = std::any_of(nodes.begin(), nodes.end(),
                                       [](const cluster::Node& node) { return node.chief; });
    if (!has_chief) {
      fail(ErrorCode::kUsage, "--what-if: the first {} nodes do not hold the chief", what_if.nodes);
    }
    cluster.switches.clear();
  }
  if (what_if.nodes > nodes.size()) {
    const auto worker = std::find_if(nodes.rbegin(), nodes.rend(), [](const cluster::Node& node) {
      return node.role == cluster::NodeRole::kWorker;
    });
    cluster::Node copy = *worker;
    copy.chief = false;
    if (nodes.size() == 1 && nodes.front().address == "localhost") {
      nodes.front().address = "what-if-1";  // several nodes have no loopback among them
    }
    while (nodes.size() < what_if.nodes) {
      copy.address = fmt::format("what-if-{}", nodes.size() + 1);
      nodes.push_back(copy);
    }
  }
  for (cluster::Node& node : nodes) {
    if (what_if.bandwidth > 0) node.bandwidth_bytes_per_s = what_if.bandwidth * kBytesPerGigabit;
    if (what_if.latency >= 0) node.latency = Seconds(what_if.latency);
  }
  return cluster;
}

}  // namespace autodist::sim
