#include "autodist/job/torch/trials.h"

#include <utility>

#include "autodist/base/error.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/c10d/make_collectives.h"
#include "autodist/exec/runner.h"
#include "autodist/exec/start.h"

namespace autodist::job {
namespace {

std::vector<torch::Tensor> changed_by_training(const capture::Bindings& bindings) {
  std::vector<torch::Tensor> tensors = bindings.variables;
  tensors.insert(tensors.end(), bindings.buffers.begin(), bindings.buffers.end());
  return tensors;
}

// The micro-batches of `rank`, which computes: the example over and over, or, where parts of a
// batch differ, as many samples as it should have, dealt out as StepRun does.
std::vector<Batch> batches_of(const TrialStep& step, const program::Program& program,
                              program::Rank rank) {
  const Batch& example = step.step->example;
  const auto count = static_cast<std::uint32_t>(step.passes.micro_batches);
  if (program.batch_shares.empty()) {
    return std::vector<Batch>(count, example);
  }
  const auto [begin, end] = program::part_rows(
      program, step.graph->example_batch * count * program.batch_parts(), program.batch_part(rank));
  std::vector<Batch> batches;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto [first, last] = program::replica_rows(end - begin, i, count);
    if (first == last && i > 0) break;
    const torch::Tensor rows = torch::arange(last - first);
    Batch batch;
    for (std::size_t k = 0; k < example.size(); ++k) {
      const bool whole = !step.graph->inputs[k].batched;
      batch.push_back(whole ? example[k]
                            : example[k].index_select(0, rows.remainder(example[k].size(0))));
    }
    batches.push_back(std::move(batch));
  }
  return batches;
}

}  // namespace

Trials::Trials(JoinedJob& job, TrialStep step) : job_(job), step_(std::move(step)) {
  step_.passes.verify_each = false;
  exec::broadcast_initial(job_.transport(), *step_.graph, *step_.bindings,
                          job_.options().join_limit);
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& each : changed_by_training(*step_.bindings)) {
    before_.push_back(each.clone());
  }
}

Trials::~Trials() { put_back(); }

void Trials::put_back() const {
  const torch::NoGradGuard no_grad;
  const std::vector<torch::Tensor> now = changed_by_training(*step_.bindings);
  for (std::size_t i = 0; i < now.size(); ++i) now[i].copy_(before_[i]);
}

std::vector<Trial> Trials::run(const std::vector<strategy::Strategy>& strategies,
                               const TrialLengths& lengths, const std::function<bool()>& stop,
                               const std::function<void(const Trial&)>& done) {
  std::vector<Trial> trials;
  for (std::size_t i = 0;; ++i) {
    // No strategy, no trial: an empty document ends them everywhere.
    std::string document;
    if (job_.is_chief() && i < strategies.size() && !(stop && stop())) {
      document = strategy::serialize(strategies[i]);
    }
    document = job_.of_chief("trial", document);
    if (document.empty()) return trials;
    trials.push_back(run_one(strategy::deserialize(document, "the chief's trial"), lengths));
    if (job_.is_chief() && done) done(trials.back());
  }
}

Trial Trials::run_one(strategy::Strategy strategy, const TrialLengths& lengths) {
  Trial trial;
  trial.strategy = std::move(strategy);
  std::shared_ptr<const program::Program> program;
  try {
    program = std::make_shared<const program::Program>(
        passes::rewrite(step_.graph, trial.strategy, job_.cluster(), step_.passes, "trial"));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInfeasible) throw;
    trial.refused = error.what();
    return trial;
  }
  const Seconds limit = job_.options().join_limit;
  comm::agree(job_.transport(), "trial", program::digest_of(*program), trial.strategy.id, limit);
  if (!program->collectives.empty() && !collectives_) {
    const torch::Device device = capture::device_of(*step_.graph, *step_.bindings);
    collectives_ =
        comm::make_collectives(job_.transport(), job_.own_address(), device.str(), limit);
  }
  exec::RunnerOptions options = job_.runner_options(step_.seed, ++generations_);
  options.passes_guards = true;
  options.trace = false;                              // nobody gathers what a trial did
  options.on_nonfinite = exec::OnNonFinite::kIgnore;  // the same batch over and over may diverge
  put_back();                                         // all trials compute the same
  exec::Runner runner(program, program::Rank(job_.rank()), *step_.bindings,
                      {&job_.transport(), collectives_.get(), &job_.clock()}, options);
  const program::Rank self(job_.rank());
  if (!program->computes(self)) {
    runner.serve([this] { job_.look_around(); });
    runner.finish();
    return trial;
  }
  const std::vector<Batch> batches = batches_of(step_, *program, self);
  const auto step = [&] {
    job_.look_around();
    for (std::size_t i = 0; i + 1 < batches.size(); ++i) runner.accumulate(batches[i]);
    runner.step(batches.back());
    if (lengths.barrier) runner.settle();
  };
  for (std::int64_t i = 0; i < lengths.warmup; ++i) step();
  runner.synchronize();
  Seconds begin = job_.clock().now();
  const Seconds start = begin;
  for (std::int64_t i = 1; i <= lengths.steps; ++i) {
    step();
    if (i == lengths.steps) runner.synchronize();
    const Seconds end = job_.clock().now();
    trial.runtimes.steps.push_back(end - begin);
    begin = end;
  }
  trial.runtimes.average = (begin - start) * (1.0 / static_cast<double>(lengths.steps));
  runner.finish();
  return trial;
}

}  // namespace autodist::job
