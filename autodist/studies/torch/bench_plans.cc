// `autodist bench plans`: what the search finds, beside every builder on the same engine, what the
// documentation recommends by hand among them, and beside other systems as they run by themselves,
// all measured in turn in one job.
//
// What a plan takes is the median over rounds of a round's median step. Other systems are imitated
// as in docs/decisions/082: their strategies, first in, first out, and a barrier after every step.
//
// The fastest of a dozen measured plans is in part the luckiest. With `finals` the rounds only say
// which are the fastest of each kind; these and the searched plan then run again, and what one
// gains over another is said by those rounds alone: the median over rounds of the ratio of two
// plans in one round. The least and the largest of six such ratios enclose the true median with a
// probability of 97 %, whatever their distribution is (1 - 2 / 2^6).

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "autodist/app/this_process.h"
#include "autodist/app/torch/trial_subject.h"
#include "autodist/base/error.h"
#include "autodist/comm/c10d/make_collectives.h"
#include "autodist/job/torch/measured_library.h"
#include "autodist/planning/link_tuning.h"
#include "autodist/planning/planning.h"
#include "autodist/planning/searching.h"
#include "autodist/search/autosync/diverse.h"
#include "autodist/search/autosync/seeds.h"
#include "autodist/search/builders/builders.h"
#include "autodist/studies/strategies.h"
#include "autodist/studies/torch/bench.h"

namespace autodist::studies {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSearched = "searched";
constexpr const char* kBuilder = "builder";
constexpr const char* kSystem = "system";
constexpr const char* kOther = "other";
// Of each kind; the fastest of a kind may be slower than its second when both run again.
constexpr std::size_t kFinalists = 2;

// Of an even number the mean of both in the middle: the upper one alone would favour whom a ratio
// is taken of.
double middle_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

struct Contestant {
  std::string name;
  std::string kind;
  strategy::Strategy strategy;
  std::optional<Seconds> predicted;
  std::vector<double> rounds = {};  // seconds per step
  std::vector<double> finals = {};  // empty: it was none of the fastest
  std::string refused = "";

  [[nodiscard]] double step() const { return middle_of(finals.empty() ? rounds : finals); }
};

// How many times as fast as another one a plan was.
struct Gain {
  double median = 1;
  double low = 1;  // of a round
  double high = 1;
};

Gain gain_over(const Contestant& other, const Contestant& plan) {
  const bool final = !plan.finals.empty() && !other.finals.empty();
  const std::vector<double>& slower = final ? other.finals : other.rounds;
  const std::vector<double>& faster = final ? plan.finals : plan.rounds;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < faster.size(); ++i) ratios.push_back(slower.at(i) / faster[i]);
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  return {middle_of(ratios), *low, *high};
}

class Contest {
 public:
  Contest(const SyncArguments& arguments, job::JoinedJob& job)
      : arguments_(arguments),
        job_(job),
        subject_(job, model_request(arguments), arguments.optimizer) {
    const auto library = comm::library_for(job.transport(), "cpu", job.options().join_limit);
    const auto figures = job::measured_library(job, library, true);
    const bool has_library = library != comm::CollectiveLibrary::kNone;
    if (!job.is_chief()) return;
    add_plans(has_library, figures);
    for (const OwnSystem& system : own_systems()) {
      if (!has_library && system.builder.find("algorithm=library") != std::string::npos) {
        left_out_.push_back(system.name);
        continue;
      }
      add(systems_, system.name, kSystem, strategy_of(system, *subject_.graph(), job.cluster()),
          {});
    }
  }

  void run(const app::Console& console) {
    if (!left_out_.empty()) {
      console.err << fmt::format("left out, as this program has no all-reduces by a library: {}\n",
                                 fmt::join(left_out_, ", "));
    }
    job::Trials trials(job_, subject_.step({}));
    for (std::int64_t round = 1; round <= arguments_.rounds; ++round) {
      if (job_.is_chief() && !console.json) {
        console.err << fmt::format("round {} of {}\n", round, arguments_.rounds) << std::flush;
      }
      measure(trials, every(plans_), round, arguments_.rounds, false);
      measure(trials, every(systems_), round, arguments_.rounds, true);
    }
    const Group plans = finalists(plans_);
    const Group systems = finalists(systems_);
    for (std::int64_t round = 1; round <= arguments_.finals; ++round) {
      if (job_.is_chief() && !console.json) {
        console.err << fmt::format("final round {} of {}\n", round, arguments_.finals)
                    << std::flush;
      }
      measure(trials, plans, round, arguments_.finals, false, &Contestant::finals);
      measure(trials, systems, round, arguments_.finals, true, &Contestant::finals);
    }
  }

