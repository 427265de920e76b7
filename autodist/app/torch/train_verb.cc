// `autodist train`: a model, a cluster, a trained model.

#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/cli/plan.h"
#include "autodist/app/cli/supervise.h"
#include "autodist/app/command_words.h"
#include "autodist/app/output_file.h"
#include "autodist/app/stop_signal.h"
#include "autodist/app/this_process.h"
#include "autodist/app/torch/model_source.h"
#include "autodist/app/torch/session.h"
#include "autodist/app/torch/step_times.h"
#include "autodist/app/torch/torch_verbs.h"
#include "autodist/app/torch/training.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/numbers.h"
#include "autodist/cluster/cluster.h"
#include "autodist/exec/checkpoint.h"
#include "autodist/exec/checkpoint_folder.h"
#include "autodist/ir/text.h"
#include "autodist/job/launcher.h"
#include "autodist/job/place.h"
#include "autodist/job/remote.h"
#include "autodist/job/torch/joined_job.h"
#include "autodist/planning/history.h"
#include "autodist/planning/planning.h"
#include "autodist/report/html/page.h"
#include "autodist/report/plan.h"
#include "autodist/search/autosync/autosync.h"

namespace autodist::app {
namespace {

struct TrainArguments {
  ModelRequest model;
  std::string data = "";
  PlanArguments plan;       // but for its graph, and what `plan` alone shows
  bool plan_alone = false;  // the plan is what was asked for, and is shown
  std::string optimizer = "adam:lr=1e-3";
  std::string resume;
  std::string trace;
  JobOptions job;                           // but for what `plan` and `model` say
  Supervised supervised{kRestartsOfTrain};  // checked here; the process above has read it
  TrainingOptions training;
  bool batch_is_given = false;  // by --batch
};

// Samples of a step: as many as --batch says, or what data of fewer samples have.
std::int64_t fitting_batch(const TrainArguments& arguments, const ModelSource& source) {
  const std::int64_t samples = source.training->size();
  if (arguments.training.batch > samples && arguments.batch_is_given) {
    fail(ErrorCode::kUsage,
         "--batch {}: the data have {} samples. Give --batch {} or less, or more data.",
         arguments.training.batch, samples, samples);
  }
  return std::min(arguments.training.batch, samples);
}

void show_progress(Console& console, const Progress& progress, std::int64_t steps) {
  if (console.json) return;
  const std::string line =
      fmt::format("step {:>5}/{}  loss {:.5f}  {:>8.0f} samples/s  compute {:>9}  waiting {:>9}",
                  progress.step + 1, steps, progress.loss, progress.samples_per_second,
                  to_string(progress.computing), to_string(progress.waiting));
  if (console.terminal) {
    console.rewrite(line);
  } else if (progress.step % 10 == 0) {
    console.err << line << std::endl;
  }
}

nlohmann::ordered_json result_json(const TrainArguments& arguments, const Session& session,
                                   const ModelSource& source, const TrainingResult& result) {
  const auto measured = [&](double figure) {  // null where all steps were warm-up
    return result.average_samples_per_second > 0 ? nlohmann::ordered_json(figure)
                                                 : nlohmann::ordered_json();
  };
  return {{"model", arguments.model.name},
          {"data", source.data_description},
          {"cluster", arguments.plan.cluster},
          {"ranks", session.size()},
          {"strategy_id", session.strategy().id},
          {"program_digest", to_string(program::digest_of(session.program()))},
          {"reproducible", session.program().reproducible()},
          {"batch_samples", arguments.training.batch},
          {"steps", result.steps},
          {"step", session.step()},
          {"loss", result.loss ? nlohmann::ordered_json(*result.loss) : nlohmann::ordered_json()},
          {"average_samples_per_second", measured(result.average_samples_per_second)},
          {"p10_samples_per_second", measured(result.p10_samples_per_second)},
          {"p90_samples_per_second", measured(result.p90_samples_per_second)},
          {"computing_seconds_per_step", measured(result.computing.value)},
          {"waiting_seconds_per_step", measured(result.waiting.value)},
          {"interrupted", result.interrupted}};
}

// Where the strategy came from. One rank has nothing to choose.
std::string chosen_by(const TrainArguments& arguments, const Session& session) {
  const bool alone = arguments.plan.builder == planning::kSearch && session.size() == 1;
  return planning::source_of(
      {alone ? planning::kDefaultBuilder : arguments.plan.builder,
       arguments.job.plans_file.empty() ? arguments.job.strategy_file : arguments.job.plans_file,
       {}});
}

// "32 sequences of 128, float32"
std::string batch_of(const TrainArguments& arguments, const Session& session) {
  return ir::batch_text(session.graph(), arguments.training.batch,
                        ir::precision_of(session.graph()));
}

void print_start(Console& console, const TrainArguments& arguments, const Session& session,
                 const ModelSource& source, const std::string& launcher) {
  std::string text =
      fmt::format("{}: {} variables, {} ops, in batches of {}, on {} rank{}{} by {}; data: {}\n",
                  arguments.model.name, session.graph().variables.size(),
                  session.graph().ops.size(), batch_of(arguments, session), session.size(),
                  session.size() == 1 ? "" : "s", launcher.empty() ? "" : " of " + launcher,
                  chosen_by(arguments, session), source.data_description);
  std::vector<std::string> whole;
  for (const ir::Input& input : session.graph().inputs) {
    if (!input.batched) whole.push_back(input.name);
  }
  if (!whole.empty()) {
    text += fmt::format("whole to every replica: {}; the other inputs are split\n",
                        fmt::join(whole, ", "));
  }
  if (!session.graph().batch_fixed_reason.empty()) {
    text += fmt::format("the batch is fixed: {}\n", session.graph().batch_fixed_reason);
  }
  if (!session.program().reproducible()) {
    text += report::not_reproducible(session.program()) + "\n";
  }
  console.tell(text);
}

void add_step(report::RunLog& run, const Progress& progress) {
  if (run.names.empty()) {
    run.names = {"loss", "step_seconds", "samples_per_second", "computing_seconds",
                 "waiting_seconds"};
    run.columns.resize(run.names.size());
  }
  run.add(progress.step,
          {progress.loss, progress.wall.value, progress.samples_per_second,
           progress.computing.value, progress.waiting.value},
          progress.plan);
}

// A file that cannot be written when the training is over ends nothing; whether it could.
bool or_missing(const char* option, std::vector<std::string>& missing,
                const std::function<void()>& write) {
  try {
    write();
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kEnvironment) throw;
    missing.push_back(fmt::format("{} {}", option, error.what()));
    return false;
  }
}

// What a report needs without --trace.
constexpr std::int64_t kReportSteps = 16;

void print_end(Console& console, const TrainArguments& arguments, const Session& session,
               const ModelSource& source, const TrainingResult& result,
               const nlohmann::ordered_json& json) {
  if (console.terminal) console.err << "\n";
  if (arguments.plan_alone) {
    console.out << report::plan_table(session.strategy(), session.program(),
                                      arguments.plan.all ? 0 : 20);
    if (!arguments.plan.output.empty()) {
      console.out << "\nWritten to " << arguments.plan.output;
    }
  } else if (!result.loss) {
    console.out << fmt::format("nothing to train: it is at step {} already, and --steps is {}",
                               session.step(), arguments.training.steps);
  } else {
    console.out << fmt::format("{} after step {}: loss {:.5f}",
                               result.interrupted ? "interrupted" : "done", session.step(),
                               *result.loss);
  }
  if (result.average_samples_per_second > 0) {  // else all steps were warm-up
    console.out << fmt::format(
        ", {:.0f} samples/s (p10 {:.0f}, p90 {:.0f}) in batches of {}; per step {} computing and "
        "{} waiting",
        result.average_samples_per_second, result.p10_samples_per_second,
        result.p90_samples_per_second, batch_of(arguments, session), to_string(result.computing),
        to_string(result.waiting));
  }
  console.out << "\n";
  if (json.contains("loss_scale")) {
    console.out << fmt::format("loss scale {}, {} steps skipped\n", json["loss_scale"].get<float>(),
                               json["skipped_steps"].get<std::int64_t>());
  }
  if (json.contains("held_out_accuracy")) {
    console.out << fmt::format("accuracy on {} held-out samples: {:.2f} %\n",
                               source.held_out->size(),
                               100 * json["held_out_accuracy"].get<double>());
  }
  if (!arguments.plan.report.empty()) console.out << "report: " << arguments.plan.report << "\n";
  if (!arguments.training.save_to.empty() && result.saved) {
    console.out << "checkpoint: " << arguments.training.save_to << "/step-" << session.step()
                << "\n";
  }
}

// This command, going on from a checkpoint of `folder`. Where others start the ranks, what was
// typed is not known.
std::string resume_command(const std::string& folder, bool begins_here) {
  if (!begins_here) return "the same command again, with" + as_typed({"", "--resume", folder});
  return as_typed(resuming(job::own_command_line().arguments, folder));
}

// A run that was stopped before its first step; the chief says it.
void say_stopped_early(Console& console) {
  const Environment environment = process_environment();
  tell_chief_to_stop(environment);
  if (environment("AUTODIST_RANK").value_or("0") != "0") return;
  if (console.json) {
    console.out << nlohmann::ordered_json{{"steps", 0}, {"interrupted", true}}.dump() << std::endl;
  } else {
    console.err << "autodist: " << stopped_early() << std::endl;
  }
}

// Every rank runs this; the chief alone prints. `begin` is called before the first step.
int train_job(TrainArguments arguments, Console& console, const std::atomic<bool>& interrupted,
              std::atomic<bool>& stands_by, const std::function<void()>& begin) {
  const ir::Optimizer optimizer = ir::parse_optimizer(arguments.optimizer);
  JobOptions options = arguments.job;
  options.builder = arguments.plan.builder;
  options.search = arguments.plan.search;
  search::parse_budget(options.search.budget);
  if (options.search.any_trials && options.write_plans.empty()) {
    fail(ErrorCode::kUsage,
         "--trials any: chosen by the clock, so that nothing repeats it but its plans. Add "
         "--write-plans FILE.");
  }
  options.search.run_steps = std::max<std::int64_t>(1, arguments.training.steps);
  if (!arguments.plan.no_history)
    options.search.history = planning::history_folder(process_environment());
  options.search.found = [&console](const std::string& lines) {
    if (!console.json) console.tell(lines);
  };
  options.seed = arguments.model.seed;
  options.cpu_only = arguments.plan.cpu_only;
  options.trace = !arguments.trace.empty() || !arguments.plan.report.empty();
  if (arguments.trace.empty()) options.trace_steps = kReportSteps;
  options.encryption = arguments.plan.encryption;
  arguments.training.seed = arguments.model.seed;

  const auto launched = job::launcher_of(process_environment());
  const bool begins_here = !launched && !process_environment()("AUTODIST_RANK");
  // Before a search, not after it; other ranks write nothing, and their machines may lack the
  // folders.
  std::optional<exec::CheckpointFolder> folder;
  const auto hold_folder = [&folder, &arguments] {
    if (!arguments.training.save_to.empty()) folder.emplace("--save", arguments.training.save_to);
  };
  const bool is_chief =
      job::becomes_chief(arguments.plan.cluster, arguments.plan.cpu_only, process_environment());
  if (is_chief) {
    expect_appendable("--log", arguments.training.log);
    expect_folder("--tensorboard", arguments.training.tensorboard);
    expect_writable("--write-strategy", arguments.plan.output);
    expect_writable("--write-plans", options.write_plans);
    if (!options.plans_file.empty()) strategy::read_history(options.plans_file);
    expect_writable("--trace", arguments.trace);
    expect_writable("--report", arguments.plan.report);
    if (!stands_by) hold_folder();  // else the job holds it
    if (!arguments.plan.workload.calibration.empty()) {
      options.search.calibration = sim::read_calibration("", arguments.plan.workload.calibration);
    }
  }
  options.takes_over = [is_chief, &stands_by, &hold_folder] {
    stands_by = false;
    if (is_chief) hold_folder();
  };
  options.resume_command = [begins_here](const std::string& from) {
    return resume_command(from, begins_here);
  };
  arguments.training.warn = [&console](const std::string& line) {
    console.err << (console.terminal ? "\n" : "") << "autodist: " << line << std::endl;
  };
  const std::string& from = arguments.resume;
  exec::RealFileSystem files;
  // A standby goes on from a newer one.
  if (begins_here && !stands_by && !from.empty() &&
      !(std::filesystem::is_directory(from) && exec::has_checkpoint(files, from))) {
    fail(
        ErrorCode::kCheckpoint,
        "--resume {}: there is no checkpoint. Name the folder that --save wrote, or leave --resume "
        "out to begin anew.",
        from);
  }
  arguments.plan.cluster = job::specified(arguments.plan.cluster, process_environment());
  if (arguments.plan.cluster.empty() && !launched) arguments.plan.cluster = "local:2";
  const cluster::Cluster cluster =
      job::members_of(arguments.plan.cluster, launched, process_environment()).cluster;
  const auto ranks = cluster::ranks_of(cluster, arguments.plan.cpu_only);
  check_supervised(arguments.supervised, ranks.size());
  const auto computing = std::count_if(
      ranks.begin(), ranks.end(), [](const cluster::Place& place) { return !place.serves_only; });
  const std::int64_t parts = computing * options.accumulate;
  arguments.model.batch = (arguments.training.batch + parts - 1) / parts;
  arguments.model.whole_batch = arguments.training.batch;
  ModelSource source = open_model(arguments.model, arguments.data);
  arguments.training.batch = fitting_batch(arguments, source);

  bool begun = false;
  options.search.stop = [&interrupted] { return interrupted.load(); };
  Session* serves = nullptr;  // at a rank that only serves: its steps do not hear of a signal
  options.while_waiting = [&interrupted, &begun, &serves] {
    if (interrupted && !begun) throw StoppedEarly();
    if (interrupted && serves != nullptr) serves->wish_for_the_end();
  };
  AutoDist autodist(arguments.plan.cluster, options);
  const std::string launcher = autodist.launcher();
  Session session = autodist.distribute(std::move(source.step), optimizer);
  const bool speak = session.is_chief();
  // A snapshot may be newer; what was named must be there.
  if (session.resume(arguments.resume) == 0 && !arguments.resume.empty()) {
    session.load(arguments.resume);
  }
  if (speak && !arguments.plan.output.empty()) {
    write_strategy(arguments.plan, session.strategy());
  }
  if (speak && !console.json) print_start(console, arguments, session, source, launcher);

  report::RunLog run;
  StepTimes times;
  begun = true;
  begin();
  if (!session.program().computes(program::Rank(session.rank()))) {
    serves = &session;
    session.finish();
    return 0;
  }
  const TrainingResult result = train(
      session, *source.training, arguments.training, interrupted, [&](const Progress& progress) {
        if (speak) show_progress(console, progress, arguments.training.steps);
        if (speak && !arguments.plan.report.empty()) add_step(run, progress);
        if (speak) times.add(progress, session.strategy().id);
      });
  session.synchronize();
  nlohmann::ordered_json json = result_json(arguments, session, source, result);
  if (source.held_out != nullptr && !arguments.plan_alone) {
    json["held_out_accuracy"] = accuracy_of(session, *source.held_out, 256);
  }
  if (!options.loss_scaling.empty()) {
    const ir::LossScale scale = session.loss_scale();
    json["loss_scale"] = scale.scale;
    json["skipped_steps"] = scale.skipped;
  }
  std::vector<std::string> missing = result.missing;
  program::Trace trace;
  if (options.trace) trace = session.gather_trace();
  if (!arguments.trace.empty() && speak) {
    or_missing("--trace", missing,
               [&] { write_file_atomically(arguments.trace, program::to_chrome_json(trace)); });
    if (options.trace_steps > 0 && result.steps > options.trace_steps) {
      console.err << fmt::format("trace: the last {} of {} steps (--trace-steps)\n",
                                 options.trace_steps, result.steps);
    }
  }
  session.finish();
  if (!speak) return 0;
  // The one that trials have kept.
  if (!arguments.plan.output.empty()) {
    or_missing("--write-strategy", missing,
               [&] { write_strategy(arguments.plan, session.strategy()); });
  }
  times.keep(options.search.history, session, cluster);
  if (!arguments.plan.report.empty()) {
    const std::string title = fmt::format("{} on {} rank{}", arguments.model.name, session.size(),
                                          session.size() == 1 ? "" : "s");
    const auto write = [&] { session.write_report(arguments.plan.report, title, run, trace); };
    if (!or_missing("--report", missing, write)) arguments.plan.report.clear();
  }
  if (console.json) {
    console.out << (arguments.plan_alone ? report::plan_json(session.strategy(), session.program())
                                         : json)
                       .dump()
                << "\n";
  } else {
    print_end(console, arguments, session, source, result, json);
  }
  if (!missing.empty()) fail(ErrorCode::kCheckpoint, "{}", fmt::join(missing, "; "));
  return 0;
}

// A signal ends it in order, with exit code 0: before the first step at once, then after the step
// that is under way, with a checkpoint.
int train_verb(const TrainArguments& arguments, Console& console) {
  const std::atomic<bool>& interrupted = watch_stop_signals(/*user_signal=*/true);
  std::atomic<bool> stands_by = job::standby_number(process_environment()) > 0;
  const auto say_stopped = [&console, &stands_by] {
    if (!stands_by) say_stopped_early(console);
  };
  std::optional<EndsEarly> early(std::in_place, say_stopped);
  try {
    return train_job(arguments, console, interrupted, stands_by, [&early] { early.reset(); });
  } catch (const StoppedEarly&) {
    early.reset();
    say_stopped();
    return 0;
  }
}

CLI::Option* declare_seconds(CLI::App& verb, const std::string& name, Seconds& seconds,
                             const std::string& help) {
  const auto set = [&seconds](double number) { seconds = Seconds{number}; };
  return verb.add_option_function<double>(name, set, help);
}

// Of "any", or a number of plans.
void set_trials(const std::string& text, SearchSettings& search) {
  constexpr std::int64_t kMost = 1000;
  search.any_trials = text == "any";
  if (search.any_trials) return;
  const auto trials = as_number<std::int64_t>(text);
  if (!trials || *trials < 0 || *trials > kMost) {
    fail(ErrorCode::kUsage, "--trials: '{}', any or a number from 0 to {} expected", text, kMost);
  }
  search.trials = *trials;
}

// A training of no steps, for what comes before them.
int plan_by_trials(const PlanArguments& plan, Console& console) {
  if (is_model_file(plan.graph)) {
    fail(ErrorCode::kUsage,
         "plan --trials: '{}' is a file; the name of a built-in model expected. For a TorchScript "
         "file: autodist train FILE --input … --trials {} --steps 0 --write-strategy PLAN",
         plan.graph, plan.search.trials);
  }
  TrainArguments arguments;
  arguments.model.name = plan.graph;
  arguments.plan = plan;
  arguments.plan_alone = true;
  arguments.training.steps = 0;
  return train_verb(arguments, console);
}

// What would be left without effect.
void check_train(const CLI::App& verb, const TrainArguments& arguments) {
  check_model_options(verb, arguments.model);
  const std::string& builder = arguments.plan.builder;
  for (const char* option : {"--trials", "--budget", "--search-seed"}) {
    for (const char* plan : {"--strategy", "--plans"}) {
      expect_without(verb, option, plan, fmt::format("of the search, and {} names a plan", plan));
    }
    if (builder == planning::kSearch) continue;
    expect_without(verb, option, "--builder",
                   fmt::format("of the search, and --builder {} chooses without one", builder));
  }
  if (arguments.data != "synthetic") {
    expect_without(verb, "--input", "--data", "of random samples, and --data says which there are");
  }
  expect_without(verb, "--init", "--resume",
                 "of a training that begins, and --resume takes every value from a checkpoint");
  expect_with(verb, "--checkpoint-every", "--save");
  expect_with(verb, "--trace-steps", "--trace");
}

}  // namespace

