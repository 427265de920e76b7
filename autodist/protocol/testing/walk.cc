#include "autodist/protocol/testing/walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "autodist/base/check.h"
#include "autodist/program/loads.h"
#include "autodist/program/route.h"
#include "autodist/protocol/testing/small_program.h"
#include "autodist/protocol/testing/world.h"

namespace autodist::protocol {
namespace {

constexpr std::uint32_t kChief = 0;
constexpr std::size_t kMostStates = 2'000'000;

// What a rank does next by itself.
struct Line {
  Step step = 0;
  std::optional<Event> event;  // nothing: the chief gathers a snapshot
};

class Walk {
 public:
  Walk(const program::Program& program, const WalkOptions& options)
      : program_(program), job_(program), options_(options), setting_{program, job_, {}} {
    for (std::uint32_t r = 0; r < job_.ranks; ++r) {
      scripts_.push_back(script_of(Rank(r)));
      if (!program_.computes(Rank(r))) setting_.servers.push_back(r);
    }
    for (const Job::Slice& slice : job_.slices) {
      if (slice.at_owner && slice.owner.value != kChief) others_.insert(slice.owner.value);
    }
  }

  Walked run() {
    World world = at_version(kFirst);
    world.losses = options_.losses;
    try {
      visit(world);
    } catch (const InternalError& error) {
      hold(setting_, false, error.what());
    }
    walked_.broken = setting_.broken;
    return std::move(walked_);
  }

 private:
  // A step gathers a snapshot, asks for rows, reads every variable, contributes it, says whether
  // its gradients are finite, and lets go of them.
  [[nodiscard]] std::vector<Line> script_of(Rank rank) const {
    std::vector<Line> script;
    if (!program_.computes(rank)) return script;
    for (Step step = kFirst; step < kFirst + options_.steps; ++step) {
      const auto add = [&](const Event& event) { script.push_back({step, event}); };
      if (options_.snapshots && rank.value == kChief && step > kFirst) script.push_back({step, {}});
      for (std::uint32_t i = 0; i < job_.slices.size() && options_.fetches; ++i) {
        add(RowsWanted{SliceId(i), step});
      }
      for (std::uint32_t v = 0; v < job_.variables.size(); ++v) add(Held{VariableId(v)});
      for (std::uint32_t i = 0; i < job_.slices.size(); ++i) add(Contributed{SliceId(i), step});
      for (std::uint32_t v = 0; v < job_.variables.size(); ++v) {
        if (job_.variables[v].slices.empty()) add(Averaged{VariableId(v), step});
      }
      if (job_.norms.flags) {
        add(Flagged{rank, step, options_.overflows.count({rank.value, step}) == 0});
      }
      for (std::uint32_t v = 0; v < job_.variables.size(); ++v) add(Released{VariableId(v)});
      for (std::uint32_t v = 0; v < job_.variables.size(); ++v) {
        if (job_.variables[v].slices.empty()) add(UpdatedHere{VariableId(v)});
      }
    }
    return script;
  }

  // Where in its script a rank is that has the version and begins the step. Whoever begins at a
  // snapshot does not gather it again.
  [[nodiscard]] std::size_t begin_of(std::uint32_t rank, Step step) const {
    const std::vector<Line>& script = scripts_[rank];
    const auto line = std::find_if(script.begin(), script.end(), [&](const Line& each) {
      return each.step >= step && each.event;
    });
    return static_cast<std::size_t>(line - script.begin());
  }

  // The version at which the walk ends.
  [[nodiscard]] Step last() const { return kFirst + options_.stop.value_or(options_.steps); }

  [[nodiscard]] World at_version(Step version) const {
    World world(job_, version);
    world.told.assign(job_.ranks, !options_.stop);
    for (std::uint32_t r = 0; r < job_.ranks; ++r) world.at[r] = begin_of(r, version);
    return world;
  }