  [[nodiscard]] std::vector<Contestant> result() const {
    std::vector<Contestant> all = plans_;
    all.insert(all.end(), systems_.begin(), systems_.end());
    return all;
  }

  [[nodiscard]] const std::string& found() const { return found_; }

 private:
  void add(std::vector<Contestant>& to, const std::string& name, const std::string& kind,
           strategy::Strategy strategy, std::optional<Seconds> predicted) const {
    planning::set_id(strategy);
    if (subject_.links()) planning::put_tuning(*subject_.links(), *subject_.graph(), strategy);
    to.push_back({name, kind, std::move(strategy), predicted});
  }

  // The searched one and every builder, with what the search's judge says of them.
  void add_plans(bool has_library, const std::optional<comm::LibraryFigures>& library) {
    SearchSettings settings;
    settings.budget = arguments_.budget;
    planning::SearchRequest request =
        planning::search_request(settings, job_.specification(), has_library);
    planning::add_library(library, job_.size(), job_.cluster(), request.calibration);
    request.links = subject_.links();
    const planning::SearchedPlan plan =
        planning::search_plan(subject_.graph(), job_.cluster(), request);
    found_ = plan.name;
    add(plans_, kSearched, kSearched, plan.strategy, plan.simulation.step);
    std::vector<std::string> builders;
    for (const search::Builder& builder : search::builders()) builders.push_back(builder.name);
    builders.emplace_back(search::kRecommended);
    for (BuilderStep& each : builder_steps(
             subject_.graph(), job_.cluster(),
             planning::with_links(request, *subject_.graph(), job_.cluster()), builders)) {
      strategy::fix_priorities(each.strategy, *subject_.graph());
      add(plans_, each.builder, kBuilder, std::move(each.strategy), each.step);
    }
    for (const std::size_t i :
         search::diverse(plan.found, static_cast<std::size_t>(arguments_.others))) {
      const search::Candidate& other = plan.found.candidates[i];
      if (other.builder || other.name == plan.name) continue;
      std::optional<Seconds> predicted;
      if (other.judgement->in_full) predicted = other.judgement->step;
      strategy::Strategy strategy = other.strategy;
      strategy::fix_priorities(strategy, *subject_.graph());
      add(plans_, other.name, kOther, std::move(strategy), predicted);
    }
  }

  using Group = std::vector<Contestant*>;

  static Group every(std::vector<Contestant>& contestants) {
    Group group;
    for (Contestant& each : contestants) group.push_back(&each);
    return group;
  }

  // The fastest of each kind that could be carried out.
  static Group finalists(std::vector<Contestant>& contestants) {
    Group ran;
    for (Contestant& each : contestants) {
      if (!each.rounds.empty()) ran.push_back(&each);
    }
    std::stable_sort(ran.begin(), ran.end(), [](const Contestant* a, const Contestant* b) {
      return a->step() < b->step();
    });
    Group group;
    for (Contestant* each : ran) {
      const auto same = std::count_if(group.begin(), group.end(), [&](const Contestant* other) {
        return other->kind == each->kind;
      });
      if (static_cast<std::size_t>(same) < kFinalists) group.push_back(each);
    }
    return group;
  }

  // One of `rounds` rounds, each of which begins with another plan, into `to`. `group` is the
  // chief's, elsewhere empty.
  void measure(job::Trials& trials, const Group& group, std::int64_t round, std::int64_t rounds,
               bool barrier, std::vector<double> Contestant::*to = &Contestant::rounds) {
    const std::size_t count = group.size();
    const auto first =
        static_cast<std::size_t>(round - 1) * count / static_cast<std::size_t>(rounds);
    std::vector<strategy::Strategy> strategies;
    for (std::size_t i = 0; i < count; ++i) {
      strategies.push_back(group[(first + i) % count]->strategy);
    }
    const std::vector<job::Trial> ran =
        trials.run(strategies, {arguments_.warmup, arguments_.steps, barrier});
    for (std::size_t i = 0; i < count; ++i) {
      Contestant& contestant = *group[(first + i) % count];
      contestant.refused = ran[i].refused;
      if (ran[i].refused.empty()) (contestant.*to).push_back(ran[i].step().value);
    }
  }

