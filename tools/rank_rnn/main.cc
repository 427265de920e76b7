// rank-rnn: AutoSync's recurrent ranker beside those of `autodist dataset eval`, on the same splits
// of a data set.
//
// A program of its own, for it needs libtorch, which `dataset eval` does not.

#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>

#include "autodist/app/data_sets.h"
#include "autodist/app/output_file.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/planning/measured.h"
#include "tools/rank_rnn/plan_sequence.h"
#include "tools/rank_rnn/rank_rnn.h"

namespace autodist::learned {
namespace {

struct Arguments {
  std::string folder;
  std::string output;
  RankRnnOptions network;
  search::Splits splits;
  bool json = false;
};

void say(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) std::cerr << "rank-rnn: " << warning << "\n";
}

int run(const Arguments& arguments) {
  torch::set_num_threads(1);  // sums in one order
  app::expect_writable("--output", arguments.output);
  std::vector<std::string> warnings;
  const std::vector<planning::DataCell> cells = planning::read_data_set(arguments.folder, warnings);
  const planning::MeasuredPlans plans = planning::measured_plans(cells, warnings);
  say(warnings);
  Sequences sequences;
  for (const planning::DataCell& cell : cells) {
    sequences.emplace_back();
    for (const planning::DataPoint& point : cell.points) {
      sequences.back().push_back(plan_sequence(point.strategy, *cell.graph, cell.machines));
    }
  }
  std::vector<search::Ranker> rankers = search::shipped_rankers();
  rankers.insert(rankers.begin() + 1, rank_rnn(sequences, arguments.network));
  const auto rows =
      search::evaluate(plans.samples, plans.models, plans.clusters, rankers, arguments.splits);
  if (!arguments.output.empty()) {
    write_file_atomically(arguments.output, app::evaluation_page(rows, plans, "rank-rnn"));
  }
  std::cout << (arguments.json ? app::evaluation_json(rows) + "\n" : app::evaluation_table(rows));
  return 0;
}

int parse_and_run(int argc, char** argv) {
  Arguments arguments;
  CLI::App program(
      "How well rankers order plans they do not know, RankRNN among them. Exit codes are "
      "autodist's.",
      "rank-rnn");
  program.add_option("folder", arguments.folder, "a data set, as of autodist dataset eval")
      ->required();
  program.add_option("--epochs", arguments.network.epochs, "of training (default 40)")
      ->check(CLI::Range(1, 100'000));
  program.add_option("--hidden", arguments.network.hidden, "units (default 32)")
      ->check(CLI::Range(1, 4096));
  program.add_option("--seed", arguments.network.seed, "of weights and trials (default 0)");
  std::map<std::string, search::Known> known;
  for (const search::Known each : arguments.splits.known) known[name_of(each)] = each;
  std::vector<std::string> names;
  program.add_option("--known", names, "what rankers know before the trials (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember(known));
  program.add_option("--trials", arguments.splits.trials, "numbers of trials")->delimiter(',');
  program.add_option("--draws", arguments.splits.draws, "of trials, per cell (default 3)")
      ->check(CLI::Range(1, 1000));
  program.add_option("-o,--output", arguments.output, "write a page of the figures here");
  program.add_flag("--json", arguments.json, "print one JSON object per ranker, in a list");
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = program.exit(error);
    return code == 0 ? 0 : static_cast<int>(ErrorCode::kUsage);
  }
  if (!names.empty()) arguments.splits.known.clear();
  for (const std::string& name : names) arguments.splits.known.push_back(known.at(name));
  arguments.splits.seed = arguments.network.seed;
  return run(arguments);
}

}  // namespace
}  // namespace autodist::learned

int main(int argc, char** argv) {
  try {
    return autodist::learned::parse_and_run(argc, argv);
  } catch (const autodist::Error& error) {
    std::cerr << "rank-rnn: " << error.what() << "\n";
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << "rank-rnn: " << error.what() << "\n";
    return 1;
  }
}