  [[nodiscard]] bool may_go_on(const World& world, std::uint32_t rank) const {
    const auto& [step, event] = scripts_[rank][world.at[rank]];
    if (step >= last() && !world.told[rank]) return false;
    if (!event) return !world.under_way && chief_is_settled(world, step);
    if (const auto* held = std::get_if<Held>(&*event)) {
      return world.ranks[rank].is_open(held->variable, step);
    }
    if (const auto* updated = std::get_if<UpdatedHere>(&*event)) {
      return world.ranks[rank].may_update(updated->variable, step);
    }
    return true;
  }

  void advance(World& world, std::uint32_t rank) {
    const auto& [step, event] = scripts_[rank][world.at[rank]++];
    if (!event) return gather(world, step);
    if (const auto* held = std::get_if<Held>(&*event)) {
      world.reads[rank][held->variable.value] = true;
    }
    if (const auto* released = std::get_if<Released>(&*event)) {
      world.reads[rank][released->variable.value] = false;
    }
    // A flag goes to all, as a note does.
    if (std::holds_alternative<Flagged>(*event)) {
      for (std::uint32_t to = 0; to < job_.ranks; ++to) {
        if (to != rank) world.links[{world.generation, rank, to}].emplace_back(*event);
      }
    }
    happen(setting_, world, rank, *event);
  }

  // ---- Snapshots

  [[nodiscard]] bool chief_is_settled(const World& world, Step step) const {
    for (std::uint32_t v = 0; v < job_.variables.size(); ++v) {
      if (!world.ranks[kChief].is_settled(VariableId(v), step)) return false;
    }
    return true;
  }

  // Whether the state of all slices that the rank updates is the version's.
  [[nodiscard]] bool owns_version(const World& world, std::uint32_t rank, Step version) const {
    for (std::size_t i = 0; i < job_.slices.size(); ++i) {
      const Job::Slice& slice = job_.slices[i];
      const bool owned = slice.at_owner && slice.owner.value == rank;
      if (owned && world.owners_version[i] != version) return false;
    }
    return true;
  }

  // Whether work that these events end runs or waits at the rank.
  template <typename... Ends>
  [[nodiscard]] static bool works(const World& world, std::uint32_t rank) {
    return std::any_of(world.started.begin(), world.started.end(), [&](const auto& work) {
      return work.first == rank && (std::holds_alternative<Ends>(work.second) || ...);
    });
  }

  // The chief copies its own part: the model's tensors at once, what its merging thread changes
  // ahead of everything else of the step, none of which has begun.
  void gather(World& world, Step step) {
    for (std::uint32_t v = 0; v < job_.variables.size(); ++v) {
      hold(setting_, world.ranks[kChief].version(VariableId(v)) == step,
           "the chief has the version of its snapshot");
    }
    hold(setting_,
         owns_version(world, kChief, step) &&
             !works<Merged, Measured, Updated, Installed>(world, kChief),
         "a settled chief's own state is the snapshot's, and nothing changes it");
    world.under_way = SnapshotUnderWay{step, others_};
    for (const std::uint32_t to : others_) {
      const SnapshotNews question{SnapshotNews::Kind::kWanted, Rank(kChief), step};
      world.links[{world.generation, kChief, to, options_.late_questions}].emplace_back(question);
    }
    complete_if_all_came(world);
  }

  void arrive(World& world, std::uint32_t at, const SnapshotNews& news) {
    if (news.kind == SnapshotNews::Kind::kWanted) return answer(world, at, news.step);
    // Of one that was given up, or taken up by an earlier generation.
    if (!world.under_way || world.under_way->step != news.step) return;
    world.sleeps[kChief] = false;
    if (news.kind == SnapshotNews::Kind::kTooLate) return world.under_way.reset();
    world.under_way->missing.erase(news.from.value);
    complete_if_all_came(world);
  }

