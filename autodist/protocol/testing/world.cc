#include "autodist/protocol/testing/world.h"

#include <fmt/format.h>

#include "autodist/program/loads.h"

namespace autodist::protocol {
namespace {

struct Text {
  static std::string of(SliceId slice, Step step) {
    return std::to_string(slice.value) + "@" + std::to_string(step);
  }
  static std::string of(VariableId variable, Step step) {
    return std::to_string(variable.value) + "@" + std::to_string(step);
  }
  std::string operator()(const Contributed& e) const { return "c" + of(e.slice, e.step); }
  std::string operator()(const ContributionArrived& e) const {
    return "a" + std::to_string(e.from.value) + ":" + of(e.slice, e.step);
  }
  std::string operator()(const Merged& e) const { return "m" + of(e.slice, 0); }
  std::string operator()(const Measured& e) const { return "l" + of(e.slice, 0); }
  std::string operator()(const Updated& e) const { return "u" + of(e.slice, 0); }
  std::string operator()(const Installed& e) const { return "i" + of(e.variable, 0); }
  std::string operator()(const RowsGiven& e) const {
    return "g" + std::to_string(e.to.value) + ":" + of(e.slice, e.step);
  }
  std::string operator()(const ResultArrived& e) const { return "r" + of(e.slice, e.step); }
  std::string operator()(const Taken& e) const { return "t" + of(e.slice, e.step); }
  std::string operator()(const Held& e) const { return "h" + of(e.variable, 0); }
  std::string operator()(const Released& e) const { return "f" + of(e.variable, 0); }
  std::string operator()(const SumsArrived& e) const {
    return (e.lamb ? "L" : "C") + of(e.slice, e.step);
  }
  std::string operator()(const WholeSumArrived& e) const { return "W" + of(e.variable, e.step); }
  std::string operator()(const Flagged& e) const {
    return "F" + std::to_string(e.from.value) + (e.finite ? "+" : "-") + std::to_string(e.step);
  }
  std::string operator()(const Averaged& e) const { return "v" + of(e.variable, e.step); }
  std::string operator()(const UpdatedHere& e) const { return "U" + of(e.variable, 0); }
  std::string operator()(const RowsWanted& e) const { return "w" + of(e.slice, e.step); }
  std::string operator()(const AskArrived& e) const {
    return "q" + std::to_string(e.from.value) + ":" + of(e.slice, e.step);
  }
  std::string operator()(const RowsArrived& e) const { return "R" + of(e.slice, 0); }

  std::string operator()(const Event& e) const { return std::visit(*this, e); }
  std::string operator()(const SnapshotNews& e) const {
    return fmt::format("S{}{}@{}", static_cast<int>(e.kind), e.from, e.step);
  }
};

// What happens to a world when an effect is performed. Laws go by the program, so that they hold
// the job's tables, too.
class Performing {
 public:
  Performing(Setting& setting, World& world, std::uint32_t rank)
      : setting_(setting), job_(setting.job), world_(world), rank_(rank) {}

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
    for (const std::uint32_t to : setting_.servers) {
      send(Rank(to), WholeSumArrived{e.variable, e.step});
    }
  }
  void operator()(const Ask& e) const {
    send(job_.slice(e.slice).owner, AskArrived{self(), e.slice, e.step});
  }
  void operator()(const SendRows& e) const {
    if (e.with_result) send(e.to, ResultArrived{e.slice, e.step - 1});
    send(e.to, RowsArrived{e.slice});
  }
  void operator()(const TakeRows& e) const { start(RowsArrived{e.slice}); }
  void operator()(const Merge& e) const {
    hold(setting_, job_.awaited(job_.slice(e.slice), self()) > 0, "only who combines merges");
    if (updates_on_arrival(exchange(e.slice))) {
      once("apply", e.from, e.slice.value, e.step);
    } else {
      once("merge", self(), e.slice.value, e.step);
    }
    start(Merged{e.slice});
  }
  void operator()(const Measure& e) const {
    const VariableId variable(job_.slice(e.slice).variables.front());
    hold(setting_, setting_.program.graph->variable(variable).update.rule == ir::Rule::kLamb,
         "only LAMB's slices are measured");
    once("measure", self(), e.slice.value, e.step);
    start(Measured{e.slice});
  }
  void operator()(const Update& e) const {
    hold(setting_, makes_parameters(exchange(e.slice)), "only parameters are updated by who sums");
    hold(setting_, goes_to_all(exchange(e.slice)) || job_.slice(e.slice).owner == self(),
         "only the owner updates");
    once("update", self(), e.slice.value, e.step);
    start(Updated{e.slice});
  }
  void operator()(const Install& e) const {
    const RankProtocol& rank = world_.ranks[rank_];
    hold(setting_, !world_.reads[rank_][e.variable.value], "nothing is installed while it is read");
    hold(setting_, rank.version(e.variable) == e.step, "one version is installed after the other");
    if (!makes_parameters(setting_.program.exchange(e.variable))) {
      const auto& clip = setting_.program.plan(e.variable).clip;
      hold(setting_, !clip || rank.is_known(NormId(clip->value), e.step),
           "nothing is installed before it can be clipped");
      const auto& flags = job_.norms.flags;
      hold(setting_, !loss_scaling_of(setting_.program) || (flags && rank.is_known(*flags, e.step)),
           "nothing is installed before all ranks agree");
    }
    once("install", self(), e.variable.value, e.step);
    start(Installed{e.variable});
  }
  void operator()(const GiveRows& e) const {
    start(RowsGiven{e.to, e.slice, e.step, e.with_result});
  }
  void operator()(const Take& e) const { start(Taken{e.slice, e.step}); }
  void operator()(const Open& /*e*/) const { world_.sleeps[rank_] = false; }
  void operator()(const Agreed& e) const { once("agree", self(), 0, e.step); }
  void operator()(const NormKnown& e) const {
    world_.sleeps[rank_] = false;
    once("norm", self(), e.norm.value, e.step);
  }

