// `autodist bench` of what needs no libtorch. The other benchmarks are autodist-torch's.

#include "autodist/studies/bench.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/output_file.h"
#include "autodist/app/this_process.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/nearest.h"
#include "autodist/planning/archive.h"
#include "autodist/studies/gpu_times.h"
#include "autodist/studies/p3.h"
#include "autodist/studies/placement_speed.h"
#include "autodist/studies/published_chart.h"
#include "autodist/studies/speed.h"
#include "autodist/studies/strategies.h"
#include "autodist/studies/sweep.h"

namespace autodist::studies {
namespace {

struct BenchArguments {
  std::string name;
  std::string output;
  std::string data;
  std::string clusters;
  std::string budget;
  std::vector<std::string> models;
  std::string results;
  std::int64_t most = 0;
  bool report_only = false;
  bool quick = false;
};

// Measured tables that may not be copied into the project.
std::string data_folder(const BenchArguments& arguments) {
  if (!arguments.data.empty()) return arguments.data;
  return app::process_environment()("AUTODIST_DATA").value_or("../shared/data");
}

// The page into the file that was asked for, and to who asked: it, or JSON.
int show(const std::string& page, const std::string& table, const std::string& json,
         const BenchArguments& arguments, app::Console& console) {
  if (!arguments.output.empty()) write_file_atomically(arguments.output, page);
  console.out << (console.json ? json + "\n" : table);
  return 0;
}

// In simulations, so that a page can be made again bit for bit.
std::string budget_of(const BenchArguments& arguments) {
  if (!arguments.budget.empty()) return arguments.budget;
  return arguments.quick ? "12" : "40";
}

void expect_known(const std::vector<std::string>& models, const std::vector<std::string>& known) {
  for (const std::string& model : models) {
    if (std::find(known.begin(), known.end(), model) != known.end()) continue;
    fail(ErrorCode::kUsage, "--models: '{}', one of {} expected{}", model, fmt::join(known, ", "),
         nearest_hint(model, known));
  }
}

int bench_search(const BenchArguments& arguments, app::Console& console) {
  const std::string budget = budget_of(arguments);
  search::SearchOptions options;
  options.budget = search::parse_budget(budget);
  const auto done = [&console](const StrategyRow& row) {
    console.err << fmt::format("{} {}: {} of {} by {}, problem's bound {}\n", row.cluster,
                               row.of.model, to_string(row.found_step),
                               to_string(row.own[row.best_own()]),
                               own_systems()[row.best_own()].name, to_string(row.problem_bound))
                << std::flush;
  };
  std::vector<std::string> known;
  for (const StrategyCase& each : strategy_cases()) known.push_back(each.model);
  expect_known(arguments.models, known);
  const std::vector<StrategyRow> rows =
      compare_all(arguments.clusters, options, arguments.models, done);
  const bool timed = options.budget.simulations == 0;
  nlohmann::ordered_json raw = nlohmann::ordered_json::array();
  for (const StrategyRow& row : rows) {
    nlohmann::ordered_json entry{{"cluster", row.cluster},
                                 {"model", row.of.model},
                                 {"batch", row.of.batch},
                                 {"found", row.found},
                                 {"step_seconds", row.found_step.value},
                                 {"best_builder", row.best_builder},
                                 {"best_builder_step_seconds", row.builder_step.value},
                                 {"bound_seconds", row.plan_bound.value},
                                 {"problem_bound_seconds", row.problem_bound.value},
                                 {"ideal_gain", row.ideal_gain()},
                                 {"search_seconds", row.search_seconds.value}};
    for (std::size_t i = 0; i < row.own.size(); ++i) {
      entry["own_step_seconds"][own_systems()[i].name] = row.own[i].value;
    }
    raw.push_back(std::move(entry));
  }
  std::map<std::string, double> figures = strategy_figures(rows);
  if (console.json && arguments.models.empty()) {  // measured, and so on no page
    console.err << "longer searches beside those of 10 s: some minutes\n" << std::flush;
    figures.merge(search_speed(arguments.clusters, Seconds(arguments.quick ? 20 : 60)));
  }
  return show(
      strategy_page(rows, timed ? budget : budget + " simulations", timed), strategy_table(rows),
      nlohmann::ordered_json{{"figures", figures}, {"raw", raw}}.dump(), arguments, console);
}

int bench_sweep(const BenchArguments& arguments, app::Console& console) {
  const std::string budget = budget_of(arguments);
  search::SearchOptions options;
  options.budget = search::parse_budget(budget);
  const cluster::Cluster cluster = cluster::read_cluster(arguments.clusters + "/autosync-a.yml");
  std::vector<SweepCase> cases = sweep_cases(arguments.quick);
  std::vector<std::string> known;
  for (const SweepCase& each : cases) known.push_back(each.of.model);
  expect_known(arguments.models, known);
  std::vector<Chance> chances;
  const auto wanted = [&](const StrategyCase& of) {
    return arguments.models.empty() || std::find(arguments.models.begin(), arguments.models.end(),
                                                 of.model) != arguments.models.end();
  };
  std::erase_if(cases, [&](const SweepCase& each) { return !wanted(each.of); });
  const auto done = [&console](const SweepRow& row) {
    console.err << fmt::format("{} {} at {} Gbit/s: {:.2f} of {:.2f}\n", row.of.of.model,
                               row.of.of.batch, row.of.gbit_per_s, row.row.gain_over_own(),
                               row.row.ideal_gain())
                << std::flush;
  };
  const std::vector<SweepRow> rows = sweep(cases, cluster, options, done);
  for (const StrategyCase& of : strategy_cases()) {
    if (!wanted(of) || of.model == "bert-large") continue;  // a second each
    chances.push_back(chance_of(of, cluster, arguments.quick ? 20 : 1000, options));
  }
  const bool timed = options.budget.simulations == 0;
  const std::string page = sweep_page(rows, chances, timed ? budget : budget + " simulations");
  return show(page, page, sweep_json(rows, chances), arguments, console);
}

// Hosts are namespaces: a script in the place of this process.
int bench_predict(const BenchArguments& arguments, const app::Console& console) {
  std::vector<std::string> words;
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {option, value});
  };
  add("--output", arguments.output);
  add("--results", arguments.results);
  add("--most", arguments.most > 0 ? std::to_string(arguments.most) : "");
  if (arguments.report_only) words.emplace_back("--report-only");
  if (console.json) words.emplace_back("--json");
  run_script("bench-predict", words);
}