  // The owner's merging thread copies ahead of everything that the chief's contribution leads to.
  // Where the question comes late, what that thread has begun is done before the copy or after it.
  void answer(World& world, std::uint32_t owner, Step step) {
    const bool has_it = owns_version(world, owner, step);
    const bool rests = !works<Merged, Measured, Updated>(world, owner);
    hold(setting_, options_.late_questions || (has_it && rests),
         "an owner that is asked in order has the version, and has begun no update of it");
    const bool refuses = !has_it && options_.owners_compare;
    hold(setting_, has_it || refuses, "a snapshot is of one step");
    const SnapshotNews answer{refuses ? SnapshotNews::Kind::kTooLate : SnapshotNews::Kind::kPiece,
                              Rank(owner), step};
    world.links[{world.generation, owner, kChief, /*apart=*/true}].emplace_back(answer);
  }

  static void complete_if_all_came(World& world) {
    if (!world.under_way->missing.empty()) return;
    world.snapshots.insert(world.under_way->step);
    world.under_way.reset();
  }

  // ---- Losses

  // What happened from the version on is forgotten, with the snapshots of later ones.
  [[nodiscard]] World begun_again(const World& world, Step version) const {
    World next = at_version(version);
    next.generation = world.generation + 1;
    next.losses = world.losses - 1;
    next.links = world.links;
    next.snapshots = std::set<Step>(world.snapshots.begin(), world.snapshots.upper_bound(version));
    for (const auto& [key, times] : world.done) {
      if (std::stoull(key.substr(key.find('@') + 1)) < version) next.done[key] = times;
    }
    return next;
  }

  // Ranks that have begun and ranks that have not yet are alike to those that send to them: what
  // comes waits. So all may begin at once.
  void lose(const World& world) {
    if (world.losses == 0) return;
    for (const Step version : world.snapshots) {
      const World next = begun_again(world, version);
      walked_.begun_again.insert(version);
      for (const auto& [link, messages] : next.links) {
        if (!takes(link, next)) walked_.refused += messages.size();
      }
      visit(next);
    }
  }

  [[nodiscard]] bool takes(const Link& link, const World& world) const {
    return !options_.takes || options_.takes(link.generation, world.generation);
  }

  // ---- Every order

  void visit(const World& world) {
    if (!setting_.broken.empty() || !is_new(world)) return;
    ++walked_.states;
    if (walked_.states == kMostStates) return hold(setting_, false, "a walk has an end");
    bool moved = false;
    for (std::uint32_t r = 0; r < job_.ranks; ++r) {
      if (world.sleeps[r] || world.at[r] == scripts_[r].size()) continue;
      moved = true;
      World next = world;
      if (may_go_on(world, r)) {
        advance(next, r);
      } else {
        next.sleeps[r] = true;
      }
      visit(next);
    }
    for (std::uint32_t r = 0; r < job_.ranks; ++r) {
      if (world.told[r]) continue;
      moved = true;
      World next = world;
      next.told[r] = true;
      next.ranks[r].stop_at(last());
      visit(next);
    }
    for (const auto& [link, messages] : world.links) {
      if (messages.empty() || !takes(link, world)) continue;
      moved = true;
      World next = world;
      next.links[link].erase(next.links[link].begin());
      deliver(next, link.to, messages.front());
      visit(next);
    }
    std::set<std::string> tried;
    for (std::size_t i = 0; i < world.started.size(); ++i) {
      const auto& [rank, event] = world.started[i];
      if (!tried.insert(std::to_string(rank) + text_of(event)).second) continue;
      moved = true;
      World next = world;
      next.started.erase(next.started.begin() + static_cast<std::ptrdiff_t>(i));
      happen(setting_, next, rank, event);
      visit(next);
    }
    if (!moved) end(world);
    lose(world);
  }

  void deliver(World& world, std::uint32_t to, const Message& message) {
    if (const auto* event = std::get_if<Event>(&message)) {
      happen(setting_, world, to, *event);
    } else {
      arrive(world, to, std::get<SnapshotNews>(message));
    }
  }

