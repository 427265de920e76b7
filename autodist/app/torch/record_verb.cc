// `autodist dataset record`: plans of one model on one cluster, each run for real, as points of a
// data set. The ranks meet once and the step is captured once.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/cli/plan.h"
#include "autodist/app/stop_signal.h"
#include "autodist/app/this_process.h"
#include "autodist/app/torch/torch_verbs.h"
#include "autodist/app/torch/trial_subject.h"
#include "autodist/base/error.h"
#include "autodist/job/launcher.h"
#include "autodist/planning/data_set.h"
#include "autodist/planning/defaults.h"
#include "autodist/planning/history.h"
#include "autodist/planning/link_tuning.h"
#include "autodist/search/learning/propose.h"

namespace autodist::app {
namespace {

struct RecordArguments {
  std::string what;
  ModelRequest model;
  std::string cluster;
  std::string name;
  std::string output;
  std::string optimizer = "sgd:lr=1e-3";
  std::int64_t points = 30;
  std::uint64_t search_seed = 0;
  job::TrialLengths lengths;
  bool cpu_only = false;
  Encryption encryption = Encryption::kAuto;
};

// At the chief; elsewhere none.
std::vector<search::Proposal> proposed(const RecordArguments& arguments, const job::JoinedJob& job,
                                       const TrialSubject& subject, const passes::Options& passes) {
  if (!job.is_chief()) return {};
  std::vector<search::Proposal> plans =
      search::propose(subject.graph(), job.cluster(), passes,
                      static_cast<std::size_t>(arguments.points), arguments.search_seed);
  std::int64_t id = planning::now_in_microseconds();
  for (search::Proposal& each : plans) {
    each.strategy.id = strategy::make_id(id++);  // one after the other
    if (subject.links()) planning::put_tuning(*subject.links(), *subject.graph(), each.strategy);
  }
  return plans;
}

// At the chief the number of points that were written; elsewhere 0.
std::size_t record_points(const RecordArguments& arguments, job::JoinedJob& job, Console& console,
                          const std::function<bool()>& stop) {
  const TrialSubject subject(job, arguments.model, arguments.optimizer);
  passes::Options passes;
  passes.cpu_only = arguments.cpu_only;
  const std::vector<search::Proposal> plans = proposed(arguments, job, subject, passes);
  std::vector<strategy::Strategy> strategies;
  for (const search::Proposal& each : plans) strategies.push_back(each.strategy);
  planning::DataCell cell = planning::history_cell(*subject.graph(), job.cluster());
  if (!arguments.name.empty()) cell.cluster = arguments.name;
  if (job.is_chief()) planning::write_cell(arguments.output, cell);
  std::size_t written = 0;
  std::size_t tried = 0;
  const auto done = [&](const job::Trial& trial) {
    const std::string& name = plans[tried++].name;
    if (!trial.refused.empty()) {
      console.err << fmt::format("           {}: left out: {}\n", name, trial.refused);
      return;
    }
    planning::write_point(arguments.output, cell, trial.strategy, trial.runtimes);
    ++written;
    if (console.json) return;
    console.err << fmt::format("{:>4}/{}  {}  {}\n", written, plans.size(), to_string(trial.step()),
                               name)
                << std::flush;
  };
  job::Trials trials(job, subject.step(passes));
  trials.run(strategies, arguments.lengths, stop, done);
  return written;
}

int record(RecordArguments arguments, Console& console) {
  ir::parse_optimizer(arguments.optimizer);
  const auto launched = job::launcher_of(process_environment());
  arguments.cluster = job::specified(arguments.cluster, process_environment());
  if (arguments.cluster.empty() && !launched) arguments.cluster = "local:2";
  JobOptions options;
  options.cpu_only = arguments.cpu_only;
  options.encryption = arguments.encryption;
  const std::atomic<bool>& interrupted = watch_stop_signals();
  job::JoinedJob job(arguments.cluster, options, this_process());
  if (job.size() < 2) {
    fail(ErrorCode::kUsage, "dataset record: a job of one rank synchronises nothing. Use two.");
  }
  const std::size_t written =
      record_points(arguments, job, console, [&interrupted] { return interrupted.load(); });
  job.end();
  if (!job.is_chief()) return 0;
  if (written == 0 && !interrupted) {
    fail(ErrorCode::kInfeasible, "dataset record: no plan could be run. See above why.");
  }
  if (console.json) {
    console.answer(
        {{"points", written}, {"folder", arguments.output}, {"interrupted", interrupted.load()}});
  } else {
    console.out << fmt::format("{} points in {}{}\n", written, arguments.output,
                               interrupted ? ", interrupted" : "");
  }
  return interrupted ? kInterrupted : 0;
}

}  // namespace

Action declare_record(CLI::App& verb) {
  auto arguments = std::make_shared<RecordArguments>();
  // The others never come here: the program without libtorch does them.
  std::vector<std::string> parts = light_data_set_parts();
  parts.emplace_back("record");
  verb.add_option("what", arguments->what,
                  "record: run plans of a model on a cluster; and without libtorch, with a --help "
                  "of their own: stats, train, eval, generate")
      ->required()
      ->check(CLI::IsMember(parts));
  declare_model_options(verb, arguments->model);
  verb.add_option("-o,--output", arguments->output, "the data set's folder, which may hold others")
      ->required();
  verb.add_option("--cluster", arguments->cluster,
                  "as of train; tools/testbed shapes links on one machine");
  verb.add_option("--name", arguments->name,
                  "of the cluster's folder (default: its shape's digest and the batch)");
  verb.add_option("--batch", arguments->model.batch,
                  "samples per replica (default: the model's own)")
      ->check(in_range(std::int64_t{1}, kMostCount));
  verb.add_option("--optimizer", arguments->optimizer, "as of train (default sgd:lr=1e-3)");
  verb.add_option("--points", arguments->points, "plans to run (default 30)")
      ->check(in_range(std::int64_t{1}, std::int64_t{100'000}));
  verb.add_option("--plan-seed", arguments->search_seed, "of the plans that are drawn");
  verb.add_option("--warmup", arguments->lengths.warmup, "steps that do not count (default 10)")
      ->check(in_range(std::int64_t{0}, kMostCount));
  verb.add_option("--steps", arguments->lengths.steps, "steps that do (default 40)")
      ->check(in_range(std::int64_t{1}, kMostCount));
  declare_encryption(verb, arguments->encryption, "as of train");
  declare_devices(verb, arguments->cpu_only);
  return [arguments, &verb](Console& console) {
    check_model_options(verb, arguments->model);
    return record(*arguments, console);
  };
}

}  // namespace autodist::app
