// The cheap judge: what a point's step takes by arithmetic alone, in microseconds per point.
//
// AutoSync's "predefined" model divides bytes by bandwidth per server and group. This one also
// knows when a gradient is complete and when its variable is next needed: whatever a card (or an
// owner) must carry for the variables needed up to some moment has to fit between the first of
// their gradients and that moment of the next step. Switches with over-subscription are left to
// the simulator.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "autodist/passes/pipeline.h"
#include "autodist/program/loads.h"
#include "autodist/program/program.h"
#include "autodist/program/relays.h"
#include "autodist/search/autosync/space.h"
#include "autodist/sim/cost_model.h"

namespace autodist::search {

struct Score {
  Seconds step;
  // `step` and a small share of all loads, so that points on one plateau differ.
  double rank = 0;
  // What carries most: the ops, a side of Analytic::Loads, or a variable's way round; the index is
  // that of the side or the variable.
  enum class Where : std::uint8_t { kCompute, kSide, kTrip };
  Where where = Where::kCompute;
  std::size_t index = 0;

  friend bool operator<(const Score& a, const Score& b) { return a.rank < b.rank; }
};

class Analytic {
 public:
  // `program` is any strategy's for the same graph and cluster; it says who the ranks are. `space`
  // and `costs` must outlive this. `slice`: of points that leave it open.
  Analytic(const Space& space, const program::Program& program, const sim::CostModel& costs,
           const passes::Options& passes = {});

  // Of one variable at a point, as if it were one slice.
  struct Traffic {
    bool by_library = true;      // no slice carries it
    bool sums_products = false;  // of two factors each, which every member is sent
    double up = 0;               // bytes from one member to the owner, or to each other member
    double down = 0;             // and back
    double fetched = 0;
    bool with_rows = false;  // what is fetched brings the result (protocol/rows.cc)
    double work = 0;         // seconds of an owner of everything: adding up, updating, handing out
    double slice = 0;        // bytes of the largest
    bool at_owner = false;   // updated there
    bool at_server = false;  // one rank of a node owns all that the node owns
    bool by_node = false;    // each node's contributions are added on it, and it gets one result
    bool to_all = false;     // each member sends to all others, and nothing comes back
    const program::Relay* relay = nullptr;  // passed on from rank to rank
  };

  // What a point loads, a row per variable, filled by score(). Sides: per node sends, receives and
  // inside; per rank its owner.
  struct Loads {
    const Analytic* filled_by = nullptr;
    std::size_t sides = 0;
    std::vector<double> of;
    std::vector<double> trip;  // seconds of a way round with nothing in its way, by variable
    std::size_t nodes = 0;
    std::vector<double> cores;  // seconds of the engine's work, by variable and node
    // What a variable's row follows from; empty before the first.
    std::vector<Choice> choices;
    std::vector<Traffic> traffic;  // what they mean
    Bytes slice;
    std::vector<double> owned;    // by variable and rank: which part of it the rank owns
    std::vector<double> fused;    // by rank: messages per piece fused with others of its owner
    std::vector<double> library;  // by variable: bytes of all that a library reduces with it

    // What a score works in, kept so that further ones need no memory. Nothing in it outlives one.
    struct Scratch {
      struct Shard {  // of a group
        std::uint32_t group = 0;
        bool at_every_rank = false;  // updated there
        std::uint32_t variable = 0;
        double part = 1;
      };
      struct Side {
        double sum = 0;
        double first = 0;  // the first gradient among those needed so far
        double most = 0;
      };
      std::vector<bool> changed;     // by variable: its row must be made again
      std::vector<double> owned;     // this point's, as the last one's in Loads
      std::vector<double> fused;     // this point's
      std::vector<double> library;   // this point's
      std::vector<Shard> shards;     // of all groups
      std::vector<double> pieces;    // by rank: parts that are fused there
      std::vector<double> own;       // by node: the part of one variable that it owns
      std::vector<double> messages;  // by node: in so many messages
      std::vector<Side> sides;
      std::vector<double> works;  // by node: seconds of the engine beside ops
    };
    Scratch scratch;

    double& at(std::size_t variable, std::size_t side) { return of[variable * sides + side]; }
    double& core(std::size_t variable, std::size_t node) { return cores[variable * nodes + node]; }
  };

  // Deterministic. REQUIRES: every choice of `point` is legal.
  [[nodiscard]] Score score(const Point& point) const;
  // What score(point) returns, to the bit, for less: `loads` is of the point that was scored last,
  // and keeps the rows of variables whose choice, owners, fused pieces and library group have not
  // changed. REQUIRES: `loads` is new, or this object filled it.
  [[nodiscard]] Score score(const Point& point, Loads& loads) const;

