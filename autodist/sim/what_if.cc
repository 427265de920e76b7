#include "autodist/sim/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/base/numbers.h"
#include "autodist/sim/device_table.h"

namespace autodist::sim {
namespace {

constexpr double kBytesPerGigabit = 1e9 / 8;
constexpr double kMostNodes = 1 << 17;

double number(const std::string& key, const std::string& value, double least, double most) {
  const auto result = as_number<double>(value);
  if (!result || !(*result >= least && *result <= most)) {
    fail(ErrorCode::kUsage, "--what-if: {}='{}', a number from {:g} to {:g} expected", key, value,
         least, most);
  }
  return *result;
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
      fail(ErrorCode::kUsage, "--what-if: unknown key '{}', one of {} expected{}", key,
           fmt::join(kKeys, ", "), nearest_hint(key, kKeys));
    }
  }
  return what_if;
}

namespace {

// "1..16" -> 1, 2, 4, 8, 16; "10|25" -> 10, 25; anything else is itself.
std::vector<std::string> values_of(const std::string& key, const std::string& value) {
  std::vector<std::string> values;
  const std::size_t dots = value.find("..");
  if (dots != std::string::npos) {
    if (key != "nodes" && key != "batch") {
      fail(ErrorCode::kUsage, "--what-if: {}='{}', a list expected, as {}=10|25|100", key, value,
           key);
    }
    const double first = number(key, value.substr(0, dots), 1, kMostNodes);
    const double last = number(key, value.substr(dots + 2), first, kMostNodes);
    values.push_back(fmt::format("{:.0f}", first));
    for (double power = 1; power < last; power *= 2) {
      if (power > first) values.push_back(fmt::format("{:.0f}", power));
    }
    if (last > first) values.push_back(fmt::format("{:.0f}", last));
    return values;
  }
  std::istringstream items(value);
  for (std::string item; std::getline(items, item, '|');) values.push_back(item);
  if (values.empty()) values.emplace_back();
  return values;
}

}  // namespace

WhatIfs parse_what_ifs(const std::string& text) {
  WhatIfs all;
  std::string rest;  // what does not vary
  std::vector<std::string> values{""};
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    const std::size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    const std::vector<std::string> own = equals == std::string::npos
                                             ? std::vector<std::string>{""}
                                             : values_of(key, item.substr(equals + 1));
    if (own.size() == 1) {
      rest += (rest.empty() ? "" : ",") + key + (own[0].empty() ? "" : "=" + own[0]);
      continue;
    }
    if (!all.varies.empty()) {
      fail(ErrorCode::kUsage, "--what-if: {} and {} both vary, one expected", all.varies, key);
    }
    all.varies = key;
    values = own;
  }
  for (const std::string& value : values) {
    std::string one = rest;
    if (!all.varies.empty()) one += (one.empty() ? "" : ",") + all.varies + "=" + value;
    all.each.push_back({value, parse_what_if(one)});
  }
  return all;
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
