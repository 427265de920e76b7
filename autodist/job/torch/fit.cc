#include "autodist/job/torch/fit.h"

#include <algorithm>
#include <numeric>

#include "autodist/base/error.h"
#include "autodist/job/torch/sample_order.h"

namespace autodist {
namespace {

void check(const char* what, std::int64_t value) {
  if (value < 1) fail(ErrorCode::kUsage, "fit: {}={}, 1 or more expected", what, value);
}

// The mean loss of an epoch's steps.
class Mean {
 public:
  explicit Mean(ir::Reduction reduction) : add_up_(reduction == ir::Reduction::kSum) {}
  void add(const StepSummary& step) {
    samples_ += step.samples;
    sum_ += add_up_ ? step.loss : step.loss * static_cast<double>(step.samples);
  }
  [[nodiscard]] double value() const { return sum_ / static_cast<double>(samples_); }

 private:
  bool add_up_;
  double sum_ = 0;
  std::int64_t samples_ = 0;
};

// One fit: what its steps have in common.
class Fit {
 public:
  Fit(Session& session, const SampleSource& samples, const FitOptions& options,
      const FitCallbacks& callbacks)
      : session_(session),
        samples_(samples),
        callbacks_(callbacks),
        order_(samples.size, options.batch, options.seed, options.shuffle) {}

  FitResult run(std::int64_t epochs) {
    const std::int64_t per_epoch = order_.steps_per_epoch();
    while (session_.step() < epochs * per_epoch && !stop_) {
      const std::int64_t epoch = session_.step() / per_epoch;
      if (callbacks_.on_epoch_begin) callbacks_.on_epoch_begin(epoch);
      run_epoch(epoch, (epoch + 1) * per_epoch);
    }
    return result_;
  }

 private:
  void run_epoch(std::int64_t epoch, std::int64_t end) {
    Mean mean(session_.graph().reduction);
    const auto took = [&](const StepSummary& summary) {
      if (summary.step <= last_step_) return;
      last_step_ = summary.step;
      mean.add(summary);
      stop_ |= summary.stop;
      if (callbacks_.on_step && !callbacks_.on_step(summary)) wish_to_stop_ = true;
    };
    while (session_.step() < end && !stop_) {
      session_.snapshot();
      session_.run_local(samples_.batch(order_.rows(
          session_.step(), [this](std::int64_t batch) { return session_.rows_of(batch); })));
      ++result_.steps;
      took(session_.summarise(wish_to_stop_));
    }
    for (const StepSummary& summary : session_.remaining_summaries()) took(summary);
    if (session_.step() < end) return;
    ++result_.epochs;
    result_.losses.push_back(mean.value());
    const bool go_on = !callbacks_.on_epoch_end || callbacks_.on_epoch_end(epoch, mean.value());
    // Whichever rank asked: all of them hear it before the next epoch.
    stop_ |= session_.sum_over_ranks({go_on && !wish_to_stop_ ? 0.0 : 1.0}).front() > 0;
  }

  Session& session_;
  const SampleSource& samples_;
  const FitCallbacks& callbacks_;
  job::SampleOrder order_;
  FitResult result_;
  std::int64_t last_step_ = -1;
  bool wish_to_stop_ = false;
  bool stop_ = false;
};

}  // namespace

FitResult fit(Session& session, const SampleSource& samples, const FitOptions& options,
              const FitCallbacks& callbacks) {
  check("epochs", options.epochs);
  check("batch", options.batch);
  check("samples", samples.size);
  return Fit(session, samples, options, callbacks).run(options.epochs);
}

std::vector<double> evaluate(
    Session& session, const SampleSource& samples, std::int64_t batch,
    const std::function<std::vector<double>(const std::vector<torch::Tensor>& outputs,
                                            const Batch& batch)>& sums) {
  check("batch", batch);
  check("samples", samples.size);
  session.prepare_evaluation();  // also by a rank without rows
  // Every rank that computes has all variables now, also where its steps are one stage of several.
  const program::Program& program = session.program();
  const auto [begin, end] = program::replica_rows(
      samples.size, *program.ranks[session.rank()].replica, program.replica_count());
  std::vector<double> total;
  for (std::int64_t first = begin; first < end; first += batch) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(std::min(batch, end - first)));
    std::iota(rows.begin(), rows.end(), first);
    const Batch part = samples.batch(rows);
    const std::vector<double> of_part = sums(session.evaluate(part), part);
    total.resize(std::max(total.size(), of_part.size()));
    for (std::size_t i = 0; i < of_part.size(); ++i) total[i] += of_part[i];
  }
  return session.sum_over_ranks(total);
}

}  // namespace autodist
