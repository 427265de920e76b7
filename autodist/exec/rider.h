// What a rank says beside a slice's gradient (comm::Frame::rider, docs/formats/wire.md): how its
// variables are updated from this step on, which of them somebody has given other values, and sums
// over the step's samples. It travels with contributions towards the owner and back with results;
// most slices have none.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "autodist/ir/optimizer.h"
#include "autodist/program/program.h"

namespace autodist::exec {

// Of one variable. Every contributor must say the same.
struct VariableNews {
  // Options of the update rule that are not as the graph declares them, by name.
  std::map<std::string, double> options;
  // The digest of values that the variable has got from outside since the step before.
  std::optional<std::uint64_t> values;

  [[nodiscard]] bool empty() const { return options.empty() && !values; }
  friend bool operator==(const VariableNews& a, const VariableNews& b) {
    return a.options == b.options && a.values == b.values;
  }
};
using News = std::map<ir::VariableId, VariableNews>;

struct Rider {
  std::string news;          // encoded: equal bytes say the same
  std::vector<double> sums;  // added up over the contributors, in the order of ranks
  // The new values of the slice's changed pieces, one after the other: from its lowest member,
  // where the owner is none.
  std::string values;

  [[nodiscard]] bool empty() const { return news.empty() && sums.empty() && values.empty(); }
};

// "" for a rider that is empty.
std::string encode(const Rider& rider);
// Throws InternalError for bytes that encode() does not make.
Rider decode_rider(const std::string& bytes);

// "" where there is nothing to say. `options` are written by their places in the declared rule.
std::string encode_news(const ir::Graph& graph, const News& news);
News decode_news(const ir::Graph& graph, const std::string& bytes);

// What one rank said of a step.
struct Said {
  program::Rank rank;
  const std::string* news;
};
// Throws Error(kUsage) where they differ, naming the ranks, the variable and what to do.
void check_agreement(const ir::Graph& graph, std::uint64_t step, const std::vector<Said>& said);

// A declared rule as the news has it.
ir::UpdateRule rule_by(const ir::UpdateRule& declared, const VariableNews& news);

}  // namespace autodist::exec
