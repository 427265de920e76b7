#include "autodist/sim/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/base/numbers.h"
#include "autodist/base/text.h"
#include "autodist/sim/device_table.h"

namespace autodist::sim {
namespace {

constexpr double kMostNodes = 1 << 17;

struct Key {
  const char* name;
  double least;
  double most;
  bool is_whole;
  const char* example;
};
constexpr Key kNodes{"nodes", 1, kMostNodes, true, "nodes=16"};
constexpr Key kBandwidth{"bandwidth", 1e-6, 1e6, false, "bandwidth=25 (Gbit/s)"};
constexpr Key kLatency{"latency", 0, 1e3, false, "latency=2e-5 (seconds)"};
constexpr Key kBatch{"batch", 1, 1e9, true, "batch=32 (of each replica)"};

double number(const Key& key, const std::string& value) {
  const auto result = as_number<double>(value);
  if (!result || !(*result >= key.least && *result <= key.most) ||
      (key.is_whole && *result != std::floor(*result))) {
    fail(ErrorCode::kUsage,
         "--what-if: {}='{}', a {}number from {} to {} expected. For example: {}", key.name, value,
         key.is_whole ? "whole " : "", key.least, key.most, key.example);
  }
  return *result;
}

// The key of "key=value", which is known and stands once.
std::string key_of(const std::string& item, std::set<std::string>& given) {
  static const std::vector<std::string> kKeys{"nodes", "bandwidth", "latency", "device", "batch"};
  const std::string key = item.substr(0, item.find('='));
  if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
    fail(ErrorCode::kUsage,
         "--what-if: '{}', one of {} as key=value expected{} Several values of one: nodes=2|4",
         item, fmt::join(kKeys, ", "), nearest_hint(key, kKeys));
  }
  if (given.insert(key).second) return key;
  fail(ErrorCode::kUsage,
       "--what-if: {} stands twice. Keep one, or give it several values: {}=FIRST|SECOND", key,
       key);
}

}  // namespace

WhatIf parse_what_if(const std::string& text) {
  WhatIf what_if;
  std::set<std::string> given;
  for (const std::string& item : split(text, ',')) {
    const std::size_t equals = item.find('=');
    const std::string key = key_of(item, given);
    const std::string value = equals == std::string::npos ? "" : item.substr(equals + 1);
    if (key == kNodes.name) {
      what_if.nodes = static_cast<std::uint32_t>(number(kNodes, value));
    } else if (key == kBandwidth.name) {
      what_if.bandwidth = number(kBandwidth, value);
    } else if (key == kLatency.name) {
      what_if.latency = number(kLatency, value);
    } else if (key == kBatch.name) {
      what_if.batch = static_cast<std::int64_t>(number(kBatch, value));
    } else {
      what_if.device = find_device(value, "--what-if").kind;
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
    if (key != kNodes.name && key != kBatch.name) {
      fail(ErrorCode::kUsage,
           "--what-if: {}='{}', and ranges are of nodes and batch. Give a list: {}={}", key, value,
           key, key == "device" ? "V100|A100" : "10|25|100");
    }
    const Key& ranged = key == kNodes.name ? kNodes : kBatch;
    const double first = number(ranged, value.substr(0, dots));
    const double last = number(ranged, value.substr(dots + 2));
    if (last < first) {
      fail(ErrorCode::kUsage,
           "--what-if: {}='{}', an empty range: it ends before it begins. Swap its ends: "
           "{}={:.0f}..{:.0f}",
           key, value, key, last, first);
    }
    values.push_back(fmt::format("{:.0f}", first));
    for (double power = 1; power < last; power *= 2) {
      if (power > first) values.push_back(fmt::format("{:.0f}", power));
    }
    if (last > first) values.push_back(fmt::format("{:.0f}", last));
    return values;
  }
  for (const std::string& item : split(value, '|')) {
    if (std::find(values.begin(), values.end(), item) != values.end()) {
      fail(ErrorCode::kUsage, "--what-if: {}='{}' has {} twice. Keep one.", key, value, item);
    }
    values.push_back(item);
  }
  if (values.empty()) values.emplace_back();
  return values;
}

}  // namespace

WhatIfs parse_what_ifs(const std::string& text) {
  WhatIfs all;
  std::string rest;  // what does not vary
  std::vector<std::string> values{""};
  std::set<std::string> given;
  for (const std::string& item : split(text, ',')) {
    const std::size_t equals = item.find('=');
    const std::string key = key_of(item, given);
    const std::vector<std::string> own = equals == std::string::npos
                                             ? std::vector<std::string>{""}
                                             : values_of(key, item.substr(equals + 1));
    if (own.size() == 1) {
      rest += (rest.empty() ? "" : ",") + key + (own[0].empty() ? "" : "=" + own[0]);
      continue;
    }
    if (!all.varies.empty()) {
      fail(ErrorCode::kUsage, "--what-if: {} and {} both vary, one may. Give {} one value.",
           all.varies, key, key);
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
      fail(ErrorCode::kUsage,
           "--what-if: nodes={} takes the first ones, and the chief is not among them. Ask for "
           "more, or name the chief first in the cluster file.",
           what_if.nodes);
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
    if (what_if.bandwidth > 0) {
      node.bandwidth_bytes_per_s = what_if.bandwidth * kBytesPerGigabit;
      node.bandwidth_is_stated = true;
    }
    if (what_if.latency >= 0) node.latency = Seconds(what_if.latency);
  }
  return cluster;
}

}  // namespace autodist::sim
