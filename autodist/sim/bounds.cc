#include "autodist/sim/bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "autodist/program/loads.h"
#include "autodist/sim/factored.h"
#include "autodist/sim/job_tables.h"

namespace autodist::sim {
namespace {

struct Side {
  double seconds = 0;
  std::string name;

  void raise(double to, const std::string& by) {
    if (to <= seconds) return;
    seconds = to;
    name = by;
  }
};

class Bounding {
 public:
  Bounding(const program::Program& program, const cluster::Cluster& cluster, const CostModel& costs,
           const JobTables& tables)
      : program_(program), cluster_(cluster), costs_(costs), tables_(tables) {}

  Bounds all() {
    Bounds bounds;
    bounds.compute = Seconds(compute());
    const Side card = this->card();
    const Side owner = this->owner();
    const Side chain = this->chain();
    bounds.card = Seconds(card.seconds);
    bounds.card_name = card.name;
    bounds.owner = Seconds(owner.seconds);
    bounds.owner_name = owner.name;
    bounds.chain = Seconds(chain.seconds);
    bounds.chain_name = chain.name;
    bounds.plan = std::max({bounds.compute, bounds.card, bounds.owner, bounds.chain});
    if (program_.is_placed()) {  // nothing need cross; the ops may be spread as one likes
      bounds.problem = bounds.whole = bare_compute() * (1.0 / program_.stages);
      return bounds;
    }
    const std::vector<Factored> none(tables_.variables.size());
    bounds.traffic = least(needed_bytes());
    bounds.whole = std::max({least_compute(), bounds.traffic, problem_chain(none)});
    bounds.problem = with_factors(bounds.whole);
    // The slices of a variable share links on their way round, which `chain` leaves out.
    if (is_lossless_and_synchronous()) bounds.plan = std::max(bounds.plan, bounds.problem);
    return bounds;
  }

 private:
  // One of those that the problem's bound holds for.
  [[nodiscard]] bool is_lossless_and_synchronous() const {
    return program_.in_step() &&
           std::all_of(program_.slices.begin(), program_.slices.end(),
                       [](const auto& slice) { return program::is_lossless(slice.exchange); }) &&
           std::all_of(
               program_.collectives.begin(), program_.collectives.end(),
               [](const auto& collective) { return program::is_lossless(collective.exchange); });
  }

  [[nodiscard]] double seconds(const Segment& segment, std::uint32_t rank) const {
    const std::size_t device = costs_.device_of_rank[rank];
    return segment.seconds[device] + segment.extra[device];
  }

  // Of one pass.
  [[nodiscard]] double pass(std::uint32_t rank) const {
    double sum = 0;
    for (const FlatInstruction& each : tables_.roles[tables_.role_of_rank[rank]].compute) {
      if (each.kind == FlatKind::kCompute) sum += seconds(tables_.segments[each.id], rank);
    }
    return sum;
  }

  [[nodiscard]] double compute() const {
    double slowest = 0;
    for (std::uint32_t rank : one_per_device()) {
      slowest = std::max(slowest, pass(rank) * tables_.passes);
    }
    return slowest;
  }

  [[nodiscard]] Seconds bare_compute() const {
    Seconds slowest;
    for (std::uint32_t rank : one_per_device()) {
      slowest = std::max(slowest, compute_seconds(costs_, program::Rank(rank)));
    }
    return slowest;
  }

  // Whether parts of the batch that are not equal could help, or are there.
  [[nodiscard]] bool parts_may_differ() const {
    if (!program_.graph->batch_fixed_reason.empty()) return false;
    std::set<double> seconds;
    for (std::uint32_t rank : one_per_device()) {
      if (costs_.device(program::Rank(rank)).with_more == Seconds{}) return false;  // not known
      seconds.insert(compute_seconds(costs_, program::Rank(rank)).value);
    }
    return seconds.size() > 1;
  }

