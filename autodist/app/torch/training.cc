#include "autodist/app/torch/training.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <new>
#include <numeric>
#include <regex>

#include "autodist/app/device_failure.h"
#include "autodist/app/metrics.h"
#include "autodist/app/this_process.h"
#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/base/statistics.h"
#include "autodist/base/text.h"
#include "autodist/capture/device_refusal.h"
#include "autodist/job/job_memory.h"
#include "autodist/job/torch/sample_order.h"

namespace autodist::app {
namespace {

constexpr std::int64_t kWarmupSteps = 5;  // not counted in the throughput
constexpr Seconds kSaveAfter{600};        // a checkpoint, also between those that are asked for

// What the steps of one run add up to.
class Tally {
 public:
  void add(const StepReport& report, std::int64_t samples, Seconds wall) {
    if (steps_++ < kWarmupSteps) return;
    samples_ += samples;
    wall_ += wall;
    computing_ += report.total - report.waiting;
    waiting_ += report.waiting;
    rates_.push_back(static_cast<double>(samples) / wall.value);
  }

  void write(TrainingResult& result) const {
    if (rates_.empty()) return;
    const double steps = static_cast<double>(rates_.size());
    result.average_samples_per_second = static_cast<double>(samples_) / wall_.value;
    result.p10_samples_per_second = quantile(rates_, 0.1);
    result.p90_samples_per_second = quantile(rates_, 0.9);
    result.computing = computing_ * (1 / steps);
    result.waiting = waiting_ * (1 / steps);
  }

 private:
  std::int64_t steps_ = 0;
  std::int64_t samples_ = 0;
  Seconds wall_;
  Seconds computing_;
  Seconds waiting_;
  std::vector<double> rates_;
};

using Logs = std::vector<std::unique_ptr<MetricsLog>>;

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Logs open_logs(const TrainingOptions& options, const Session& session) {
  Logs logs;
  if (!session.is_chief()) return logs;
  if (!options.log.empty()) logs.push_back(open_lines("--log", options.log, logged_names()));
  if (!options.tensorboard.empty()) {
    logs.push_back(open_tensorboard("--tensorboard", options.tensorboard, unix_seconds()));
  }
  return logs;
}

void write(Logs& logs, const Progress& progress, const TrainingOptions& options) {
  StepMetrics metrics{progress.step, progress.ended, {}, progress.plan};
  const std::vector<double> values = logged_values(progress);
  for (std::size_t i = 0; i < values.size(); ++i) {
    metrics.values.emplace_back(logged_names()[i], values[i]);
  }
  for (auto& log : logs) {
    const bool known = !log->failure().empty();
    const bool written = log->write(metrics);
    if (written || known || !options.warn) continue;
    options.warn(fmt::format("{}; step {} is missing in it, the training goes on", log->failure(),
                             progress.step));
  }
}

// Which of these samples has the label that libtorch refuses: "sample 47: "; empty where another
// thing is refused.
std::string refused_sample(const std::string& refusal, const torch::Tensor& labels,
                           const std::vector<std::int64_t>& samples) {
  std::smatch found;
  const bool is_label =
      std::regex_search(refusal, found, std::regex("Target (-?[0-9]+) is out of bounds"));
  if (!is_label || !torch::isIntegralType(labels.scalar_type(), /*includeBool=*/false)) return "";
  const torch::Tensor rows = labels.eq(std::int64_t{std::stol(found[1])}).nonzero();
  const auto most = static_cast<std::int64_t>(samples.size());
  if (rows.size(0) == 0 || rows[0][0].item<std::int64_t>() >= most) return "";
  return fmt::format("sample {}: ",
                     samples[static_cast<std::size_t>(rows[0][0].item<std::int64_t>())]);
}

// Of a job whose earlier steps had enough: another start may have it again.
[[noreturn]] void lose_memory(const Session& session, const std::string& what) {
  fail(ErrorCode::kPeersLost, "train: step {}: no memory left, as there was for steps before: {}",
       session.step(), first_line(what));
}

// `has_run`: this process has done steps before.
void run_step(Session& session, const Batch& batch, const std::vector<std::int64_t>& samples,
              bool has_run) {
  try {
    session.run(batch);
  } catch (const std::bad_alloc& error) {
    if (has_run) lose_memory(session, error.what());
    throw;
  } catch (const Error& error) {
    const auto* refusal = dynamic_cast<const capture::DeviceRefusal*>(&error);
    if (has_run && refusal != nullptr && refusal->lacks_memory()) {
      lose_memory(session, refusal->what());
    }
    throw;
  } catch (const c10::Error& error) {
    const std::string refusal = error.what_without_backtrace();
    if (has_run && refused_by(refusal) == Refused::kMemory) lose_memory(session, refusal);
    fail_of_device(fmt::format("train: step {}", session.step()), refusal);
    fail(ErrorCode::kUsage,
         "train: step {}: {}libtorch refuses what model and data ask for: {}. Mend that sample, "
         "or the model's sizes.",
         session.step(), refused_sample(refusal, batch.back(), samples), first_line(refusal));
  }
}

// Checkpoints: where one cannot be written, the next one is tried.
class Saver {
 public:
  Saver(Session& session, const TrainingOptions& options) : session_(session), options_(options) {}

