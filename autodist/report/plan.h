// A plan as people read it: what every variable does, and what that puts on every machine.

#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "autodist/program/program.h"
#include "autodist/strategy/strategy.h"

namespace autodist::report {

// The graph's variables in the order of their size, largest first.
std::vector<std::size_t> by_size(const ir::Graph& graph);

// Of all variables together.
Bytes variable_bytes(const ir::Graph& graph);

// A row per rank, "RANK, DEVICE" and its cells; neighbours of the same cells are one row, "1–3,
// 10.0.0.1:GPU:1 – 10.0.0.2:GPU:1", unless `each` shall have its own.
std::vector<std::vector<std::string>> rank_rows(
    const std::vector<std::string>& devices,
    const std::function<std::vector<std::string>(std::size_t)>& cells_of, bool each);

// What the strategy says of each variable that it names.
std::map<std::string, const strategy::NodeConfig*> nodes_by_variable(
    const strategy::Strategy& strategy);

// Payload that a rank sends and receives in one step over owner paths (PS and direct all-reduce),
// and what it owns. Where rows or factors travel, those of `batch` samples per replica (0: of the
// example batch). Library collectives are counted as a ring: 2 (N-1)/N of their bytes each way.
struct RankTraffic {
  Bytes owned;
  Bytes sent;
  Bytes received;
};
std::vector<RankTraffic> traffic_of(const program::Program& program, std::int64_t batch = 0);

// What every output says of a job whose runs need not be equal bit for bit: a line, and why; "" of
// one that is reproducible.
std::string not_reproducible(const program::Program& program);

// A table of the variables, largest first, at most `most` of them (0: all), then one of the ranks,
// in which those of the same traffic, one after the other, are one row (not with 0); for a terminal
// of so many columns (0: any number). Devices of a single machine are named without its address.
// `batch`: as for traffic_of().
std::string plan_table(const strategy::Strategy& strategy, const program::Program& program,
                       std::size_t most, std::size_t columns, std::int64_t batch = 0);

// The facts of plan_table() as one JSON object, units in the names.
nlohmann::ordered_json plan_json(const strategy::Strategy& strategy,
                                 const program::Program& program, std::int64_t batch = 0);

}  // namespace autodist::report