  // Of the slowest device when every one has that part of the batch that suits it best. Times are
  // convex in samples, so from what it has a device saves no more per sample than with the first
  // one less, and needs no less than with the first one more.
  [[nodiscard]] Seconds least_compute() const {
    const Seconds slowest = bare_compute();
    if (!parts_may_differ()) return slowest;
    double low = 0;
    double high = slowest.value;
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      double more = 0;  // samples than there are
      for (const program::Rank rank : computing_) more += room_for(rank, middle);
      (more >= 0 ? high : low) = middle;
    }
    return Seconds(low);
  }

  // Samples that it could have beyond those it has, at most. With fewer samples than micro-batches
  // it has fewer of these and saves what each costs, so these may be computed in no time.
  [[nodiscard]] double room_for(program::Rank rank, double seconds) const {
    const auto free = static_cast<double>(costs_.micro_batches - 1);
    const auto all = static_cast<double>(costs_.samples_of(rank));
    return std::max(samples_to_add(costs_, rank, seconds), std::min(0.0, free - all));
  }

  // A computing rank of each device and role.
  [[nodiscard]] std::vector<std::uint32_t> one_per_device() const {
    std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
    std::vector<std::uint32_t> ranks;
    for (const program::Rank rank : computing_) {
      const std::uint32_t r = rank.value;
      if (seen.emplace(costs_.device_of_rank[r], tables_.role_of_rank[r]).second) {
        ranks.push_back(r);
      }
    }
    return ranks;
  }

  using Rules = protocol::Job::Slice;
  [[nodiscard]] const Rules& rules(std::uint32_t slice) const { return tables_.job.slices[slice]; }

  struct Load {
    double sent = 0;
    double received = 0;
  };
  struct Loads {
    std::vector<Load> nodes;  // the bytes of all their ranks
    std::vector<Load> ranks;  // their bytes, and a time for each message

    Loads(std::size_t nodes, std::size_t ranks) : nodes(nodes), ranks(ranks) {}
  };

  [[nodiscard]] Side card() const {
    Loads loads(tables_.nodes.size(), program_.ranks.size());
    for (std::uint32_t s = 0; s < tables_.slices.size(); ++s) add(s, loads);
    add_transfers(loads);
    double collectives = 0;
    for (const CollectiveTable& collective : tables_.collectives) {
      const double n = static_cast<double>(collective.members->size());
      if (!tables_.mixed) {
        collectives += collective.wire_seconds;
      } else if (n > 1) {
        const auto bytes =
            static_cast<double>(collective.bytes + collective.second_bytes) * 2 * (n - 1) / n;
        for (std::size_t i = 0; i < loads.nodes.size(); ++i) {
          if (tables_.nodes[i].ranks.empty() || only_one_node()) continue;
          // A flat ring enters and leaves every node once; two parts less of it at most.
          const double least = bytes * (1 - 1 / n) / tables_.nodes[i].bytes_per_s;
          const auto add = [&](Load& load) {
            load.sent += least;
            load.received += least;
          };
          add(loads.nodes[i]);
          if (tables_.nodes[i].ranks.size() == 1) add(loads.ranks[tables_.nodes[i].ranks[0]]);
        }
      }
    }
    Side busiest;
    const auto raise = [&](const Load& load, std::size_t node) {
      busiest.raise(load.sent, cluster_.nodes[node].address + " sends");
      busiest.raise(load.received, cluster_.nodes[node].address + " receives");
    };
    for (std::size_t i = 0; i < loads.nodes.size(); ++i) raise(loads.nodes[i], i);
    for (std::size_t r = 0; r < loads.ranks.size(); ++r) {
      raise(loads.ranks[r], tables_.node_of_rank[r]);
    }
    busiest.raise(collectives, "library collectives");
    return busiest;
  }

  [[nodiscard]] bool only_one_node() const {
    return std::count_if(tables_.nodes.begin(), tables_.nodes.end(),
                         [](const NodeTable& node) { return !node.ranks.empty(); }) < 2;
  }