  void end(const World& world) {
    ++walked_.ends;
    walked_.done = world.done;
    const bool scales = loss_scaling_of(program_).has_value();
    hold(setting_, !world.under_way, "a snapshot is complete, or given up");
    for (std::size_t i = 0; i < program_.slices.size(); ++i) end_of_slice(world, i);
    for (std::uint32_t r = 0; r < job_.ranks; ++r) {
      hold(setting_, world.at[r] == begin_of(r, last()),
           fmt::format("rank {} comes to its end, and is at line {}", r, world.at[r]));
      for (Step step = world.first; scales && step < last(); ++step) {
        hold(setting_, world.done.count(fmt::format("agree{}.0@{}", r, step)) == 1,
             fmt::format("rank {} knows what all agree on of step {}", r, step));
      }
      if (!program_.computes(Rank(r))) continue;
      for (std::uint32_t v = 0; v < job_.variables.size(); ++v) {
        hold(setting_,
             world.ranks[r].is_settled(VariableId(v), last()) &&
                 world.ranks[r].version(VariableId(v)) == last(),
             fmt::format("rank {} has the last version of variable {}", r, v));
      }
      hold(setting_, world.ranks[r] == RankProtocol(job_, Rank(r), last()),
           fmt::format("rank {} is like a new one that begins here", r));
    }
  }

  // Everything that was contributed since the ranks began was merged where the program says, and
  // has come into the owner's state.
  void end_of_slice(const World& world, std::size_t i) {
    const program::Slice& slice = program_.slices[i];
    const bool versions = !updates_on_arrival(slice.exchange);
    const std::vector<program::RouteStop> stops = stops_of(program_, slice);
    for (Step step = world.first; step < last(); ++step) {
      for (std::uint32_t r = 0; r < job_.ranks; ++r) {
        const bool here = versions ? !stops[r].combines.empty() : stops[r].installs;
        const auto key = fmt::format("{}{}.{}@{}", versions ? "merge" : "apply", r, i, step);
        hold(setting_, (world.done.count(key) == 1) == here, key + " is where it should be");
      }
    }
    const bool updated = versions && makes_parameters(slice.exchange);
    hold(setting_, !updated || world.owners_version[i] == last(),
         fmt::format("the state of slice {} ends with the last version", i));
  }

  // What can still happen is decided by where the ranks are, by what is under way and will be
  // taken, and by what they know.
  bool is_new(const World& world) {
    std::string key = std::to_string(world.losses) + '/';
    for (const std::size_t at : world.at) key += std::to_string(at) + ',';
    for (const bool sleeps : world.sleeps) key += sleeps ? 's' : '.';
    for (const bool told : world.told) key += told ? 't' : '.';
    for (const auto& [link, messages] : world.links) {
      if (messages.empty() || !takes(link, world)) continue;
      key +=
          fmt::format("|{}:{}>{}{}", link.generation, link.from, link.to, link.apart ? '~' : ' ');
      for (const Message& each : messages) key += ' ' + text_of(each);
    }
    std::multiset<std::string> work;
    for (const auto& [rank, event] : world.started) {
      work.insert(std::to_string(rank) + text_of(event));
    }
    for (const std::string& each : work) key += '#' + each;
    for (const Step each : world.snapshots) key += '!' + std::to_string(each);
    if (world.under_way) {
      key += '?' + std::to_string(world.under_way->step);
      for (const std::uint32_t each : world.under_way->missing) key += ' ' + std::to_string(each);
    }
    std::vector<std::vector<RankProtocol>>& known = seen_[key];
    if (std::find(known.begin(), known.end(), world.ranks) != known.end()) return false;
    known.push_back(world.ranks);
    return true;
  }

  const program::Program& program_;
  Job job_;
  const WalkOptions& options_;
  Setting setting_;
  std::vector<std::vector<Line>> scripts_;  // by rank
  std::set<std::uint32_t> others_;          // owners of state beside the chief
  std::unordered_map<std::string, std::vector<std::vector<RankProtocol>>> seen_;
  Walked walked_;
};

}  // namespace

Walked walk(const program::Program& program, const WalkOptions& options) {
  return Walk(program, options).run();
}

}  // namespace autodist::protocol
