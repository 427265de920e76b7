#include "autodist/report/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autodist/base/error.h"
#include "autodist/ir/text.h"

namespace autodist::report {
namespace {

std::string synchronizer_words(const strategy::Synchronizer& synchronizer) {
  const program::Compression compression = strategy::compression_of(synchronizer);
  const std::string compressed =
      compression.codec == program::Codec::kNone ? "" : ", " + program::to_string(compression);
  if (const auto* ps = std::get_if<strategy::PsSynchronizer>(&synchronizer)) {
    return "PS at " + ps->reduction_destination + strategy::words_of(*ps) + compressed;
  }
  if (const auto* all_reduce = std::get_if<strategy::AllReduceSynchronizer>(&synchronizer)) {
    const bool at_owner = strategy::updates_at_owner(synchronizer);
    return fmt::format("all-reduce group {} ({}){}{}", all_reduce->group,
                       name_of(strategy::algorithm_of(*all_reduce)),
                       at_owner ? ", updated at the owner" : "", compressed);
  }
  return "-";
}

bool shards_agree(const strategy::NodeConfig& node) {
  const std::string first = synchronizer_words(node.parts.front().synchronizer);
  return std::all_of(node.parts.begin(), node.parts.end(), [&](const strategy::NodeConfig& part) {
    return synchronizer_words(part.synchronizer) == first;
  });
}

}  // namespace

std::string describe(const strategy::NodeConfig& node) {
  if (node.parts.empty()) return synchronizer_words(node.synchronizer);
  return fmt::format("{} shards ({}): {}{}", node.parts.size(), node.partitioner,
                     synchronizer_words(node.parts.front().synchronizer),
                     shards_agree(node) ? "" : ", …");
}

std::string strategy_table(const strategy::Strategy& strategy) {
  std::string text;
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("{:<16}{}\n", name, one_line(value));
  };
  line("strategy", strategy.id);
  if (!strategy.path.empty()) line("path", strategy.path);
  line("replicas", fmt::format("{}", fmt::join(strategy.replicas, ", ")));
  if (!strategy.batch_shares.empty()) {
    line("batch shares", fmt::format("{}", fmt::join(strategy.batch_shares, " : ")));
  }
  if (strategy.slice_bytes.value > 0) line("slices up to", to_string(strategy.slice_bytes));
  if (strategy.window_bytes.value > 0) line("window per rank", to_string(strategy.window_bytes));
  std::vector<std::vector<std::string>> rows{{"variable", "needed", "synchronised by"}};
  for (const strategy::NodeConfig& node : strategy.nodes) {
    rows.push_back({one_line(strategy::variable_name(node.name)),
                    node.needed ? to_string(*node.needed) : "-", one_line(describe(node))});
    if (node.parts.empty() || shards_agree(node)) continue;
    for (const strategy::NodeConfig& part : node.parts) {
      rows.push_back({"  " + one_line(strategy::variable_name(part.name)), "",
                      one_line(synchronizer_words(part.synchronizer))});
    }
  }
  return text + "\n" + ir::align(rows, "", {1});
}

std::string strategy_json(const strategy::Strategy& strategy) {
  nlohmann::ordered_json json{{"kind", "strategy"},
                              {"id", strategy.id},
                              {"path", strategy.path},
                              {"replicas", strategy.replicas},
                              {"slice_bytes", strategy.slice_bytes.value},
                              {"window_bytes", strategy.window_bytes.value},
                              {"batch_shares", strategy.batch_shares}};
  json["variables"] = nlohmann::ordered_json::array();
  for (const strategy::NodeConfig& node : strategy.nodes) {
    nlohmann::ordered_json row{{"name", strategy::variable_name(node.name)}};
    if (node.parts.empty()) {
      row["synchronizer"] = synchronizer_words(node.synchronizer);
    } else {
      row["partitioner"] = node.partitioner;
      row["shards"] = nlohmann::ordered_json::array();
      for (const strategy::NodeConfig& part : node.parts) {
        row["shards"].push_back({{"name", strategy::variable_name(part.name)},
                                 {"synchronizer", synchronizer_words(part.synchronizer)}});
      }
    }
    if (node.needed) row["needed_seconds"] = node.needed->value;
    json["variables"].push_back(std::move(row));
  }
  return json.dump();
}

}  // namespace autodist::report
