#include "autodist/app/torch/train_words.h"

#include <fmt/ranges.h>

#include "autodist/ir/text.h"
#include "autodist/planning/planning.h"
#include "autodist/report/plan.h"

namespace autodist::app {
namespace {

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

}  // namespace

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

void show_progress(Console& console, const Progress& progress, std::int64_t steps) {
  if (console.json) return;
  const std::string last = std::to_string(steps);
  const std::vector<std::string> parts{
      fmt::format("step {:>{}}/{}", progress.step + 1, last.size(), last),
      fmt::format("loss {:.5f}", progress.loss),
      fmt::format("{:>6.0f} samples/s", samples_per_second(progress)),
      fmt::format("compute {:>8}", to_string(progress.computing)),
      fmt::format("wait {:>8}", to_string(progress.waiting))};
  if (console.terminal) {
    console.rewrite(parts);
  } else if (progress.step % 10 == 0) {
    console.err << fmt::format("{}\n", fmt::join(parts, "  ")) << std::flush;  // in one write
  }
}

nlohmann::ordered_json result_json(const TrainArguments& arguments, const Session& session,
                                   const ModelSource& source, const TrainingResult& result) {
  const auto measured = [&](double figure) {  // null where all steps were warm-up
    return result.average_samples_per_second > 0 ? nlohmann::ordered_json(figure)
                                                 : nlohmann::ordered_json();
  };
  nlohmann::ordered_json json{
      {"model", arguments.model.name},
      {"data", source.data_description},
      {"cluster", arguments.plan.cluster},
      {"ranks", session.size()},
      {"strategy_id", session.strategy().id},
      {"program_digest", to_string(program::digest_of(session.program()))},
      {"reproducible", session.program().reproducible()},
      {"batch_samples", arguments.training.batch},
      {"precision", ir::precision_of(session.graph())},
      {"sequence_length", ir::sequence_length(session.graph())},
      {"steps", result.steps},
      {"step", session.step()},
      {"loss", result.loss ? nlohmann::ordered_json(*result.loss) : nlohmann::ordered_json()},
      {"average_samples_per_second", measured(result.average_samples_per_second)},
      {"p10_samples_per_second", measured(result.p10_samples_per_second)},
      {"p90_samples_per_second", measured(result.p90_samples_per_second)},
      {"computing_seconds_per_step", measured(result.computing.value)},
      {"waiting_seconds_per_step", measured(result.waiting.value)},
      {"interrupted", result.interrupted}};
  if (result.held_out_accuracy) json["held_out_accuracy"] = *result.held_out_accuracy;
  if (result.loss_scale) {
    json["loss_scale"] = result.loss_scale->scale;
    json["skipped_steps"] = result.loss_scale->skipped;
  }
  return json;
}

void print_end(Console& console, const TrainArguments& arguments, const Session& session,
               const ModelSource& source, const TrainingResult& result) {
  if (console.terminal) console.err << "\n";
  if (arguments.plan_alone) {
    console.out << report::plan_table(session.strategy(), session.program(),
                                      arguments.plan.all ? 0 : 20, console.columns);
    if (!arguments.plan.output.empty()) {
      console.out << "\nWritten to " << arguments.plan.output;
    }
  } else if (!result.loss) {
    console.out << fmt::format(
        "nothing to train: it is at step {} already, and --steps is {}. Give it more.",
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
  if (result.loss_scale) {
    console.out << fmt::format("loss scale {}, {} steps skipped\n", result.loss_scale->scale,
                               result.loss_scale->skipped);
  }
  if (result.held_out_accuracy) {
    console.out << fmt::format("accuracy on {} held-out samples: {:.2f} %\n",
                               source.held_out->size(), 100 * *result.held_out_accuracy);
  }
  if (!arguments.plan.report.empty()) console.out << "report: " << arguments.plan.report << "\n";
  if (!arguments.training.save_to.empty() && result.saved) {
    console.out << "checkpoint: " << arguments.training.save_to << "/step-" << session.step()
                << "\n";
  }
}

}  // namespace autodist::app
