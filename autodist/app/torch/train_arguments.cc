#include "autodist/app/torch/train_arguments.h"

#include <fmt/format.h>

#include "autodist/app/cli/parse_errors.h"
#include "autodist/base/error.h"
#include "autodist/base/numbers.h"
#include "autodist/exec/finite.h"

namespace autodist::app {
namespace {

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

}  // namespace

std::shared_ptr<TrainArguments> declare_train_arguments(CLI::App& verb) {
  auto arguments = std::make_shared<TrainArguments>();
  arguments->plan.cluster.clear();
  declare_model_options(verb, arguments->model);
  verb.add_option(
      "--data", arguments->data,
      "synthetic, or a directory of x0.npy, x1.npy, … (default: the model's own data where "
      "it has some, else synthetic)");
  verb.add_option(
      "--cluster", arguments->plan.cluster,
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
      "take no snapshots of the job's state, from which it goes on after a lost rank (they lie in "
      "memory, or, where that has no room, in the folder of --save; about 1 % of the time goes to "
      "them)");
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
                  "steps between comparisons of the step with its replay (default 0: never)")
      ->check(in_range(std::int64_t{0}, kMostCount));
  const auto on_nonfinite = [arguments](const std::string& name) {
    arguments->job.on_nonfinite = exec::on_nonfinite_from_name(name);
  };
  verb.add_option_function<std::string>("--on-nonfinite", on_nonfinite,
                                        "what to do about a loss or gradient that is not finite: "
                                        "stop, naming it (the default), or "
                                        "ignore it")
      ->check(CLI::IsMember({"stop", "ignore"}));
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
  return arguments;
}

void check_train_arguments(const CLI::App& verb, const TrainArguments& arguments) {
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

}  // namespace autodist::app
