// Walks through every order in which the events of small jobs can happen, for every way to
// synchronise, and holds the laws of the protocol against each.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "autodist/protocol/rank.h"
#include "autodist/protocol/testing/small_program.h"

namespace autodist::protocol {
namespace {

// A message on its way: what it is to whoever gets it.
using Message = Event;

// A job under way: ranks, messages between them (in order per pair), work that was started, and
// where each rank's step is. Copied at every branch of the walk.
struct World {
  std::vector<RankProtocol> ranks;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<Message>> links;
  std::vector<std::pair<std::uint32_t, Event>> started;  // as the events that will end it
  std::vector<std::size_t> at;                           // by rank: of its script
  std::vector<bool> sleeps;              // by rank: at something that was closed, until it is woken
  std::vector<bool> told;                // by rank: to stop, or that it need not
  std::vector<std::vector<bool>> reads;  // by rank and variable
  std::map<std::string, int> done;       // what must happen once, how often
};

std::string text_of(const Event& event) {
  struct Text {
    std::string of(SliceId slice, Step step) const {
      return std::to_string(slice.value) + "@" + std::to_string(step);
    }
    std::string operator()(const Contributed& e) const { return "c" + of(e.slice, e.step); }
    std::string operator()(const ContributionArrived& e) const {
      return "a" + std::to_string(e.from.value) + ":" + of(e.slice, e.step);
    }
    std::string operator()(const Merged& e) const { return "m" + of(e.slice, 0); }
    std::string operator()(const Measured& e) const { return "l" + of(e.slice, 0); }
    std::string operator()(const Updated& e) const { return "u" + of(e.slice, 0); }
    std::string operator()(const Installed& e) const {
      return "i" + of(SliceId(e.variable.value), 0);
    }
    std::string operator()(const RowsGiven& e) const {
      return "g" + std::to_string(e.to.value) + ":" + of(e.slice, e.step);
    }
    std::string operator()(const ResultArrived& e) const { return "r" + of(e.slice, e.step); }
    std::string operator()(const Taken& e) const { return "t" + of(e.slice, e.step); }
    std::string operator()(const Held& e) const { return "h" + of(SliceId(e.variable.value), 0); }
    std::string operator()(const Released& e) const {
      return "f" + of(SliceId(e.variable.value), 0);
    }
    std::string operator()(const SumsArrived& e) const {
      return (e.lamb ? "L" : "C") + of(e.slice, e.step);
    }
    std::string operator()(const WholeSumArrived& e) const {
      return "W" + of(SliceId(e.variable.value), e.step);
    }
    std::string operator()(const Flagged& e) const {
      return "F" + std::to_string(e.from.value) + (e.finite ? "+" : "-") + std::to_string(e.step);
    }
    std::string operator()(const Averaged& e) const {
      return "v" + of(SliceId(e.variable.value), e.step);
    }
    std::string operator()(const UpdatedHere& e) const {
      return "U" + of(SliceId(e.variable.value), 0);
    }
    std::string operator()(const RowsWanted& e) const { return "w" + of(e.slice, e.step); }
    std::string operator()(const AskArrived& e) const {
      return "q" + std::to_string(e.from.value) + ":" + of(e.slice, e.step);
    }
    std::string operator()(const RowsArrived& e) const { return "R" + of(e.slice, 0); }
  };
  return std::visit(Text{}, event);
}

// What happens to a world when an effect is performed.
class Performing {
 public:
  Performing(const Job& job, const std::vector<std::uint32_t>& servers, World& world,
             std::uint32_t rank)
      : job_(job), servers_(servers), world_(world), rank_(rank) {}