  void move(std::uint32_t from, std::uint32_t to, std::int64_t bytes, Loads& loads) const {
    const std::uint32_t a = tables_.node_of_rank[from];
    const std::uint32_t b = tables_.node_of_rank[to];
    if (a == b) return;
    const double sending = static_cast<double>(bytes) / tables_.nodes[a].bytes_per_s;
    const double receiving = static_cast<double>(bytes) / tables_.nodes[b].bytes_per_s;
    loads.nodes[a].sent += sending;
    loads.nodes[b].received += receiving;
    loads.ranks[from].sent += costs_.engine.message.value + sending;
    loads.ranks[to].received += costs_.engine.message.value + receiving;
  }

  void add(std::uint32_t s, Loads& loads) const {
    const SliceTable& bytes = tables_.slices[s];
    const Rules& slice = rules(s);
    const auto move = [&](std::uint32_t from, std::uint32_t to, std::int64_t bytes) {
      this->move(from, to, bytes, loads);
    };
    const bool fetched = tables_.variables[slice.variables.front()].fetched;
    const auto exchange = [&](program::Rank owner) {
      for (program::Rank member : *slice.members) {
        if (member == owner) continue;
        move(member.value, owner.value, bytes.contribution);
        // What is asked for may bring the result with it.
        if (!slice.by_all && !slice.asked_for) move(owner.value, member.value, bytes.result);
        if (!fetched) continue;
        move(member.value, owner.value, bytes.asked);
        move(owner.value, member.value, bytes.fetched);
      }
    };
    if (!slice.route.is_direct()) {
      for (std::uint32_t r = 0; r < program_.ranks.size(); ++r) {
        const protocol::TableStop& stop = tables_.job.stop(slice, program::Rank(r));
        const auto to = [&](std::uint32_t next) {
          return tables_.job.routes.rank_of(slice.route, next);
        };
        if (stop.contributes != protocol::kNone) move(r, to(stop.contributes), bytes.contribution);
        if (stop.onward != protocol::kNone) move(r, to(stop.onward), bytes.contribution);
        for (std::uint32_t next : stop.returns) move(r, to(next), bytes.result);
      }
      return;
    }
    if (!slice.by_all) return exchange(slice.owner);
    for (program::Rank member : *slice.members) exchange(member);
  }

  void add_transfers(Loads& loads) const {
    if (tables_.transfers.empty()) return;
    for (const program::Rank rank : computing_) {
      for (const TransferTable& transfer : tables_.transfers) {
        if (transfer.from != program_.stage(rank)) continue;
        for (const std::uint32_t stage : transfer.to) {
          move(rank.value, program_.stage_mate(rank, stage).value, transfer.bytes, loads);
        }
      }
    }
  }

  [[nodiscard]] Side owner() const {
    std::vector<double> loads(program_.ranks.size());
    for (std::uint32_t s = 0; s < tables_.slices.size(); ++s) {
      const SliceTable& costs = tables_.slices[s];
      const Rules& slice = rules(s);
      const double once = costs.sum_seconds + costs.update_seconds;
      if (slice.relays) {
        for (std::uint32_t r = 0; r < loads.size(); ++r) {
          const bool updates = r == slice.owner.value;
          loads[r] += tables_.sum_seconds(s, r) + (updates ? costs.update_seconds : 0);
        }
      } else if (slice.by_all) {
        for (program::Rank member : *slice.members) loads[member.value] += once;
      } else {
        loads[slice.owner.value] += once * costs.merges;
      }
    }
    double installs = 0;  // where every replica has everything
    for (const VariableTable& variable : tables_.variables) installs += variable.install_seconds;
    Side busiest;
    for (std::uint32_t r = 0; r < loads.size(); ++r) {
      double own = program_.computes(program::Rank(r)) ? installs : 0;
      if (program_.is_placed()) own = installs_of_stage(r);
      busiest.raise(loads[r] + own, fmt::format("rank {}", r));
    }
    return busiest;
  }