int bench_chart(const BenchArguments& arguments, app::Console& console) {
  const std::string path = data_folder(arguments) + "/autodist/figure1.tsv";
  const ChartStudy study = study_chart(parse_chart(read_file(path), path));
  const std::string page = chart_page(study);
  return show(page, page, chart_json(study), arguments, console);
}

std::string json_of(const Figures& figures) {
  return nlohmann::ordered_json{{"figures", figures.figures}, {"raw", figures.raw}}.dump();
}

int bench(const BenchArguments& arguments, app::Console& console) {
  app::expect_writable("--output", arguments.output);
  if (arguments.name == "search") return bench_search(arguments, console);
  if (arguments.name == "sweep") return bench_sweep(arguments, console);
  if (arguments.name == "predict") return bench_predict(arguments, console);
  if (arguments.name == "chart") return bench_chart(arguments, console);
  if (arguments.name == "p3") {
    if (console.json) {
      fail(ErrorCode::kUsage,
           "bench p3: a page of tables, which --json has no form for. Leave it out.");
    }
    const std::string page = p3_page();
    return show(page, page, "", arguments, console);
  }
  if (arguments.name == "gpu-times") {
    const std::vector<GpuTime> times = predict_published_steps();
    const std::string page = gpu_times_page(times);
    return show(page, page, gpu_times_json(times), arguments, console);
  }
  if (arguments.name == "place") {
    const Figures figures = measure_placement(arguments.quick);
    return show(placement_speed_page(figures), placement_speed_table(figures), json_of(figures),
                arguments, console);
  }
  const std::string tables = data_folder(arguments) + "/nccl";
  if (!std::filesystem::exists(tables)) {
    const std::string missing = fmt::format("there is no {}", tables);
    if (!arguments.data.empty()) fail(ErrorCode::kUsage, "--data: {}. Name another.", missing);
    console.err << "left out, as " << missing << ": NCCL's figures\n";
  }
  const Figures figures = measure_simulator(data_folder(arguments), arguments.quick);
  return show(speed_page(figures), speed_table(figures), json_of(figures), arguments, console);
}

}  // namespace

