// `autodist train`: a model, a cluster, a trained model.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "autodist/app/cli/plan.h"
#include "autodist/app/cli/supervise.h"
#include "autodist/app/command_words.h"
#include "autodist/app/metrics.h"
#include "autodist/app/output_file.h"
#include "autodist/app/stop_signal.h"
#include "autodist/app/this_process.h"
#include "autodist/app/torch/model_source.h"
#include "autodist/app/torch/session.h"
#include "autodist/app/torch/step_times.h"
#include "autodist/app/torch/torch_verbs.h"
#include "autodist/app/torch/train_arguments.h"
#include "autodist/app/torch/train_words.h"
#include "autodist/app/torch/training.h"
#include "autodist/base/checkpoint_folder.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/cluster/cluster.h"
#include "autodist/exec/checkpoint.h"
#include "autodist/job/launcher.h"
#include "autodist/job/place.h"
#include "autodist/job/remote.h"
#include "autodist/job/torch/joined_job.h"
#include "autodist/planning/history.h"
#include "autodist/report/html/run_log.h"
#include "autodist/report/plan.h"
#include "autodist/search/autosync/autosync.h"

namespace autodist::app {
namespace {

// What a report needs without --trace.
constexpr std::int64_t kReportSteps = 16;

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
  if (!job::is_rank_0(environment)) return;
  if (console.json) {
    console.out << nlohmann::ordered_json{{"steps", 0}, {"interrupted", true}}.dump() << std::endl;
  } else {
    console.err << "autodist: " << stopped_early(environment) << std::endl;
  }
}

// What the words say of the job, before its machines and its model are known.
JobOptions job_options(const TrainArguments& arguments, Console& console) {
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
  if (!arguments.plan.no_history) {
    options.search.history = planning::history_folder(process_environment());
  }
  options.search.found = [&console](const std::string& lines) {
    if (!console.json) console.tell(lines);
  };
  options.seed = arguments.model.seed;
  options.cpu_only = arguments.plan.cpu_only;
  options.trace = !arguments.trace.empty() || !arguments.plan.report.empty();
  if (arguments.trace.empty()) options.trace_steps = kReportSteps;
  options.encryption = arguments.plan.encryption;
  return options;
}

// Before a search, not after it. At the chief: other ranks write nothing, and their machines may
// lack the folders.
void expect_outputs(const TrainArguments& arguments) {
  expect_lines("--log", arguments.training.log, logged_names());
  expect_folder("--tensorboard", arguments.training.tensorboard);
  expect_writable("--write-strategy", arguments.plan.output);
  expect_writable("--write-plans", arguments.job.write_plans);
  expect_writable("--trace", arguments.trace);
  expect_writable("--report", arguments.plan.report);
}

void expect_checkpoint(const std::string& from) {
  RealFileSystem files;
  if (std::filesystem::is_directory(from) && exec::has_checkpoint(files, from)) return;
  fail(ErrorCode::kCheckpoint,
       "--resume {}: there is no checkpoint. Name the folder that --save wrote, or leave --resume "
       "out to begin anew.",
       from);
}

// The machines of the job, which `arguments` name from here on.
cluster::Cluster find_cluster(TrainArguments& arguments,
                              const std::optional<job::Launched>& launched) {
  std::string& named = arguments.plan.cluster;
  named = job::specified(named, process_environment());
  if (named.empty() && !launched) named = "local:2";
  return job::members_of(named, launched, process_environment()).cluster;
}

// For a step of as many samples as `arguments` say from here on.
ModelSource open_source(TrainArguments& arguments, const std::vector<cluster::Place>& ranks) {
  const auto computing = std::count_if(
      ranks.begin(), ranks.end(), [](const cluster::Place& place) { return !place.serves_only; });
  const std::int64_t parts = computing * arguments.job.accumulate;
  arguments.model.batch = (arguments.training.batch + parts - 1) / parts;
  arguments.model.whole_batch = arguments.training.batch;
  ModelSource source = open_model(arguments.model, arguments.data);
  arguments.training.batch = fitting_batch(arguments, source);
  return source;
}

// Adds to `missing` where it cannot be written.
void write_trace(const TrainArguments& arguments, const program::Trace& trace, std::int64_t steps,
                 Console& console, std::vector<std::string>& missing) {
  if (arguments.trace.empty()) return;
  or_missing("--trace", missing,
             [&] { write_file_atomically(arguments.trace, program::to_chrome_json(trace)); });
  const std::int64_t most = arguments.job.trace_steps;
  if (most > 0 && steps > most) {
    console.err << fmt::format("trace: the last {} of {} steps (--trace-steps)\n", most, steps);
  }
}

// The strategy is the one that trials have kept. Adds to `missing` what cannot be written, and a
// report that cannot is none.
void write_plan_and_report(TrainArguments& arguments, Session& session, const report::RunLog& run,
                           const program::Trace& trace, std::vector<std::string>& missing) {
  if (!arguments.plan.output.empty()) {
    or_missing("--write-strategy", missing,
               [&] { write_strategy(arguments.plan, session.strategy()); });
  }
  std::string& page = arguments.plan.report;
  if (page.empty()) return;
  const std::string title = fmt::format("{} on {} rank{}", arguments.model.name, session.size(),
                                        session.size() == 1 ? "" : "s");
  const auto write = [&] { session.write_report(page, title, run, trace); };
  if (!or_missing("--report", missing, write)) page.clear();
}

// The steps, and what the chief says and writes of them.
void train_and_tell(TrainArguments& arguments, const JobOptions& options, Session& session,
                    const ModelSource& source, const cluster::Cluster& cluster,
                    const std::atomic<bool>& interrupted, Console& console) {
  const bool speak = session.is_chief();
  report::RunLog run(logged_names());
  StepTimes times;
  const auto show = [&](const Progress& progress) {
    if (!speak) return;
    show_progress(console, progress, arguments.training.steps);
    if (!arguments.plan.report.empty()) {
      run.add(progress.step, logged_values(progress), progress.plan);
    }
    times.add(progress, session.strategy().id);
  };
  TrainingResult result = train(session, *source.training, arguments.training, interrupted, show);
  session.synchronize();
  if (source.held_out != nullptr && !arguments.plan_alone) {
    result.held_out_accuracy = accuracy_of(session, *source.held_out, 256);
  }
  if (!arguments.job.loss_scaling.empty()) result.loss_scale = session.loss_scale();
  program::Trace trace;
  if (options.trace) trace = session.gather_trace();
  if (speak) write_trace(arguments, trace, result.steps, console, result.missing);
  session.finish();
  if (!speak) return;
  times.keep(options.search.history, session, cluster);
  write_plan_and_report(arguments, session, run, trace, result.missing);
  if (!console.json) {
    print_end(console, arguments, session, source, result);
  } else if (arguments.plan_alone) {
    console.answer(report::plan_json(session.strategy(), session.program()));
  } else {
    console.answer(result_json(arguments, session, source, result));
  }
  if (!result.missing.empty()) {
    fail(ErrorCode::kCheckpoint, "{}", fmt::join(result.missing, "; "));
  }
}

// Every rank runs this; the chief alone prints. `begin` is called before the first step.
int train_job(TrainArguments arguments, Console& console, const std::atomic<bool>& interrupted,
              std::atomic<bool>& stands_by, const std::function<void()>& begin) {
  const ir::Optimizer optimizer = ir::parse_optimizer(arguments.optimizer);
  JobOptions options = job_options(arguments, console);
  arguments.training.seed = arguments.model.seed;
  arguments.training.warn = [&console](const std::string& line) {
    console.err << (console.terminal ? "\n" : "") << "autodist: " << line << std::endl;
  };
  const auto launched = job::launcher_of(process_environment());
  const bool begins_here = !launched && !process_environment()("AUTODIST_RANK");
  const bool is_chief =
      job::becomes_chief(arguments.plan.cluster, arguments.plan.cpu_only, process_environment());
  std::optional<CheckpointFolder> folder;
  const auto hold_folder = [&] {
    if (!is_chief || arguments.training.save_to.empty()) return;
    folder.emplace("--save", arguments.training.save_to);
  };
  if (is_chief) {
    expect_outputs(arguments);
    if (!options.plans_file.empty()) strategy::read_history(options.plans_file);
    if (!arguments.plan.workload.calibration.empty()) {
      options.search.calibration = sim::read_calibration("", arguments.plan.workload.calibration);
    }
  }
  if (!stands_by) hold_folder();  // else the job holds it
  options.takes_over = [&stands_by, &hold_folder] {
    stands_by = false;
    hold_folder();
  };
  options.snapshot_folder = arguments.training.save_to;
  options.resume_command = [begins_here](const std::string& from) {
    return resume_command(from, begins_here);
  };
  // A standby goes on from a newer one.
  if (begins_here && !stands_by && !arguments.resume.empty()) expect_checkpoint(arguments.resume);
  const cluster::Cluster cluster = find_cluster(arguments, launched);
  const std::vector<cluster::Place> ranks = cluster::ranks_of(cluster, arguments.plan.cpu_only);
  check_supervised(arguments.supervised, ranks.size());
  ModelSource source = open_source(arguments, ranks);

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

  begun = true;
  begin();
  if (!session.program().computes(program::Rank(session.rank()))) {
    serves = &session;
    session.finish();
    return 0;
  }
  train_and_tell(arguments, options, session, source, cluster, interrupted, console);
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

}  // namespace

Action declare_plan_by_trials(CLI::App& verb) { return declare_plan_with(verb, plan_by_trials); }

Action declare_train(CLI::App& verb) {
  const std::shared_ptr<TrainArguments> arguments = declare_train_arguments(verb);
  return [arguments, &verb](Console& console) {
    check_train_arguments(verb, *arguments);
    arguments->batch_is_given = verb.count("--batch") > 0;
    return train_verb(*arguments, console);
  };
}

}  // namespace autodist::app
