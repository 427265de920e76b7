// `autodist bench`: measurements, as ratios within one run.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/cli/plan.h"
#include "autodist/base/check.h"
#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/base/numbers.h"
#include "autodist/base/text.h"
#include "autodist/job/subprocess.h"
#include "autodist/studies/bench.h"
#include "autodist/studies/torch/bench.h"

namespace autodist::studies {

int show_figures(const nlohmann::ordered_json& figures, const nlohmann::ordered_json& raw,
                 app::Console& console) {
  if (console.json) {
    nlohmann::ordered_json all{{"figures", figures}};
    if (!raw.is_null()) all["raw"] = raw;
    console.out << all.dump() << "\n";
    return 0;
  }
  for (const auto& [name, value] : figures.items()) {
    console.out << fmt::format("{:<36} {:.3f}\n", name, value.get<double>());
  }
  return 0;
}

app::ModelRequest model_request(const SyncArguments& arguments) {
  app::ModelRequest request;
  request.name = arguments.model;
  request.batch = arguments.rows;
  request.loss = arguments.loss;
  request.inputs = arguments.inputs;
  return request;
}

Seconds seconds_of_steps(Session& session, std::int64_t warmup, std::int64_t steps,
                         const std::function<void()>& run_step) {
  const SteadyClock clock;
  Seconds start;
  while (session.step() < warmup + steps) {
    if (session.step() == warmup) {  // together, as at the end: else a lead would be counted
      session.synchronize();
      start = clock.now();
    }
    run_step();
  }
  session.synchronize();
  return clock.now() - start;
}

double run_probe(const BenchArguments& arguments, const std::string& probe,
                 const std::string& model) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::string> words{self,  "bench",         arguments.name, "--probe",
                                 probe, "--probe-model", model};
  if (arguments.quick) words.emplace_back("--quick");
  const job::Finished finished = job::run_to_end(words);
  if (finished.exit_code != 0) {
    const bool killed = finished.exit_code > 128;
    fail(
        killed ? ErrorCode::kEnvironment : static_cast<ErrorCode>(finished.exit_code),
        "bench {}: the process that measures '{}' of {} ended with exit code {}. Its own line says "
        "why.",
        arguments.name, probe, model, finished.exit_code);
  }
  const auto seconds = as_number<double>(first_line(finished.output));
  AD_CHECK(seconds) << "a probe printed '" << finished.output << "'";
  return *seconds;
}

namespace {

// What starts jobs of its own, on hosts that are namespaces or beside peers: a script in the place
// of this process.
int bench_by_script(const BenchArguments& arguments, const app::Console& console) {
  std::vector<std::string> words;
  if (arguments.quick) words.emplace_back("--quick");
  if (console.json) words.emplace_back("--json");
  run_script("bench-" + arguments.name, words);
}

// For a message: those without libtorch never come here, the other program does them.
std::vector<std::string> all_benchmarks() {
  std::vector<std::string> names = light_benchmarks();
  names.insert(names.end(), {"capture", "device", "gpus", "links", "pipeline", "plans", "recovery",
                             "staleness", "sync", "sync-rank"});
  return names;
}

// `bench plans` is one job where it is given a cluster, else all drawn cases.
void expect_cases_or_cluster(const CLI::App& verb, const app::PartOptions& plans) {
  const bool one_job = verb.count("--cluster") > 0;
  for (const std::string& option : plans.options) {
    if (verb.count(option) == 0 || one_job == (option != "--quick")) continue;
    fail(ErrorCode::kUsage, "bench plans: {} is of {}. {}.", option,
         one_job ? "the drawn cases" : "one job",
         one_job ? "Leave it or --cluster out" : "Add --cluster FILE, or leave it out");
  }
}

constexpr const char* kRankOptions = "plans and sync-rank (links: --cluster and --encrypt)";

void declare_sync_options(CLI::App& verb, SyncArguments& sync) {
  const auto add = [&verb](const char* name, auto& value, const char* help) {
    return verb.add_option(name, value, help)->group(kRankOptions);
  };
  add("--cluster", sync.cluster, "cluster file");
  add("--model", sync.model, "a TorchScript file; of plans, a built-in model too");
  add("--loss", sync.loss, "as of train");
  add("--input", sync.inputs, "as of train");
  add("--optimizer", sync.optimizer, "as of train");
  add("--rows", sync.rows, "samples per rank and step")
      ->check(app::in_range(std::int64_t{1}, app::kMostCount));
  add("--setting", sync.setting, "sync-rank: fifo-barrier, fifo or priority")
      ->check(CLI::IsMember({"fifo-barrier", "fifo", "priority"}));
  add("--builder", sync.builder, "sync-rank: whose strategy the settings vary");
  add("--slice-bytes", sync.slice_bytes, "sync-rank: 0 for the default");
  app::declare_encryption(verb, sync.encryption, "as of train");
  add("--window-bytes", sync.window_bytes, "sync-rank: 0 for the default");
  add("--warmup", sync.warmup, "steps that are not counted")
      ->check(app::in_range(std::int64_t{0}, app::kMostCount));
  add("--steps", sync.steps, "steps that are")
      ->check(app::in_range(std::int64_t{1}, app::kMostCount));
  add("--trace", sync.trace, "sync-rank: write the trace of all ranks");
  add("--rounds", sync.rounds, "plans: every plan runs so many times (default 3)")
      ->check(app::in_range(std::int64_t{1}, std::int64_t{1000}));
  add("--finals", sync.finals,
      "plans: the fastest of each kind run so many times more, and are compared by that (default "
      "0: all by the rounds)")
      ->check(app::in_range(std::int64_t{0}, std::int64_t{1000}));
  add("--others", sync.others,
      "plans: so many of those that the search judged run, too (default 0)")
      ->check(app::in_range(std::int64_t{0}, std::int64_t{10000}));
  add("--budget", sync.budget, "plans: of the search, as of plan (default 10s)");
}

}  // namespace