  const SyncArguments& arguments_;
  job::JoinedJob& job_;
  app::TrialSubject subject_;
  std::vector<Contestant> plans_;
  std::vector<Contestant> systems_;
  std::vector<std::string> left_out_;  // systems
  std::string found_;
};

// The fastest of a kind, of those that ran in the finals where any did; nullptr where none could be
// carried out.
const Contestant* best_of(const std::vector<Contestant>& all, const std::string& kind) {
  const Contestant* best = nullptr;
  const auto order = [](const Contestant& each) {
    return std::make_pair(each.finals.empty(), each.step());
  };
  for (const Contestant& each : all) {
    if (each.kind != kind || each.rounds.empty()) continue;
    if (best == nullptr || order(each) < order(*best)) best = &each;
  }
  return best;
}

Json to_json(const std::vector<Contestant>& all, const std::string& found) {
  Json rows = Json::array();
  for (const Contestant& each : all) {
    Json row{{"name", each.name}, {"kind", each.kind}};
    if (each.kind == kSearched) row["strategy"] = strategy::to_text(each.strategy);
    if (each.predicted) row["predicted_s"] = each.predicted->value;
    if (each.refused.empty()) {
      row["measured_s"] = each.step();
      row["rounds_s"] = each.rounds;
      if (!each.finals.empty()) row["finals_s"] = each.finals;
    } else {
      row["refused"] = each.refused;
    }
    rows.push_back(std::move(row));
  }
  Json json{{"found", found}, {"plans", std::move(rows)}};
  const Contestant& searched = *best_of(all, kSearched);
  for (const char* kind : {kBuilder, kSystem, kOther}) {
    const Contestant* best = best_of(all, kind);
    if (best == nullptr) continue;
    const Gain gain = gain_over(*best, searched);
    json[fmt::format("best_{}", kind)] = best->name;
    json[fmt::format("gain_over_best_{}", kind)] = gain.median;
    json[fmt::format("gain_over_best_{}_low", kind)] = gain.low;
    json[fmt::format("gain_over_best_{}_high", kind)] = gain.high;
  }
  return json;
}

std::string table_of(const std::vector<Contestant>& all) {
  const Contestant& searched = *best_of(all, kSearched);
  std::size_t width = 0;
  for (const Contestant& each : all) width = std::max(width, each.name.size());
  std::string text = fmt::format("{:<{}} {:<9} {:>12} {:>12} {:>10}\n", "plan", width, "",
                                 "predicted", "measured", "searched =");
  for (const Contestant& each : all) {
    const std::string predicted = each.predicted ? to_string(*each.predicted) : "";
    if (!each.refused.empty()) {
      text += fmt::format("{:<{}} {:<9} {}\n", each.name, width, each.kind, each.refused);
      continue;
    }
    text +=
        fmt::format("{:<{}} {:<9} {:>12} {:>12} {:>9.2f}\n", each.name, width, each.kind, predicted,
                    to_string(Seconds(each.step())), gain_over(each, searched).median);
  }
  return text;
}

}  // namespace

int bench_plans(const SyncArguments& arguments, app::Console& console) {
  JobOptions options;
  options.encryption = arguments.encryption;
  job::JoinedJob job(arguments.cluster, options, app::this_process());
  if (job.size() < 2) {
    fail(ErrorCode::kUsage, "bench plans: a job of one rank synchronises nothing. Use two.");
  }
  std::vector<Contestant> all;
  std::string found;
  {
    Contest contest(arguments, job);
    contest.run(console);
    all = contest.result();
    found = contest.found();
  }
  job.end();
  if (!job.is_chief()) return 0;
  if (best_of(all, kSearched) == nullptr) {
    fail(ErrorCode::kInfeasible, "bench plans: the searched plan cannot run: {}",
         all.front().refused);
  }
  console.out << (console.json ? to_json(all, found).dump() + "\n" : table_of(all));
  return 0;
}

}  // namespace autodist::studies