  void operator()(const Contribute& e) const {
    job_.for_each_contributed_to(job_.slice(e.slice), self(), [&](Rank to) {
      send(to, ContributionArrived{self(), e.slice, e.step});
    });
  }
  void operator()(const HandOn& e) const {
    send(job_.onward(job_.slice(e.slice), self()), ContributionArrived{self(), e.slice, e.step});
  }
  void operator()(const Return& e) const {
    job_.for_each_returned_to(job_.slice(e.slice), self(), [&](Rank to) {
      send(to, ResultArrived{e.slice, e.step});
    });
  }
  void operator()(const Answer& e) const { send(e.to, ResultArrived{e.slice, e.step}); }
  void operator()(const TellSums& e) const {
    for (std::uint32_t to = 0; to < job_.ranks; ++to) {
      if (to != rank_) send(Rank(to), SumsArrived{e.slice, e.step, e.lamb});
    }
  }
  void operator()(const TellServers& e) const {
    for (const std::uint32_t to : servers_) send(Rank(to), WholeSumArrived{e.variable, e.step});
  }
  void operator()(const Ask& e) const {
    send(job_.slice(e.slice).owner, AskArrived{self(), e.slice, e.step});
  }
  void operator()(const SendRows& e) const { send(e.to, RowsArrived{e.slice}); }
  void operator()(const TakeRows& e) const {
    world_.started.push_back({rank_, RowsArrived{e.slice}});
  }
  void operator()(const Merge& e) const {
    ASSERT_GT(job_.awaited(job_.slice(e.slice), self()), 0U) << "only who combines merges";
    if (job_.slice(e.slice).synchronous) once("merge", e.slice.value, e.step);
    world_.started.push_back({rank_, Merged{e.slice}});
  }
  void operator()(const Measure& e) const {
    once("measure", e.slice.value, e.step);
    world_.started.push_back({rank_, Measured{e.slice}});
  }
  void operator()(const Update& e) const {
    ASSERT_EQ(job_.slice(e.slice).owner, self()) << "only the owner updates";
    once("update", e.slice.value, e.step);
    world_.started.push_back({rank_, Updated{e.slice}});
  }
  void operator()(const Install& e) const {
    ASSERT_FALSE(world_.reads[rank_][e.variable.value]) << "installed while it is read";
    ASSERT_EQ(world_.ranks[rank_].version(e.variable), e.step) << "one version after the other";
    const Job::Variable& variable = job_.variable(e.variable);
    const RankProtocol& rank = world_.ranks[rank_];
    if (variable.updates_here && variable.clip) {
      ASSERT_TRUE(rank.is_known(NormId(variable.clip->value), e.step))
          << "before it can be clipped";
    }
    if (variable.updates_here && job_.norms.flags) {
      ASSERT_TRUE(rank.is_known(*job_.norms.flags, e.step)) << "before all ranks agree";
    }
    once("install", e.variable.value, e.step);
    world_.started.push_back({rank_, Installed{e.variable}});
  }
  void operator()(const GiveRows& e) const {
    world_.started.push_back({rank_, RowsGiven{e.to, e.slice, e.step}});
  }
  void operator()(const Take& e) const {
    world_.started.push_back({rank_, Taken{e.slice, e.step}});
  }
  void operator()(const Open& /*e*/) const { world_.sleeps[rank_] = false; }
  void operator()(const Agreed& e) const { once("agree", 0, e.step); }
  void operator()(const NormKnown& e) const {
    world_.sleeps[rank_] = false;
    once("norm", e.norm.value, e.step);
  }

 private:
  [[nodiscard]] Rank self() const { return Rank(rank_); }
  void send(Rank to, const Message& message) const {
    ASSERT_NE(to, self()) << "a rank sends nothing to itself";
    world_.links[{rank_, to.value}].push_back(message);
  }
  void once(const std::string& what, std::uint32_t id, Step step) const {
    const std::string key =
        what + std::to_string(rank_) + "." + std::to_string(id) + "@" + std::to_string(step);
    ASSERT_EQ(++world_.done[key], 1) << key << " happens twice";
  }

  const Job& job_;
  const std::vector<std::uint32_t>& servers_;
  World& world_;
  std::uint32_t rank_;
};

class Walk {
 public:
  struct Options {
    Step steps = 2;
    bool fetches = false;                                     // rows are asked for
    std::set<std::pair<std::uint32_t, Step>> overflows = {};  // whose gradients are not finite
    // All ranks are told to stop after so many steps, each at any time before it begins the next.
    std::optional<Step> stop = {};
  };

