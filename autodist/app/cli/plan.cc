// `autodist plan`: a strategy for a graph on a cluster, shown and written.

#include "autodist/app/cli/plan.h"
#include "autodist/app/this_process.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/cli/hand_over.h"
#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/output_file.h"
#include "autodist/app/stop_signal.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/nearest.h"
#include "autodist/job/launch.h"
#include "autodist/passes/pipeline.h"
#include "autodist/planning/archive.h"
#include "autodist/planning/history.h"
#include "autodist/planning/link_tuning.h"
#include "autodist/planning/plan_page.h"
#include "autodist/planning/planning.h"
#include "autodist/planning/prediction.h"
#include "autodist/planning/searching.h"
#include "autodist/report/html/page.h"
#include "autodist/report/plan.h"
#include "autodist/search/builders/builders.h"

namespace autodist::app {
namespace {

// Whether jobs of this build can have all-reduces by a library.
constexpr bool kLibrary = AUTODIST_GLOO;

std::string builder_help() {
  std::string text = "auto (the default) searches; or a builder, as NAME or NAME:key=value,…:";
  for (const search::Builder& builder : search::builders()) text += " " + builder.name;
  return text;
}

void check_pass_name(const std::string& name) {
  const std::vector<std::string> known = passes::pass_names();
  if (name.empty() || name == "all") return;
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  fail(ErrorCode::kUsage, "--dump-after: unknown pass '{}', one of {} or all expected{}", name,
       fmt::join(known, ", "), nearest_hint(name, known));
}

planning::PlanPageRequest page_by(const std::string& chosen_by, const PlanArguments& arguments,
                                  const passes::Options& options, const sim::CostOptions& costs,
                                  const sim::Calibration& calibration) {
  planning::PlanPageRequest request = planning::page_request(
      chosen_by, options, kLibrary, calibration,
      sim::calibration_file(arguments.cluster, arguments.workload.calibration));
  request.how.costs = costs;
  return request;
}

void write_report(const PlanArguments& arguments, const planning::PlanPageRequest& request,
                  const cluster::Cluster& cluster, const strategy::Strategy& strategy,
                  const program::Program& program) {
  if (arguments.report.empty()) return;
  report::PageInputs page;
  page.title = fmt::format("{} on {}", program.graph->name,
                           std::filesystem::path(arguments.cluster).filename().string());
  planning::add_plan(page, program.graph, cluster, strategy, program, request);
  report::write_page(page, arguments.report);
}

int plan_by_builder(const PlanArguments& arguments, const std::shared_ptr<const ir::Graph>& graph,
                    const cluster::Cluster& cluster, const passes::Options& options,
                    const sim::CostOptions& costs, Console& console) {
  const planning::StrategyRequest request{arguments.builder, "", {}};
  std::vector<std::string> warnings;
  const strategy::Strategy strategy = planning::choose_strategy(request, *graph, cluster, warnings);
  for (const std::string& warning : warnings) console.err << "autodist: " << warning << "\n";
  const program::Program program =
      passes::rewrite(graph, strategy, cluster, options, planning::source_of(request));
  refuse_placed(arguments.workload, program);
  const sim::Calibration calibration =
      sim::read_calibration(arguments.cluster, arguments.workload.calibration);
  const planning::Predicted predicted = planning::predict(program, cluster, calibration, costs);
  const std::int64_t batch = costs.batch * costs.micro_batches;
  write_strategy(arguments, strategy);
  write_report(arguments,
               page_by("builder " + arguments.builder, arguments, options, costs, calibration),
               cluster, strategy, program);
  if (console.json) {
    nlohmann::ordered_json json = report::plan_json(strategy, program, batch);
    if (predicted.simulation) {
      json["prediction"] =
          planning::prediction_json(*predicted.simulation, program, predicted.costs);
      name_calibration(arguments.cluster, arguments.workload, json["prediction"]);
    } else {
      json["no_prediction"] = predicted.why_not;
    }
    return console.answer(json);
  }
  console.out
      << title_of(graph->name, arguments.cluster, search::shown_name(arguments.builder),
                  arguments.workload)
      << (predicted.simulation
              ? planning::prediction_lines(*predicted.simulation, program, predicted.costs) + "\n"
              : fmt::format("no prediction  {}\n\n", predicted.why_not))
      << report::plan_table(strategy, program, arguments.all ? 0 : 20, console.columns, batch);
  return 0;
}

// What was measured of this graph here, and what the plan would gain over it.
std::string history_lines(const planning::SearchedPlan& plan, const ir::Graph& graph) {
  if (!plan.learned.best_measured) {
    return fmt::format(
        "history        nothing was measured of '{}' with {} samples per replica on this cluster\n",
        graph.name, graph.example_batch);
  }
  const Seconds best = *plan.learned.best_measured;
  std::string text = fmt::format("history        measured best {}, by strategy {}\n",
                                 to_string(best), plan.learned.best_id);
  if (!plan.learned.correct) {
    return text +
           "               too few measured plans to learn from: this plan's step is the "
           "simulator's, and says nothing of a gain\n";
  }
  const double gain = best / plan.expected;
  text += gain > 1.005 ? fmt::format(
                             "gain           this plan is expected to be {:.2f} times as "
                             "fast\n",
                             gain)
                       : "gain           none: no better plan than the measured best is known\n";
  return text;
}

int plan_by_search(const PlanArguments& arguments, const std::shared_ptr<const ir::Graph>& graph,
                   const cluster::Cluster& cluster, const passes::Options& options,
                   const sim::CostOptions& costs, Console& console) {
  SearchSettings settings = arguments.search;
  settings.stop = [&stop = watch_stop_signals()] { return stop.load(); };
  settings.calibration = sim::read_calibration(arguments.cluster, arguments.workload.calibration);
  if (!arguments.no_history) settings.history = planning::history_folder(process_environment());
  planning::SearchRequest request = planning::search_request(settings, arguments.cluster, kLibrary);
  request.options.progress = [&console](const search::Progress& progress) {
    if (console.terminal) console.rewrite({planning::progress_line(progress)});
  };
  request.passes = options;
  request.passes.dump = nullptr;  // only the answer's passes are dumped
  request.costs = costs;
  request.placing_share = arguments.placed ? 0.5 : 0;
  planning::SearchedPlan plan = planning::search_plan(graph, cluster, request);
  if (arguments.placed) planning::take_placement(plan);
  refuse_placed(arguments.workload, plan.program);
  if (console.terminal) console.rewrite({});
  planning::set_id(plan.strategy);
  passes::Options as_taken = options;
  as_taken.micro_batches = plan.costs.micro_batches;
  if (options.dump) passes::rewrite(graph, plan.strategy, cluster, as_taken, "search");
  write_strategy(arguments, plan.strategy);
  planning::PlanPageRequest page =
      page_by("search", arguments, options, request.costs, request.calibration);
  if (plan.placed_because.empty()) page.found = &plan.found;
  const std::int64_t batch = plan.costs.batch * plan.costs.micro_batches;
  write_report(arguments, page, cluster, plan.strategy, plan.program);
  if (console.json) {
    nlohmann::ordered_json json = report::plan_json(plan.strategy, plan.program, batch);
    json["prediction"] = planning::prediction_json(plan.simulation, plan.program, plan.costs);
    name_calibration(arguments.cluster, arguments.workload, json["prediction"]);
    json["search"] = planning::search_json(plan);
    return console.answer(json);
  }
  console.out << title_of(graph->name, arguments.cluster,
                          "search: " + search::shown_name(plan.name), arguments.workload)
              << planning::prediction_lines(plan.simulation, plan.program, plan.costs)
              << planning::search_lines(plan)
              << (arguments.placed && !plan.not_placed_because.empty()
                      ? fmt::format("placement      none: {}\n", plan.not_placed_because)
                      : "")
              << (arguments.from_history ? history_lines(plan, *graph) : "") << "\n"
              << report::plan_table(plan.strategy, plan.program, arguments.all ? 0 : 20,
                                    console.columns, batch);
  return 0;
}

// The step as it was measured here, with its batch and times: of the graph's name the one with most
// points; `graph` where there is none.
std::shared_ptr<const ir::Graph> measured_step(std::shared_ptr<const ir::Graph> graph,
                                               const cluster::Cluster& cluster) {
  const std::string model = planning::history_cell(*graph, cluster).model;
  std::size_t most = 0;
  for (const planning::DataCell& cell :
       planning::history_on(planning::history_folder(process_environment()), cluster)) {
    if (cell.model != model || cell.points.size() <= most) continue;
    most = cell.points.size();
    graph = cell.graph;
  }
  return graph;
}

// What would be left without effect.
void check_plan(const CLI::App& verb, const PlanArguments& arguments) {
  expect_with(verb, "--text", "--output");
  if (arguments.builder == planning::kSearch) return;
  for (const char* option : {"--budget", "--seed", "--ranker", "--from-history"}) {
    expect_without(
        verb, option, "--builder",
        fmt::format("of the search, and --builder {} chooses without one", arguments.builder));
  }
}

int plan(const PlanArguments& arguments, Console& console) {
  expect_writable("--output", arguments.output);
  expect_writable("--report", arguments.report);
  check_pass_name(arguments.dump_after);
  std::shared_ptr<const ir::Graph> graph =
      std::make_shared<const ir::Graph>(planning::load_graph(arguments.graph));
  const cluster::Cluster cluster = cluster::read_cluster(arguments.cluster);
  if (arguments.from_history) graph = measured_step(std::move(graph), cluster);
  passes::Options options = planning::declared_options(cluster, *graph, arguments.cpu_only);
  options.encrypted = planning::encrypts(arguments.encryption, cluster);
  sim::CostOptions costs;
  put_workload(arguments.workload, cluster, arguments.cpu_only, costs, console);
  options.batch = costs.batch;
  if (!arguments.dump_after.empty()) {
    options.dump = [&](const std::string& pass, const std::string& text) {
      if (arguments.dump_after != pass && arguments.dump_after != "all") return;
      console.err << "# after " << pass << "\n" << text << "\n";
    };
  }
  const bool searches = arguments.builder == planning::kSearch;
  const int code = searches ? plan_by_search(arguments, graph, cluster, options, costs, console)
                            : plan_by_builder(arguments, graph, cluster, options, costs, console);
  if (console.json) return code;
  if (!arguments.output.empty()) console.out << "\nWritten to " << arguments.output << "\n";
  if (!arguments.report.empty()) console.out << "\nReport in " << arguments.report << "\n";
  return code;
}

}  // namespace

void write_strategy(const PlanArguments& arguments, const strategy::Strategy& strategy) {
  if (arguments.output.empty()) return;
  write_file_atomically(arguments.output, arguments.as_text ? strategy::to_text(strategy)
                                                            : strategy::serialize(strategy));
}

void declare_encryption(CLI::App& verb, Encryption& encryption, const std::string& help) {
  const auto set = [&encryption](const std::string& word) {
    encryption = encryption_from_name(word);
  };
  verb.add_option_function<std::string>("--encrypt", set, help)
      ->check(CLI::IsMember({"auto", "on", "off"}));
}

Action declare_plan(CLI::App& verb) {
  return declare_plan_with(verb, [](const PlanArguments& arguments, Console&) {
    expect_writable("--output", arguments.output);
    expect_writable("--report", arguments.report);
    return hand_over(job::own_command_line().arguments);
  });
}

Action declare_plan_with(CLI::App& verb, PlanByTrials trials) {
  auto arguments = std::make_shared<PlanArguments>();
  declare_graph(verb, arguments->graph);
  declare_cluster(verb, arguments->cluster);
  verb.add_option("--builder", arguments->builder, builder_help());
  verb.add_option("--budget", arguments->search.budget,
                  "of the search: a time (10s, the default; 2m) or a number of simulations (40), "
                  "which with --no-history gives the same plan every time");
  verb.add_option("--seed", arguments->search.seed, "of the search (default 0)");
  verb.add_option(
      "--ranker", arguments->search.ranker,
      "a trained ranker (dataset train) that corrects the simulator, where fewer than a "
      "dozen plans were measured on this cluster");
  verb.add_option("--trials", arguments->search.trials,
                  "run so many of the most promising plans of a built-in model on the cluster, and "
                  "take the fastest (default 0)")
      ->check(in_range(0, 1000));
  verb.add_flag("--no-history", arguments->no_history,
                "do not learn from what was measured on this cluster before");
  verb.add_flag("--from-history", arguments->from_history,
                "say what this plan would gain over the best one that was measured here")
      ->excludes("--no-history");
  verb.add_flag("--placed", arguments->placed,
                "where it is faster to spread the ops over the ranks than to give each the whole "
                "graph, take that; half of a budget in seconds goes to looking for it")
      ->excludes("--trials", "--builder");
  verb.add_option("-o,--output", arguments->output, "write the strategy here");
  verb.add_option("--report", arguments->report, "write a page for a browser here");
  verb.add_flag("--text", arguments->as_text, "write it in protobuf's text format");
  verb.add_flag("--all", arguments->all, "show every variable");
  declare_devices(verb, arguments->cpu_only);
  declare_workload(verb, arguments->workload);
  declare_encryption(verb, arguments->encryption,
                     "what ranks will say to each other: on, off, or auto (the default: on where "
                     "they are on more than one machine); all-reduces by a library, which are "
                     "not, are searched only where it is off");
  verb.add_option("--dump-after", arguments->dump_after,
                  "print the program after this pass (or all) to standard error");
  for (const char* other : {"--batch", "--replica-batch", "--dtype"}) {
    verb.get_option("--from-history")->excludes(verb.get_option(other));
  }
  // Trials are of what was searched, of a graph that the job captures.
  for (const char* other :
       {"--builder", "--from-history", "--dump-after", "--batch", "--replica-batch", "--dtype"}) {
    verb.get_option("--trials")->excludes(verb.get_option(other));
  }
  return [arguments, trials = std::move(trials), &verb](Console& console) {
    check_plan(verb, *arguments);
    return arguments->search.trials > 0 ? trials(*arguments, console) : plan(*arguments, console);
  };
}

}  // namespace autodist::app