void run_script(const std::string& name, const std::vector<std::string>& words) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string script = (folder.parent_path() / "share/autodist/tools" / name).string();
  const std::string autodist = (folder / "autodist").string();
  std::vector<const char*> argv{script.c_str(), "--autodist", autodist.c_str()};
  for (const std::string& word : words) argv.push_back(word.c_str());
  argv.push_back(nullptr);
  ::execv(script.c_str(), const_cast<char* const*>(argv.data()));  // NOLINT: it changes nothing
  fail(ErrorCode::kEnvironment, "{}: {}. It comes with the source tree.", script,
       std::strerror(errno));
}

const std::vector<std::string>& light_benchmarks() {
  static const std::vector<std::string> names{"sim",     "place",  "p3",    "chart",
                                              "predict", "search", "sweep", "gpu-times"};
  return names;
}

app::Action declare_bench_light(CLI::App& verb) {
  auto arguments = std::make_shared<BenchArguments>();
  verb.add_option(
          "name", arguments->name,
          "sim: speed and scale of the simulator; place: of evaluating placements; p3: P3's study; "
          "chart: AutoDist's published chart; predict: predictions beside real runs on this "
          "machine (needs root); search: searched strategies against other systems' on AutoSync's "
          "two clusters, with --json how long a search takes, too; sweep: the same over links and "
          "batches, and against strategies drawn at random; gpu-times: published steps on GPUs, "
          "predicted")
      ->required()
      ->check(CLI::IsMember(light_benchmarks()));
  verb.add_flag("--quick", arguments->quick, "fewer repetitions of the same figures");
  verb.add_option("-o,--output", arguments->output, "write the page of figures here");
  verb.add_option("--data", arguments->data,
                  "folder of measured tables (default: AUTODIST_DATA, then ../shared/data)");
  verb.add_option("--results", arguments->results,
                  "of predict: folder of what was measured, so that it may be interrupted");
  verb.add_option("--most", arguments->most, "of predict: cases to measure now (default: all)")
      ->check(app::in_range(1, 1'000'000));
  verb.add_flag("--report-only", arguments->report_only, "of predict: measure nothing");
  verb.add_option(
          "--clusters", arguments->clusters,
          "of search and sweep: folder of autosync-a.yml and autosync-b.yml (default: the shipped)")
      ->default_val(planning::shipped_clusters());
  verb.add_option("--budget", arguments->budget,
                  "of search and sweep: of each search, as of plan (default 40 simulations)");
  verb.add_option("--models", arguments->models, "of search and sweep: these alone")
      ->delimiter(',');
  return [arguments, &verb](app::Console& console) {
    const std::vector<std::string> searched{"--quick", "--output", "--clusters", "--budget",
                                            "--models"};
    app::expect_of_part(verb, arguments->name,
                        {{"sim", {"--quick", "--output", "--data"}},
                         {"place", {"--quick", "--output"}},
                         {"p3", {"--output"}},
                         {"chart", {"--output", "--data"}},
                         {"predict", {"--output", "--results", "--most", "--report-only"}},
                         {"search", searched},
                         {"sweep", searched},
                         {"gpu-times", {"--output"}}});
    return bench(*arguments, console);
  };
}

}  // namespace autodist::studies