  // By all ranks alike. While steps go on, a thread of the chief writes it.
  void save(bool last) {
    if (options_.save_to.empty()) return;
    missing_.clear();
    try {
      session_.save(options_.save_to, last ? SaveUntil::kWritten : SaveUntil::kCopied);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCheckpoint) throw;
      missing_ = fmt::format("no checkpoint of step {}: {}", session_.step(), error.what());
      if (last || !session_.is_chief() || !options_.warn) return;
      options_.warn(without_dot(missing_) + "; the training goes on");
    }
  }
  // Of the last one.
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  Session& session_;
  const TrainingOptions& options_;
  std::string missing_;
};

// By all ranks. Known before the last checkpoint is written: whoever goes on from that has nothing
// left to do.
std::optional<double> last_loss(Session& session, bool has_run) {
  std::optional<double> loss;
  if (has_run) loss = session.last_summary().loss;
  auto memory = session.is_chief() ? job::JobMemory::inherited(process_environment())
                                   : std::optional<job::JobMemory>();
  if (!memory) return loss;
  if (!loss) return memory->last_loss(session.step());
  memory->note_last_loss(session.step(), *loss);
  return loss;
}

}  // namespace

double samples_per_second(const Progress& progress) {
  return static_cast<double>(progress.samples) / progress.wall.value;
}

const std::vector<std::string>& logged_names() {
  static const std::vector<std::string> names{
      "loss",           "step_seconds", "samples", "samples_per_second", "computing_seconds",
      "waiting_seconds"};
  return names;
}

std::vector<double> logged_values(const Progress& progress) {
  return {progress.loss,
          progress.wall.value,
          static_cast<double>(progress.samples),
          samples_per_second(progress),
          progress.computing.value,
          progress.waiting.value};
}

TrainingResult train(Session& session, const models::Dataset& data, const TrainingOptions& options,
                     const std::atomic<bool>& interrupt,
                     const std::function<void(const Progress&)>& show) {
  const SteadyClock clock;
  job::SampleOrder order(data.size(), options.batch, options.seed);
  Tally tally;
  Logs logs = open_logs(options, session);
  TrainingResult result;
  Saver saver(session, options);
  Seconds saved_at = clock.now();
  std::deque<Progress> untold;  // steps whose loss is not known yet
  const auto tell = [&](const StepSummary& summary) {
    if (untold.empty() || untold.front().step != summary.step) return;  // of a step before these
    Progress progress = untold.front();
    untold.pop_front();
    progress.loss = summary.loss;
    write(logs, progress, options);
    show(progress);
  };
  Seconds ended = clock.now();
  while (session.step() < options.steps && !result.interrupted) {
    session.snapshot();
    const std::vector<std::int64_t> rows = order.rows(session.step());
    const auto samples = static_cast<std::int64_t>(rows.size());
    run_step(session, data.batch(rows), rows, result.steps > 0);
    const StepReport report = session.last();
    const bool due = options.save_every > 0 && session.step() % options.save_every == 0;
    // To stop and to save by the clock is decided alike by all ranks, one step after one asked for
    // it.
    const bool overdue = session.is_chief() && clock.now() - saved_at > kSaveAfter;
    // Ranks that only serve have no part in it.
    const bool stop = interrupt.load() || (session.is_chief() && session.who_wishes_for_the_end());
    const StepSummary summary = session.summarise(stop, overdue);
    result.interrupted = summary.stop;
    const bool last = result.interrupted || session.step() >= options.steps;
    if ((due || summary.save) && !last) {
      saver.save(/*last=*/false);
      saved_at = clock.now();
    }
    const Seconds wall = clock.now() - ended;
    ended += wall;
    tally.add(report, samples, wall);
    ++result.steps;
    untold.push_back({report.step, unix_seconds(), 0, wall, samples, report.total - report.waiting,
                      report.waiting, report.plan});
    if (summary.step >= 0) tell(summary);
  }
  for (const StepSummary& summary : session.remaining_summaries()) tell(summary);
  result.loss = last_loss(session, result.steps > 0);
  saver.save(/*last=*/true);
  result.saved = saver.missing().empty();
  if (!result.saved) result.missing.push_back(saver.missing());
  for (const auto& log : logs) {
    if (!log->failure().empty()) result.missing.push_back(log->failure());
  }
  tally.write(result);
  return result;
}

double accuracy_of(Session& session, const models::Dataset& data, std::int64_t batch) {
  std::int64_t right = 0;
  for (std::int64_t begin = 0; begin < data.size(); begin += batch) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(std::min(batch, data.size() - begin)));
    std::iota(rows.begin(), rows.end(), begin);
    const Batch samples = data.batch(rows);
    const std::vector<torch::Tensor> outputs = session.evaluate(samples);
    right += outputs.front().argmax(-1).eq(samples.back()).sum().item<std::int64_t>();
  }
  return static_cast<double>(right) / static_cast<double>(data.size());
}

}  // namespace autodist::app