  Walk(const program::Program& program, Options options)
      : program_(program), job_(program_), options_(std::move(options)) {
    World world;
    for (std::uint32_t r = 0; r < job_.ranks; ++r) {
      world.ranks.emplace_back(job_, Rank(r), kFirst);
      scripts_.push_back(script_of(Rank(r)));
      if (!program_.computes(Rank(r))) servers_.push_back(r);
    }
    world.at.assign(job_.ranks, 0);
    world.sleeps.assign(job_.ranks, false);
    world.told.assign(job_.ranks, !options_.stop);
    world.reads.assign(job_.ranks, std::vector<bool>(job_.variables.size()));
    visit(world);
  }

  std::size_t ends = 0;
  std::size_t states = 0;
  std::map<std::string, int> done;  // of the last end

 private:
  // A step asks for rows, reads every variable, contributes it, says whether its gradients are
  // finite, and lets go of them.
  [[nodiscard]] std::vector<Event> script_of(Rank rank) const {
    std::vector<Event> script;
    if (!program_.computes(rank)) return script;
    for (Step step = kFirst; step < kFirst + options_.steps; ++step) {
      for (std::uint32_t i = 0; i < job_.slices.size() && options_.fetches; ++i) {
        script.push_back(RowsWanted{SliceId(i), step});
      }
      for (std::uint32_t v = 0; v < job_.variables.size(); ++v)
        script.push_back(Held{VariableId(v)});
      for (std::uint32_t i = 0; i < job_.slices.size(); ++i) {
        script.push_back(Contributed{SliceId(i), step});
      }
      for (std::uint32_t v = 0; v < job_.variables.size(); ++v) {
        if (job_.variables[v].slices.empty()) script.push_back(Averaged{VariableId(v), step});
      }
      if (job_.norms.flags) {
        script.push_back(Flagged{rank, step, options_.overflows.count({rank.value, step}) == 0});
      }
      for (std::uint32_t v = 0; v < job_.variables.size(); ++v) {
        script.push_back(Released{VariableId(v)});
      }
      for (std::uint32_t v = 0; v < job_.variables.size(); ++v) {
        if (job_.variables[v].slices.empty()) script.push_back(UpdatedHere{VariableId(v)});
      }
    }
    return script;
  }

  [[nodiscard]] Step step_at(std::uint32_t rank, std::size_t at) const {
    return kFirst + at / (scripts_[rank].size() / options_.steps);
  }

  // The version at which the walk ends.
  [[nodiscard]] Step last() const { return kFirst + options_.stop.value_or(options_.steps); }

  [[nodiscard]] bool may_go_on(const World& world, std::uint32_t rank) const {
    const std::size_t next = world.at[rank];
    const Event& event = scripts_[rank][next];
    const Step step = step_at(rank, next);
    if (step >= last() && !world.told[rank]) return false;
    if (const auto* held = std::get_if<Held>(&event)) {
      return world.ranks[rank].is_open(held->variable, step);
    }
    if (const auto* updated = std::get_if<UpdatedHere>(&event)) {
      return world.ranks[rank].may_update(updated->variable, step);
    }
    return true;
  }

  void happen(World& world, std::uint32_t rank, const Event& event) const {
    Effects effects;
    world.ranks[rank].on(event, effects);
    for (std::size_t i = 0; i < effects.size(); ++i) {
      std::visit(Performing(job_, servers_, world, rank), effects[i]);
    }
  }

  void advance(World& world, std::uint32_t rank) const {
    const Event& event = scripts_[rank][world.at[rank]++];
    if (const auto* held = std::get_if<Held>(&event))
      world.reads[rank][held->variable.value] = true;
    if (const auto* released = std::get_if<Released>(&event)) {
      world.reads[rank][released->variable.value] = false;
    }
    // A flag goes to all, as a note does.
    if (const auto* flag = std::get_if<Flagged>(&event)) {
      for (std::uint32_t to = 0; to < job_.ranks; ++to) {
        if (to != rank) world.links[{rank, to}].push_back(*flag);
      }
    }
    happen(world, rank, event);
  }