 private:
  [[nodiscard]] Rank self() const { return Rank(rank_); }
  void start(const Event& ended_by) const { world_.started.emplace_back(rank_, ended_by); }
  void send(Rank to, const Event& event) const {
    hold(setting_, to != self(), "a rank sends nothing to itself");
    world_.links[{world_.generation, rank_, to.value}].emplace_back(event);
  }
  void once(const char* what, Rank rank, std::uint32_t id, Step step) const {
    const std::string key = fmt::format("{}{}.{}@{}", what, rank, id, step);
    if (++world_.done[key] > 1) hold(setting_, false, key + " happens once");
  }
  [[nodiscard]] const program::Slices& exchange(SliceId slice) const {
    return setting_.program.slice(slice).exchange;
  }

  Setting& setting_;
  const Job& job_;
  World& world_;
  std::uint32_t rank_;
};

// Whether the work that the event ends has updated the state of a slice's owner.
std::optional<SliceId> updated_by(const Job& job, Rank rank, const Event& event) {
  std::optional<SliceId> slice;
  if (const auto* updated = std::get_if<Updated>(&event)) slice = updated->slice;
  if (const auto* merged = std::get_if<Merged>(&event)) {
    if (job.updates_at_once(job.slice(merged->slice))) slice = merged->slice;
  }
  return slice && job.slice(*slice).owner == rank ? slice : std::nullopt;
}

}  // namespace

World::World(const Job& job, Step version)
    : first(version),
      at(job.ranks, 0),
      sleeps(job.ranks, false),
      told(job.ranks, true),
      reads(job.ranks, std::vector<bool>(job.variables.size())),
      owners_version(job.slices.size(), version),
      snapshots{version} {
  for (std::uint32_t r = 0; r < job.ranks; ++r) ranks.emplace_back(job, Rank(r), version);
}

std::string text_of(const Message& message) { return std::visit(Text{}, message); }

void hold(Setting& setting, bool holds, std::string_view law) {
  if (!holds && setting.broken.empty()) setting.broken = fmt::format("does not hold: {}", law);
}

void happen(Setting& setting, World& world, std::uint32_t rank, const Event& event) {
  if (const auto slice = updated_by(setting.job, Rank(rank), event)) {
    ++world.owners_version[slice->value];
  }
  Effects effects;
  world.ranks[rank].on(event, effects);
  for (std::size_t i = 0; i < effects.size(); ++i) {
    std::visit(Performing(setting, world, rank), effects[i]);
  }
}

}  // namespace autodist::protocol