  [[nodiscard]] double installs_of_stage(std::uint32_t rank) const {
    double sum = 0;
    for (std::uint32_t v = 0; v < tables_.variables.size(); ++v) {
      if (tables_.job.holds(tables_.job.variables[v], program::Rank(rank)))
        sum += tables_.variables[v].install_seconds;
    }
    return sum;
  }

  // From a variable's gate to the end of its gradient, in one step of `rank`; by variable.
  [[nodiscard]] std::vector<double> spans(std::uint32_t rank) const {
    std::vector<double> gates(tables_.variables.size(), -1);
    std::vector<double> spans(tables_.variables.size(), 0);
    const double earlier = pass(rank) * (tables_.passes - 1);  // before the last micro-batch
    double at = 0;
    for (const FlatInstruction& each : tables_.roles[tables_.role_of_rank[rank]].compute) {
      if (each.kind == FlatKind::kCompute) at += seconds(tables_.segments[each.id], rank);
      if (each.kind == FlatKind::kGate) gates[each.id] = at;
      if (each.kind == FlatKind::kContribute && gates[each.id] >= 0) {
        spans[each.id] = earlier + at - gates[each.id];
      }
    }
    return spans;
  }

  [[nodiscard]] Side chain() const {
    Side longest;
    for (std::uint32_t rank : one_per_device()) {
      const std::vector<double> spans = this->spans(rank);
      for (std::size_t v = 0; v < spans.size(); ++v) {
        longest.raise(spans[v] + round_trip_of_variable(v, spans[v], rank),
                      program_.graph->variables[v].name);
      }
    }
    return longest;
  }

  // Besides the span of `rank` and of those alike, divided by the steps that staleness allows to
  // overlap: what is added to the span is negative then.
  [[nodiscard]] double round_trip_of_variable(std::size_t v, double span,
                                              std::uint32_t rank) const {
    const VariableTable& variable = tables_.variables[v];
    double best = 0;
    if (variable.collective != protocol::kNone) {
      const CollectiveTable& collective = tables_.collectives[variable.collective];
      const double wire = tables_.mixed ? 0 : collective.wire_seconds;
      return collective.copy_seconds + wire + variable.update_seconds;
    }
    for (const program::SliceId slice : tables_.job.variables[v].slices) {
      best = std::max(best, round_trip(slice.value, rank));
    }
    const double steps = tables_.job.variables[v].staleness + 1.0;
    return (span + best + variable.install_seconds) / steps - span;
  }

  // Whether two ranks compute the same at the same speed, so that their spans are the same.
  [[nodiscard]] bool are_alike(std::uint32_t a, std::uint32_t b) const {
    return costs_.device_of_rank[a] == costs_.device_of_rank[b] &&
           tables_.role_of_rank[a] == tables_.role_of_rank[b];
  }

  // Seconds from one rank to another, nothing in the way.
  [[nodiscard]] double hop(std::uint32_t from, std::uint32_t to, std::int64_t bytes) const {
    const NodeTable& a = tables_.nodes[tables_.node_of_rank[from]];
    const NodeTable& b = tables_.nodes[tables_.node_of_rank[to]];
    const auto size = static_cast<double>(bytes);
    if (&a == &b) return costs_.engine.message.value + size / a.intra_bytes_per_s;
    return costs_.engine.message.value + std::max(a.latency, b.latency) +
           size / std::min(a.bytes_per_s, b.bytes_per_s);
  }