Action declare_plan_by_trials(CLI::App& verb) { return declare_plan_with(verb, plan_by_trials); }

Action declare_train(CLI::App& verb) {
  auto arguments = std::make_shared<TrainArguments>();
  arguments->plan.cluster.clear();
  declare_model_options(verb, arguments->model);
  verb.add_option(
      "--data", arguments->data,
      "synthetic, or a directory of x0.npy, x1.npy, … (default: the model's own data where "
      "it has some, else synthetic)");
  verb.add_option("--cluster", arguments->plan.cluster,
                  "a cluster file, a host file, or local:N, N processes of this machine (default: the "
                  "ranks that mpirun, torchrun or srun started, else local:2)");
  verb.add_option("--builder", arguments->plan.builder,
                  "how to choose the strategy: auto (the default) searches, as plan does; or a "
                  "builder, as NAME or NAME:key=value,…");
  verb.add_option("--budget", arguments->plan.search.budget,
                  "of the search: a time (10s, the default; 2m) or a number of simulations (40)");
  verb.add_option("--search-seed", arguments->plan.search.seed, "of the search (default 0)");
  verb.add_option_function<std::string>(
      "--trials",
      [arguments](const std::string& text) { set_trials(text, arguments->plan.search); },
      "run so many of the most promising plans for 50 steps each before the training, and take "
      "the fastest (default 0); or any: compare also plans that add up in another order during "
      "the first steps of a long run, so that the bits of the training depend on the clock "
      "(needs --write-plans)");
  verb.add_flag_callback(
          "--no-trials", [arguments] { arguments->plan.search.counted_trials = false; },
          "do not compare plans during the first steps of a long run (by default those that give "
          "the same bits are, in at most 3 % of its steps and 20 s)")
      ->excludes("--trials");
  verb.add_flag(
      "--no-history", arguments->plan.no_history,
      "neither learn from what was measured here before, nor keep what this run measures");
  verb.add_option("--strategy", arguments->job.strategy_file,
                  "a strategy file, in the builder's place")
      ->excludes("--builder");
  verb.add_option("--write-strategy", arguments->plan.output,
                  "write the strategy that the job takes here");
  verb.add_option(
          "--plans", arguments->job.plans_file,
          "a file of --write-plans, in the builder's place: train through the same plans at "
          "the same steps")
      ->excludes("--strategy", "--builder", "--trials", "--no-trials");
  verb.add_option("--write-plans", arguments->job.write_plans,
                  "keep here from which step on the job trains under which plan");
  verb.add_option("--optimizer", arguments->optimizer,
                  "for example adamw:lr=1e-3,decay=0.01,clip=1");
  verb.add_option("--batch", arguments->training.batch, "samples per step, all replicas together")
      ->check(in_range(std::int64_t{1}, kMostCount));
  verb.add_option("--accumulate", arguments->job.accumulate,
                  "micro-batches per step: less memory, the same sums")
      ->check(in_range(std::int64_t{1}, kMostCount));
  verb.add_option("--steps", arguments->training.steps, "train up to this step")
      ->check(in_range(std::int64_t{0}, kMostCount));
  verb.add_option("--save", arguments->training.save_to, "checkpoint directory");
  verb.add_option("--checkpoint-every", arguments->training.save_every,
                  "steps between checkpoints (default: at the end, and every 10 minutes)")
      ->check(in_range(std::int64_t{0}, kMostCount));
  verb.add_option("--resume", arguments->resume,
                  "continue from the newest checkpoint of this directory");
  declare_supervised(verb, arguments->supervised);
  verb.add_flag_callback(
      "--no-snapshots", [arguments] { arguments->job.snapshots = false; },
      "do not copy the job's state into memory, from which it goes on after a lost rank (by "
      "default so often that it takes 1 % of the time)");
  verb.add_option("--init", arguments->job.initial_weights,
                  "first values of parameters and buffers, by name, from a safetensors file");
  verb.add_option(
      "--log", arguments->training.log,
      "append one line per step to this file: CSV where its name ends in .csv, else JSON");
  verb.add_option("--tensorboard", arguments->training.tensorboard,
                  "write an event file for TensorBoard into this folder");
  verb.add_option("--trace", arguments->trace,
                  "write one Chrome/Perfetto trace of all ranks (see report --late)");
  verb.add_option("--trace-steps", arguments->job.trace_steps,
                  "of the last so many steps (default 200; 0: of all, in memory)")
      ->check(in_range(std::int64_t{0}, kMostCount));
  verb.add_option("--report", arguments->plan.report,
                  "write a page for a browser here: the plan, the run, and the timeline of a step, "
                  "predicted and measured");
  verb.add_option("--verify-every", arguments->job.verify_every,
                  "steps between comparisons of the step with its replay (0: never)")
      ->check(in_range(std::int64_t{0}, kMostCount));
  const auto on_nonfinite = [arguments](const std::string& name) {
    arguments->job.on_nonfinite = exec::on_nonfinite_from_name(name);
  };
  verb.add_option_function<std::string>(
      "--on-nonfinite", on_nonfinite,
      "a loss or gradient that is not finite: stop (naming it) or ignore");
  verb.add_option("--loss-scale", arguments->job.loss_scaling,
                  "dynamic (dynamic:scale=65536,growth=2,backoff=0.5,interval=2000) or a number: "
                  "scale the loss, and skip steps whose gradients are not finite");
  declare_encryption(verb, arguments->plan.encryption,
                     "what ranks say to each other: on, off, or auto (the default: on where they "
                     "are on more than one machine). The same for every rank; all-reduces by a "
                     "library need off");
  declare_seconds(verb, "--join-timeout", arguments->job.join_limit,
                  "seconds of silence before the first step after which a rank is given up; one "
                  "that is alive is waited for (default 60)")
      ->check(in_range(1e-3, 1e6));
  declare_seconds(verb, "--silence-timeout", arguments->job.silence_limit,
                  "seconds for which a rank that says nothing is waited for (default 20)")
      ->check(in_range(4.0, 1e6));
  declare_devices(verb, arguments->plan.cpu_only);
  return [arguments, &verb](Console& console) {
    check_train(verb, *arguments);
    arguments->batch_is_given = verb.count("--batch") > 0;
    return train_verb(*arguments, console);
  };
}

}  // namespace autodist::app