  void visit(const World& world) {
    if (testing::Test::HasFatalFailure() || !is_new(world)) return;
    ++states;
    ASSERT_LT(states, 2'000'000U) << "too large for a walk";
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
      if (messages.empty()) continue;
      moved = true;
      World next = world;
      next.links[link].erase(next.links[link].begin());
      happen(next, link.second, messages.front());
      visit(next);
    }
    std::set<std::string> tried;
    for (std::size_t i = 0; i < world.started.size(); ++i) {
      const auto& [rank, event] = world.started[i];
      if (!tried.insert(std::to_string(rank) + text_of(event)).second) continue;
      moved = true;
      World next = world;
      next.started.erase(next.started.begin() + static_cast<std::ptrdiff_t>(i));
      happen(next, rank, event);
      visit(next);
    }
    if (!moved) end(world);
  }

  void end(const World& world) {
    ++ends;
    done = world.done;
    for (std::uint32_t r = 0; r < job_.ranks; ++r) {
      const std::size_t steps_done = scripts_[r].size() / options_.steps * (last() - kFirst);
      EXPECT_EQ(world.at[r], steps_done) << "rank " << r << " stops elsewhere than at its end";
      for (Step step = kFirst; job_.norms.flags && step < last(); ++step) {
        EXPECT_EQ(world.done.count(fmt::format("agree{}.0@{}", r, step)), 1U);
      }
      if (!program_.computes(Rank(r))) continue;
      for (std::uint32_t v = 0; v < job_.variables.size(); ++v) {
        EXPECT_TRUE(world.ranks[r].is_settled(VariableId(v), last()));
        EXPECT_EQ(world.ranks[r].version(VariableId(v)), last())
            << "rank " << r << " has not got the last version";
      }
      EXPECT_TRUE(world.ranks[r] == RankProtocol(job_, Rank(r), last()))
          << "rank " << r << " is not like a new one that begins here";
    }
  }

  // What can still happen is decided by where the ranks are, by what is under way and by what they
  // know.
  bool is_new(const World& world) {
    std::string key;
    for (const std::size_t at : world.at) key += std::to_string(at) + ',';
    for (const bool sleeps : world.sleeps) key += sleeps ? 's' : '.';
    for (const bool told : world.told) key += told ? 't' : '.';
    for (const auto& [link, messages] : world.links) {
      key += '|' + std::to_string(link.first) + '>' + std::to_string(link.second);
      for (const Message& each : messages) key += ' ' + text_of(each);
    }
    std::multiset<std::string> work;
    for (const auto& [rank, event] : world.started) {
      work.insert(std::to_string(rank) + text_of(event));
    }
    for (const std::string& each : work) key += '#' + each;
    std::vector<std::vector<RankProtocol>>& known = seen_[key];
    if (std::find(known.begin(), known.end(), world.ranks) != known.end()) return false;
    known.push_back(world.ranks);
    return true;
  }