  // Of the rank like `alike` that is farthest from the owner, by time, over all stops of the way.
  // Every stop stands behind the one that it sends to, so walks from the owner meet each once.
  [[nodiscard]] double round_trip_by_stops(std::uint32_t s, std::uint32_t alike) const {
    const SliceTable& costs = tables_.slices[s];
    const Rules& slice = rules(s);
    const std::size_t ranks = program_.ranks.size();
    const auto real = [&](std::uint32_t rank) {
      return tables_.job.routes.rank_of(slice.route, rank);
    };
    std::vector<std::vector<std::uint32_t>> senders(ranks);
    for (std::uint32_t r = 0; r < ranks; ++r) {
      const protocol::TableStop& stop = tables_.job.stop(slice, program::Rank(r));
      const std::uint32_t next = stop.onward != protocol::kNone ? stop.onward : stop.contributes;
      if (next != protocol::kNone && real(next) != r) senders[real(next)].push_back(r);
    }
    std::vector<double> up(ranks, 0);
    std::vector<double> down(ranks, 0);
    const std::uint32_t owner = slice.owner.value;
    std::vector<std::uint32_t> open{owner};
    up[owner] = tables_.sum_seconds(s, owner) + costs.update_seconds;
    while (!open.empty()) {
      const std::uint32_t at = open.back();
      open.pop_back();
      for (std::uint32_t from : senders[at]) {
        const double here = slice.relays ? tables_.sum_seconds(s, from) : 0;
        up[from] = up[at] + hop(from, at, costs.contribution) + here;
        open.push_back(from);
      }
    }
    open = {owner};
    double longest = are_alike(owner, alike) ? up[owner] : 0;
    while (!open.empty()) {
      const std::uint32_t at = open.back();
      open.pop_back();
      for (std::uint32_t next : tables_.job.stop(slice, program::Rank(at)).returns) {
        const std::uint32_t to = real(next);
        down[to] = down[at] + hop(at, to, costs.result);
        if (are_alike(to, alike)) longest = std::max(longest, up[to] + down[to]);
        open.push_back(to);
      }
    }
    return longest;
  }

  // Of the member like `alike` that is farthest from the owner, nothing in its way; 0 without one.
  [[nodiscard]] double round_trip(std::uint32_t s, std::uint32_t alike) const {
    const SliceTable& costs = tables_.slices[s];
    const Rules& slice = rules(s);
    if (!slice.route.is_direct()) return round_trip_by_stops(s, alike);
    double longest = 0;
    if (!costs.sums_all) return longest;
    const NodeTable& owner = tables_.nodes[tables_.node_of_rank[slice.owner.value]];
    for (program::Rank member : *slice.members) {
      if (!are_alike(member.value, alike)) continue;
      longest = std::max(longest, costs.sum_seconds + costs.update_seconds);
      const NodeTable& node = tables_.nodes[tables_.node_of_rank[member.value]];
      if (&node == &owner) continue;
      const double rate = std::min(node.bytes_per_s, owner.bytes_per_s);
      const double both = static_cast<double>(costs.contribution + costs.result) / rate;
      const double trip =
          2 * (std::max(node.latency, owner.latency) + costs_.engine.message.value) + both +
          costs.sum_seconds + costs.update_seconds;
      longest = std::max(longest, trip);
      if (same_rates_) break;  // every other member needs as long
    }
    return longest;
  }

  // What must be summed: rows count as often as a step touches them.
  [[nodiscard]] double needed_bytes(std::uint32_t variable) const {
    return static_cast<double>(tables_.variables[variable].gradient);
  }
  [[nodiscard]] double needed_bytes() const {
    double sum = 0;
    for (std::uint32_t v = 0; v < tables_.variables.size(); ++v) sum += needed_bytes(v);
    return sum;
  }

  [[nodiscard]] Seconds least(double bytes) const {
    std::vector<double> workers;
    std::vector<double> servers;
    for (std::size_t i = 0; i < tables_.nodes.size(); ++i) {
      const NodeTable& node = tables_.nodes[i];
      if (node.ranks.empty()) continue;
      const bool computes = std::any_of(node.ranks.begin(), node.ranks.end(), [&](auto rank) {
        return program_.computes(program::Rank(rank));
      });
      (computes ? workers : servers).push_back(node.bytes_per_s);
    }
    return least_traffic(bytes, workers, servers);
  }

  [[nodiscard]] Seconds with_factors(Seconds whole) const {
    const std::vector<Factored> all = factored_gradients(program_, costs_);
    const double bytes = needed_bytes();
    if (bytes <= 0) return whole;
    const double low = std::max(least_compute(), problem_chain(all)).value;
    return Seconds(least_with_factors(all, bytes, least(bytes).value / bytes, low, whole.value));
  }

