// The page's part on the plan: variables by size with what was chosen and why, ranks, memory, and
// the alternatives.

#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/ir/graph.h"
#include "autodist/program/program.h"
#include "autodist/strategy/strategy.h"

namespace autodist::report {

// Another way to do the same job, beside the one that was chosen.
struct Alternative {
  std::string name;             // "PartitionedPS"
  std::string description;      // one line
  Bytes busiest;                // what the busiest rank sends and receives in a step
  std::optional<Seconds> step;  // predicted
  std::optional<Bytes> peak;    // predicted: of the fullest device
  std::string remark;           // what bounds it, or that it does not fit
  bool chosen = false;
  std::string refused;  // why it cannot be done; empty: it can
};

// The best other choice for one variable, all else being as it is.
struct NextBest {
  std::string choice;
  Seconds cost;  // per step; below 0 where it would be faster
  std::string why;
  Seconds waited;  // for the variable as it is, by the simulator
};
using NextBestByName = std::map<std::string, NextBest>;

// Of a Program, the busiest rank's payload of a step, both ways (traffic_of(), report/plan.h).
Bytes busiest_rank(const program::Program& program, std::int64_t batch = 0);

// One JSON object, units in the names; what is not there is null. At most `most` variables, the
// largest ones. `batch`: as for traffic_of(). `strategy` and `program` may be null; REQUIRES: the
// program is of this graph.
nlohmann::ordered_json plan_section(const ir::Graph& graph, const strategy::Strategy* strategy,
                                    const program::Program* program,
                                    const std::vector<Alternative>& alternatives,
                                    const NextBestByName& next_best, std::size_t most,
                                    std::int64_t batch = 0);

// Where there is a strategy and no graph: its variables in its own order, without sizes.
nlohmann::ordered_json plan_section(const strategy::Strategy& strategy, std::size_t most);

}  // namespace autodist::report