app::Action declare_bench(CLI::App& verb) {
  auto arguments = std::make_shared<BenchArguments>();
  auto sync = std::make_shared<SyncArguments>();
  verb.add_option(
          "name", arguments->name,
          "capture, device (what a stand-in device proves), gpus (copies to and from them), links "
          "(between the machines of a cluster), pipeline, plans (drawn cases, which needs root; "
          "with --cluster one job), recovery, staleness, sync "
          "(docs/benchmarks/index.md), sync-rank (a rank of it); and without libtorch, with a "
          "--help of their own: sim, place, p3, chart, predict, search, sweep")
      ->required()
      ->check(CLI::IsMember(all_benchmarks()));
  verb.add_flag("--quick", arguments->quick, "fewer repetitions of the same figures");
  verb.add_option("--probe", arguments->probe)->group("");
  verb.add_option("--probe-model", arguments->probe_model)->group("");
  declare_sync_options(verb, *sync);
  return [arguments, sync, &verb](app::Console& console) {
    const std::vector<std::string> ranks{"--cluster", "--model",     "--loss",
                                         "--input",   "--optimizer", "--rows",
                                         "--encrypt", "--warmup",    "--steps"};
    app::PartOptions plans{"plans", ranks};
    plans.options.emplace_back("--quick");
    app::PartOptions sync_rank{"sync-rank", ranks};
    for (const char* option : {"--rounds", "--finals", "--others", "--budget"}) {
      plans.options.emplace_back(option);
    }
    for (const char* option :
         {"--setting", "--builder", "--slice-bytes", "--window-bytes", "--trace"}) {
      sync_rank.options.emplace_back(option);
    }
    const std::vector<std::string> probed{"--quick", "--probe", "--probe-model"};
    app::expect_of_part(verb, arguments->name,
                        {plans,
                         sync_rank,
                         {"links", {"--cluster", "--encrypt"}},
                         {"capture", probed},
                         {"pipeline", probed},
                         {"staleness", probed},
                         {"device", {}},
                         {"recovery", {"--quick"}},
                         {"sync", {"--quick"}}});
    if (arguments->name == "plans") expect_cases_or_cluster(verb, plans);
    if (arguments->name == "capture") return bench_capture(*arguments, console);
    if (arguments->name == "gpus") return bench_gpus(console);
    if (arguments->name == "links") return bench_links(*sync, console);
    if (arguments->name == "pipeline") return bench_pipeline(*arguments, console);
    if (arguments->name == "plans" && !sync->cluster.empty()) return bench_plans(*sync, console);
    if (arguments->name == "staleness") return bench_staleness(*arguments, console);
    if (arguments->name == "sync-rank") return bench_sync_rank(*sync, console);
    return bench_by_script(*arguments, console);
  };
}

}  // namespace autodist::studies