  // Through the owner that suits it best, or, as factors, with at least the last one's product.
  [[nodiscard]] Seconds problem_chain(const std::vector<Factored>& factored) const {
    Seconds longest;
    if (parts_may_differ()) return longest;  // any device may have less of the batch
    for (std::uint32_t rank : one_per_device()) {
      const std::vector<double> spans = this->spans(rank);
      for (std::uint32_t v = 0; v < spans.size(); ++v) {
        if (!tables_.job.variables[v].trained) continue;
        const double bytes = needed_bytes(v);
        Seconds way = least(bytes);
        if (factored[v].saved > 0) {
          way = std::min(way, least(bytes - factored[v].saved) + Seconds(factored[v].multiply_one));
        }
        longest = std::max(longest, Seconds(spans[v]) + way);
      }
    }
    return longest;
  }

  const program::Program& program_;
  const cluster::Cluster& cluster_;
  const CostModel& costs_;
  const JobTables& tables_;
  const std::vector<program::Rank> computing_ = program_.computing_ranks();
  bool same_rates_ = equal_nodes();

  [[nodiscard]] bool equal_nodes() const {
    return std::all_of(tables_.nodes.begin(), tables_.nodes.end(), [&](const NodeTable& node) {
      return node.bytes_per_s == tables_.nodes.front().bytes_per_s &&
             node.latency == tables_.nodes.front().latency;
    });
  }
};

// Bytes that can be owned when nobody sends for longer than `seconds`; negative where some worker
// cannot even send its own gradient.
double ownable(double bytes, double seconds, const std::vector<double>& workers,
               const std::vector<double>& servers) {
  const auto n = static_cast<double>(workers.size());
  double owned = 0;
  for (double rate : workers) {
    if (seconds * rate < bytes) return -1;
    owned += n > 2 ? std::min(bytes, (seconds * rate - bytes) / (n - 2)) : bytes;
  }
  for (double rate : servers) owned += seconds * rate / n;
  return owned;
}

// Of the time round a variable that is spent computing: above it computing is what to speed up.
constexpr double kMostlyCompute = 0.5;

}  // namespace

std::string bound_name(const Bounds& bounds) {
  if (bounds.plan == bounds.compute) return "compute";
  if (bounds.plan == bounds.card) return bounds.card_name;
  if (bounds.plan == bounds.owner) return "the owner's work at " + bounds.owner_name;
  std::string name = "what every strategy has to send";
  if (bounds.plan == bounds.chain) {
    name = "the way round '" + bounds.chain_name + "'";
  } else if (bounds.traffic < bounds.plan) {
    name = "the way round a variable, whoever owns it";
  }
  const bool mostly_compute = bounds.compute > bounds.plan * kMostlyCompute;
  return mostly_compute && bounds.traffic < bounds.plan ? "compute, and " + name : name;
}

Seconds least_traffic(double bytes, const std::vector<double>& workers,
                      const std::vector<double>& servers) {
  if (workers.size() < 2 || bytes <= 0) return {};
  double low = bytes / *std::min_element(workers.begin(), workers.end());
  if (ownable(bytes, low, workers, servers) >= bytes) return Seconds(low);
  double high = low * 2 * static_cast<double>(workers.size());
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (ownable(bytes, middle, workers, servers) >= bytes ? high : low) = middle;
  }
  return Seconds(low);
}

Bounds bounds_of(const program::Program& program, const cluster::Cluster& cluster,
                 const CostModel& costs) {
  return bounds_of(program, cluster, costs, JobTables(program, cluster, costs));
}

Bounds bounds_of(const program::Program& program, const cluster::Cluster& cluster,
                 const CostModel& costs, const JobTables& tables) {
  return Bounding(program, cluster, costs, tables).all();
}

}  // namespace autodist::sim