  // What carries most, in words: "compute", "10.0.0.3 sends", "the owner's work at rank 2", …
  [[nodiscard]] std::string bound_of(const Score& score) const;

  // The variable's part of what the busiest side carries, by variable: where to look first.
  [[nodiscard]] std::vector<double> exposed(const Point& point) const;

 private:
  struct VariableFacts {  // of one variable
    double bytes = 0;
    double weight = 1;   // of its update
    double install = 0;  // seconds at every computing rank, updated by the owner
    double install_updating = 0;
    double multiply_seconds = 0;  // of one member's factors
    double needed = 0;
    double complete = 0;
    bool trained = false;
    passes::ExchangeFacts exchange;
    program::SliceSize size;  // all of it in one slice
  };
  struct Node {
    double rate = 0;
    double latency = 0;
    double intra = 0;
    double members = 0;
    std::uint32_t lowest = 0;
    std::string name;
  };
  // Ranks of a node handle their messages beside each other.
  struct Messages {
    double all = 0;
    double most = 0;  // of one rank, in one direction
  };
  struct NodeTraffic {  // in a step, over a node's card and between its own ranks
    double bytes_out = 0;
    double bytes_in = 0;
    Messages crossing;  // the mean of out and in
    double bytes_inside = 0;
    Messages inside;
  };
  using Where = Score::Where;
  struct Bottleneck {
    double seconds = 0;
    Where where = Where::kCompute;
    std::size_t index = 0;
    double all = 0;

    void raise(double to, Where by, std::size_t at) {
      if (to <= seconds) return;
      seconds = to;
      where = by;
      index = at;
    }
  };

  void read_times(const program::Program& program);
  void read_variables(const program::Program& program);
  void read_library_links();

  // Of the point that `loads` was filled by.
  [[nodiscard]] Score score_of(const Point& point, Loads& loads) const;

  // analytic_loads.cc
  void load(const Point& point, Loads& loads) const;
  void take_inputs(const Point& point, Loads& loads) const;
  // What the scratch has of the point.
  void find_owners(const Point& point, Loads& loads) const;
  void share_groups(const Point& point, Loads& loads) const;
  void count_fused_messages(Loads& loads) const;
  void sum_library_groups(const Point& point, Loads& loads) const;
  // Whether a part of a variable is fused with others of its owner.
  [[nodiscard]] bool is_small(const VariableFacts& facts, double part) const {
    return part > 0 && part * facts.bytes < fuse_below_ && !facts.exchange.by_rows;
  }
  void add_library(std::size_t variable, Loads& loads) const;
  void add_to_all(std::size_t variable, double bytes, double messages, double work,
                  Loads& loads) const;
  void add_factors(std::size_t variable, Loads& loads) const;
  void add_gathered(const Point& point, std::size_t variable, Loads& loads) const;
  void add_variable(std::size_t variable, Loads& loads) const;
  [[nodiscard]] Traffic traffic_of(const VariableFacts& facts, const Choice& choice,
                                   Bytes slice) const;
  [[nodiscard]] double work_of(const VariableFacts& facts, const program::Loads& each,
                               bool relayed) const;
  void add_card(std::size_t node, const Traffic& traffic, double own, double messages,
                double all_messages, std::size_t variable, Loads& loads) const;
  void add_relayed(std::size_t node, const Traffic& traffic, double messages, std::size_t variable,
                   Loads& loads) const;
  void add_traffic(std::size_t node, std::size_t variable, const NodeTraffic& traffic,
                   Loads& loads) const;

  [[nodiscard]] Bottleneck bottleneck_of(const Point& point, Loads& loads, double busy) const;
  void raise_by_sides(const Point& point, Loads& loads, double stretch,
                      Bottleneck& bottleneck) const;
  [[nodiscard]] double busy_in(const Point& point, Loads& loads, double step, double busy) const;

  const Space& space_;
  const sim::CostModel& costs_;
  Bytes slice_;
  double fuse_below_;
  std::vector<VariableFacts> variables_;
  std::vector<std::uint32_t> by_need_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> node_of_rank_;
  std::vector<std::uint32_t> members_;  // ranks that compute
  std::vector<std::uint32_t> rank_of_server_;
  std::map<program::Route, program::Relay> relays_;
  sim::CollectiveLinks library_links_;
  double nodes_with_members_ = 0;
  double members_count_ = 0;
  double compute_ = 0;
};

}  // namespace autodist::search
