// `autodist dataset stats | train | eval | generate`: what a folder of measured plans holds, a
// ranker of plans trained on it, how well rankers do, and points that are simulated in the place of
// measured. `record`, which runs plans, is autodist-torch's.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/data_sets.h"
#include "autodist/app/output_file.h"
#include "autodist/app/stop_signal.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/planning/data_set.h"
#include "autodist/planning/measured.h"

namespace autodist::app {
namespace {

struct DataSetArguments {
  std::string what;
  std::string folder;
  std::string output;
  std::uint64_t seed = 0;
  bool simulated = false;
  SimulatedDataSet wanted;
};

std::vector<planning::DataCell> cells_of(const DataSetArguments& arguments, Console& console) {
  std::vector<std::string> warnings;
  std::vector<planning::DataCell> cells = planning::read_data_set(arguments.folder, warnings);
  for (const std::string& warning : warnings) console.err << "autodist: " << warning << "\n";
  return cells;
}

planning::MeasuredPlans plans_of(const std::vector<planning::DataCell>& cells, Console& console) {
  std::vector<std::string> warnings;
  planning::MeasuredPlans plans = planning::measured_plans(cells, warnings);
  for (const std::string& warning : warnings) console.err << "autodist: " << warning << "\n";
  return plans;
}

int train_ranker(const DataSetArguments& arguments, Console& console) {
  if (arguments.output.empty()) {
    fail(ErrorCode::kUsage, "dataset train: -o FILE expected, for the ranker");
  }
  const planning::MeasuredPlans plans = plans_of(cells_of(arguments, console), console);
  const search::Residual residual = search::Residual::fit(plans.samples);
  write_file_atomically(arguments.output, residual.to_json());
  std::vector<double> before;
  std::vector<double> after;
  for (const search::Sample& sample : plans.samples) {
    const Seconds simulated(sample.simulated);
    before.push_back(simulated.value);
    after.push_back(sample.simulated > 0 ? residual.correct(sample.features, simulated).value : 0);
  }
  const double simulator = search::pairwise_accuracy(plans.samples, before).share();
  const double with_residual = search::pairwise_accuracy(plans.samples, after).share();
  if (console.json) {
    return console.answer({{"plans", residual.samples()},
                           {"accuracy_of_simulator", simulator},
                           {"accuracy_with_residual", with_residual},
                           {"written_to", arguments.output}});
  }
  console.out << fmt::format(
      "{} measured plans; pairs in the measured order, on the plans themselves: simulator {:.1f} "
      "%, with residual {:.1f} %\nWritten to {}\n",
      residual.samples(), 100 * simulator, 100 * with_residual, arguments.output);
  return 0;
}

int evaluate(const DataSetArguments& arguments, Console& console) {
  const planning::MeasuredPlans plans = plans_of(cells_of(arguments, console), console);
  search::Splits splits;
  splits.seed = arguments.seed;
  const auto rows = search::evaluate(plans.samples, plans.models, plans.clusters,
                                     search::shipped_rankers(), splits);
  if (rows.empty()) {
    fail(ErrorCode::kUsage,
         "dataset eval: {} points, too few to leave any out and judge rankers by them. Add some "
         "with dataset record.",
         plans.samples.size());
  }
  if (!arguments.output.empty()) {
    write_file_atomically(arguments.output, evaluation_page(rows, plans, "autodist dataset eval"));
  }
  console.out << (console.json ? evaluation_json(rows) + "\n" : evaluation_table(rows));
  return 0;
}

int generate(const DataSetArguments& arguments, Console& console) {
  if (!arguments.simulated) {
    fail(ErrorCode::kUsage,
         "dataset generate: --simulated expected, for its times are the simulator's. Measure with "
         "dataset record.");
  }
  const std::atomic<bool>& stop = watch_stop_signals();
  const auto done = [&console](const std::string& line) {
    if (!console.json) console.err << line << "\n";
  };
  const std::size_t written = generate_simulated(
      arguments.folder, arguments.wanted, [&stop] { return stop.load(); }, done);
  console.out << (console.json ? fmt::format("{{\"points\": {}, \"interrupted\": {}}}\n", written,
                                             stop.load())
                               : fmt::format("{} simulated points in {}{}\n", written,
                                             arguments.folder, stop ? ", interrupted" : ""));
  return stop ? kInterrupted : 0;
}

int data_set(const DataSetArguments& arguments, Console& console) {
  expect_writable("--output", arguments.output);
  if (arguments.what == "train") return train_ranker(arguments, console);
  if (arguments.what == "eval") return evaluate(arguments, console);
  if (arguments.what == "generate") return generate(arguments, console);
  const std::vector<planning::DataCell> cells = cells_of(arguments, console);
  const planning::MeasuredPlans plans = plans_of(cells, console);
  console.out << (console.json ? stats_json(cells, plans) + "\n" : stats_table(cells, plans));
  return 0;
}

}  // namespace

const std::vector<std::string>& light_data_set_parts() {
  static const std::vector<std::string> parts{"stats", "train", "eval", "generate"};
  return parts;
}

Action declare_data_set(CLI::App& verb) {
  auto arguments = std::make_shared<DataSetArguments>();
  verb.add_option("what", arguments->what,
                  "stats: what a folder holds; train: a ranker from it, for plan --ranker; eval: "
                  "how well rankers order plans they do not know; generate: simulated points")
      ->required()
      ->check(CLI::IsMember(light_data_set_parts()));
  verb.add_option("folder", arguments->folder,
                  "of the data set: MODEL/CLUSTER/strategies/ID below it (AutoSync's layout)")
      ->required();
  verb.add_option("-o,--output", arguments->output,
                  "of train: the ranker's file; of eval: a page of the figures");
  verb.add_option("--seed", arguments->seed,
                  "of eval: draws the plans that count as trials (default 0)");
  SimulatedDataSet& wanted = arguments->wanted;
  verb.add_flag("--simulated", arguments->simulated,
                "of generate, required: its points are simulated, not measured");
  verb.add_option("--models", wanted.models, "of generate: shipped graphs, or files")
      ->delimiter(',');
  verb.add_option("--clusters", wanted.clusters, "of generate: cluster files")->delimiter(',');
  verb.add_option("--points", wanted.points, "of generate: per model and cluster (default 100)")
      ->check(in_range(1, 1'000'000));
  verb.add_option("--plan-seed", wanted.seed, "of generate: draws the plans (default 0)");
  return [arguments, &verb](Console& console) {
    expect_of_part(
        verb, arguments->what,
        {{"train", {"--output"}},
         {"eval", {"--output", "--seed"}},
         {"generate", {"--simulated", "--models", "--clusters", "--points", "--plan-seed"}}});
    return data_set(*arguments, console);
  };
}

}  // namespace autodist::app