  program::Program program_;
  Job job_;
  Options options_;
  std::vector<std::vector<Event>> scripts_;  // by rank
  std::vector<std::uint32_t> servers_;
  std::unordered_map<std::string, std::vector<std::vector<RankProtocol>>> seen_;
};

TEST(EveryOrder, OfTwoOwnersEndsWithTheNewestVersions) {
  const Walk walk(small_program(2, 2, {owned_by(0), owned_by(1)}), {});
  EXPECT_EQ(walk.ends, 1U);
  EXPECT_GT(walk.states, 400U);
}

TEST(EveryOrder, OfAnOwnerThatIsNoMemberEndsToo) {
  EXPECT_EQ(Walk(small_program(3, 2, {owned_by(2)}), {}).ends, 1U);
}

TEST(EveryOrder, OfASliceOfTwoVariablesInstallsBoth) {
  EXPECT_EQ(Walk(small_program(2, 2, {owned_by(0, {}, {0, 1})}), {}).ends, 1U);
}

TEST(EveryOrder, WhereEveryRankUpdatesInstallsWhatTheOwnerAveraged) {
  EXPECT_EQ(
      Walk(small_program(2, 2, {owned_by(0, every_rank()), owned_by(1, every_rank())}), {}).ends,
      1U);
}

TEST(EveryOrder, OfChainsTreesAndProxiesEndsWithTheNewestVersions) {
  for (const program::Route route :
       {program::Route::kRing, program::Route::kTree, program::Route::kNodes}) {
    EXPECT_EQ(Walk(small_program(3, 3, {owned_by(1, by_route(route))}), {}).ends, 1U)
        << name_of(route);
  }
  const program::Slice proxies = exchanged(program::Dense{program::Route::kProxies});
  EXPECT_EQ(Walk(small_program(4, 4, {owned_by(0, proxies)}), {1}).ends, 1U);
}

// A rank on the way hands on and waits for no norm.
TEST(EveryOrder, OfARouteWhoseOwnerClipsWaitsAtTheOwnerAlone) {
  const program::Slice ring = exchanged(program::Dense{program::Route::kRing});
  EXPECT_EQ(Walk(small_program(3, 3, {owned_by(1, ring)}, /*clipped=*/true), {1}).ends, 1U);
}

TEST(EveryOrder, OfFactorsCombinesThemAtEveryMember) {
  program::Slice factors = every_rank();
  factors.exchange.payload = program::Factors{};
  EXPECT_EQ(Walk(small_program(2, 2, {owned_by(0, factors)}), {3}).ends, 1U);
  EXPECT_EQ(Walk(small_program(3, 3, {owned_by(0, factors)}), {1}).ends, 1U);
  EXPECT_EQ(Walk(small_program(2, 2, {owned_by(0, factors)}, /*clipped=*/true), {2}).ends, 1U)
      << "the owner tells the sums that all have";
}

TEST(EveryOrder, OfStaleVersionsLagsByNoMoreThanItMay) {
  const program::Slice stale = exchanged(program::Dense{}, program::Versions{1});
  EXPECT_EQ(Walk(small_program(2, 2, {owned_by(0, stale)}), {3}).ends, 1U);
}

// Whoever is told late has gone on as if nothing was; all come to rest at the same version.
TEST(EveryOrder, OfRanksThatAreToldToStopEndsAtThatVersion) {
  Walk::Options options;
  options.steps = 2;
  options.stop = 1;
  EXPECT_EQ(Walk(small_program(2, 2, {owned_by(0), owned_by(1)}), options).ends, 1U);
  EXPECT_EQ(Walk(small_program(2, 2, {owned_by(0, every_rank())}), options).ends, 1U);
  EXPECT_EQ(Walk(small_program(3, 2, {owned_by(2)}), options).ends, 1U);
  EXPECT_EQ(Walk(small_program(2, 2, {owned_by(0)}, /*clipped=*/true), options).ends, 1U);
  const program::Slice stale = exchanged(program::Dense{}, program::Versions{1});
  options.steps = 3;
  options.stop = 2;
  EXPECT_EQ(Walk(small_program(2, 2, {owned_by(0, stale)}), options).ends, 1U);
}

TEST(EveryOrder, OfAsynchronousSlicesAnswersEveryContribution) {
  const program::Slice asynchronous = exchanged(program::Dense{}, program::Asynchronous{});
  EXPECT_EQ(Walk(small_program(2, 2, {owned_by(0, asynchronous)}), {2}).ends, 1U);
  EXPECT_EQ(Walk(small_program(3, 2, {owned_by(2, asynchronous)}), {2}).ends, 1U);
}

TEST(EveryOrder, OfFetchedRowsGivesThemOnceTheOwnerHasTheVersion) {
  program::Slice rows = exchanged(program::Rows{program::RowTransfer::kFetch});
  Walk::Options options;
  options.fetches = true;
  EXPECT_EQ(Walk(small_program(2, 2, {owned_by(0, rows)}), options).ends, 1U);
  rows.exchange.order = program::Asynchronous{};
  options.steps = 1;
  EXPECT_EQ(Walk(small_program(2, 2, {owned_by(0, rows)}), options).ends, 1U);
}

TEST(EveryOrder, OfResultsThatAreAskedForGivesThemOnceTheOwnerHasTheVersion) {
  program::Dense dense;
  dense.delivery = program::Delivery::kAsked;
  Walk::Options options;
  options.fetches = true;
  EXPECT_EQ(Walk(small_program(2, 2, {owned_by(0, exchanged(dense))}), options).ends, 1U);
  EXPECT_EQ(
      Walk(small_program(2, 2, {owned_by(0, exchanged(dense, program::Versions{1}))}), options)
          .ends,
      1U);
}

TEST(EveryOrder, OfAClipUpdatesEachSliceOnceAfterAllSumsAreKnown) {
  const Walk walk(small_program(2, 2, {owned_by(0), owned_by(1, {}, {1})}, /*clipped=*/true), {1});
  EXPECT_EQ(walk.ends, 1U);
  EXPECT_EQ(walk.done.at("update0.0@4"), 1);
  EXPECT_EQ(walk.done.at("update1.1@4"), 1);
  EXPECT_EQ(
      Walk(small_program(2, 2, {owned_by(0, every_rank()), owned_by(1, every_rank(), {1})}, true),
           {1})
          .ends,
      1U);
}

// A library has averaged the second variable: its part of the clip's norm is known to all who
// compute, and told to the server, which owns the first one's slice.
TEST(EveryOrder, OfAVariableThatNoSliceCarriesIsUpdatedByItsStream) {
  const auto job = [](bool clipped, bool scaled, std::uint32_t owner) {
    return small_program(3, 2, {owned_by(owner)}, clipped, ir::Rule::kSgd, scaled,
                         /*one_whole=*/true);
  };
  EXPECT_EQ(Walk(job(false, false, 2), {1}).ends, 1U);
  EXPECT_EQ(Walk(job(true, false, 2), {1}).ends, 1U);
  EXPECT_EQ(Walk(job(true, false, 0), {1}).ends, 1U);
  EXPECT_EQ(Walk(job(false, true, 0), {1}).ends, 1U);
  const program::Program whole = small_program(2, 2, {}, false, ir::Rule::kSgd, /*scaled=*/true,
                                               /*one_whole=*/true);
  EXPECT_EQ(Walk(whole, {2}).ends, 1U) << "nothing but the flags wakes them";
}

TEST(EveryOrder, OfAClippedSliceOfTwoVariablesTellsTheirSumsTogether) {
  EXPECT_EQ(Walk(small_program(2, 2, {owned_by(0, {}, {0, 1})}, /*clipped=*/true), {2}).ends, 1U);
}

TEST(EveryOrder, OfLambMeasuresBeforeItUpdates) {
  EXPECT_EQ(
      Walk(small_program(2, 2, {owned_by(0), owned_by(1, {}, {1})}, true, ir::Rule::kLamb), {1})
          .ends,
      1U);
  const Walk walk(small_program(2, 2, {owned_by(0), owned_by(1)}, true, ir::Rule::kLamb), {1});
  EXPECT_EQ(walk.ends, 1U);
  EXPECT_EQ(walk.done.at("measure0.0@4"), 1);
  EXPECT_EQ(walk.done.at("measure1.1@4"), 1);
}

TEST(EveryOrder, OfFlagsMakesAllRanksAgree) {
  Walk::Options options;
  const auto scaled = [&](ir::Rule rule, const program::Slice& rules) {
    return Walk(small_program(2, 2, {owned_by(0, rules)}, false, rule, /*scaled=*/true), options);
  };
  EXPECT_EQ(scaled(ir::Rule::kSgd, {}).ends, 1U);
  EXPECT_EQ(scaled(ir::Rule::kSgd, every_rank()).ends, 1U);
  EXPECT_EQ(scaled(ir::Rule::kLamb, {}).done.count("measure0.0@5"), 1U);
  options.overflows = {{1, 4}, {1, 5}};
  const Walk skipped = scaled(ir::Rule::kLamb, {});
  EXPECT_EQ(skipped.ends, 1U);
  EXPECT_EQ(skipped.done.count("measure0.0@5"), 0U) << "nobody measures what all skip";
  EXPECT_EQ(skipped.done.at("update0.0@5"), 1);
  options = {3, false, {{1, 4}}};
  EXPECT_EQ(scaled(ir::Rule::kLamb, {}).done.count("measure0.0@6"), 1U)
      << "step 4 alone is skipped";
}

}  // namespace
}  // namespace autodist::protocol
