// `autodist bench capture`: replayed against eager steps, and what capturing costs.

#include <sys/resource.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/base/clock.h"
#include "autodist/base/statistics.h"
#include "autodist/capture/bindings.h"
#include "autodist/capture/capture.h"
#include "autodist/exec/replay.h"
#include "autodist/exec/tensor_memory.h"
#include "autodist/models/catalogue.h"
#include "autodist/studies/torch/bench.h"

namespace autodist::studies {
namespace {

using Json = nlohmann::ordered_json;

// Forward and backward with autograd, gradients dropped.
void eager_step(const TrainingStep& step) {
  for (const NamedTensor& each : step.parameters) each.tensor.mutable_grad() = torch::Tensor();
  step.loss(step.example).backward();
}

class Replayed {
 public:
  explicit Replayed(const TrainingStep& step) : example_(step.example) {
    capture::Options options;
    options.cost_repetitions = 0;
    capture::CapturedStep captured = capture::capture(step, options);
    graph_ = std::make_shared<const ir::Graph>(std::move(captured.graph));
    replay_ = std::make_unique<exec::Replay>(
        graph_, capture::bind(*graph_, step, torch::kCPU, captured.tensors.constants), torch::kCPU);
  }

  void run() {
    const capture::BelowAutograd below_autograd;
    replay_->begin(example_, 1);
    for (std::size_t op = 0; op < graph_->ops.size(); ++op) replay_->run(ir::OpId(op));
    for (std::size_t i = 0; i < graph_->variables.size(); ++i) {
      if (graph_->variables[i].gradient) replay_->take_gradient(ir::VariableId(i));
    }
    replay_->end();
  }

 private:
  Batch example_;
  std::shared_ptr<const ir::Graph> graph_;
  std::unique_ptr<exec::Replay> replay_;
};

template <typename Action>
double seconds_of(const Action& action) {
  const SteadyClock clock;
  const Seconds start = clock.now();
  action();
  return (clock.now() - start).value;
}

// What a capture costs in eager steps: median of neighbouring runs.
double capture_over_eager(const TrainingStep& step, int repetitions) {
  const auto capture = [&] {
    capture::Options options;
    options.cost_repetitions = 0;
    capture::capture(step, options);
  };
  std::vector<double> ratios;
  for (int i = 0; i < repetitions; ++i) {
    const double before = seconds_of([&] { eager_step(step); });
    ratios.push_back(seconds_of(capture) / before);
  }
  return median_of(ratios);
}

// Of a published size, at a batch that people train with.
double capture_of_full_size(const std::string& model, bool quick) {
  models::ModelOptions options;
  options.batch = 16;
  const TrainingStep step = models::make_model(model, options);
  eager_step(step);
  return capture_over_eager(step, quick ? 1 : 3);
}

// Median of the ratios of neighbouring runs.
double replay_over_eager(const TrainingStep& step, int repetitions) {
  const auto eager = [&] { eager_step(step); };
  for (int i = 0; i < 3; ++i) eager();
  Replayed replayed(step);
  const auto replay = [&] { replayed.run(); };
  for (int i = 0; i < 3; ++i) replay();
  std::vector<double> ratios;
  for (int i = 0; i < repetitions; ++i) {
    const double before = seconds_of(eager);
    ratios.push_back(seconds_of(replay) / before);
  }
  return median_of(ratios);
}

double peak_bytes_of_this_process() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

// The times of replays, eager steps and captures, in a process of its own and with memory that is
// kept as a rank keeps it: else what earlier models have left of the heap decides which of them
// asks the kernel for pages.
double time_probe(const BenchArguments& arguments) {
  exec::keep_freed_memory();
  const TrainingStep step = models::make_model(arguments.probe_model, {});
  if (arguments.probe == "replay") return replay_over_eager(step, arguments.quick ? 40 : 200);
  for (int i = 0; i < 3; ++i) eager_step(step);
  return capture_over_eager(step, arguments.quick ? 3 : 7);
}

// Peak memory of one step, plain or captured, in a process of its own. The batch is the one of the
// example, as a capture of a full-size model for planning is made.
double memory_probe(const BenchArguments& arguments) {
  models::ModelOptions options;
  options.batch = 1;
  const TrainingStep step = models::make_model(arguments.probe_model, options);
  if (arguments.probe == "plain") {
    eager_step(step);
  } else {
    capture::Options capture_options;
    capture_options.symbolic_batch = false;
    capture_options.cost_repetitions = 0;
    capture::capture(step, capture_options);
  }
  return peak_bytes_of_this_process();
}

double memory_ratio(const BenchArguments& arguments, const std::string& model) {
  return run_probe(arguments, "capture", model) / run_probe(arguments, "plain", model);
}

}  // namespace

int bench_capture(const BenchArguments& arguments, app::Console& console) {
  torch::set_num_threads(1);
  if (!arguments.probe.empty()) {
    const bool memory = arguments.probe == "plain" || arguments.probe == "capture";
    console.out << fmt::format("{}\n", memory ? memory_probe(arguments) : time_probe(arguments));
    return 0;
  }
  Json raw = Json::object();
  double log_sum = 0;
  double worst = 0;
  double worst_capture = 0;
  int count = 0;
  for (const models::ModelInfo& model : models::catalogue()) {
    if (!model.small) continue;
    const double replay = run_probe(arguments, "replay", model.name);
    const double capture = run_probe(arguments, "cost", model.name);
    raw[model.name] = {{"replay_over_eager", replay}, {"capture_over_eager_step", capture}};
    if (!console.json) {
      console.out << fmt::format("{:<20} replay/eager {:.3f}   capture/eager step {:.2f}\n",
                                 model.name, replay, capture)
                  << std::flush;
    }
    log_sum += std::log(replay);
    worst = std::max(worst, replay);
    worst_capture = std::max(worst_capture, capture);
    ++count;
  }
  double memory = 0;
  double worst_full = 0;
  for (const char* model : {"resnet50", "bert-base"}) {
    const double ratio = memory_ratio(arguments, model);
    const double cost = capture_of_full_size(model, arguments.quick);
    raw[model] = {{"capture_memory_over_step", ratio}, {"capture_over_eager_step", cost}};
    if (!console.json) {
      console.out << fmt::format("{:<20} capture memory/step {:.3f}   capture/eager step {:.2f}\n",
                                 model, ratio, cost)
                  << std::flush;
    }
    memory = std::max(memory, ratio);
    worst_full = std::max(worst_full, cost);
  }
  const Json figures{{"replay_over_eager_geomean", std::exp(log_sum / count)},
                     {"replay_over_eager_max", worst},
                     {"capture_over_eager_step", worst_full},
                     {"capture_over_eager_step_small", worst_capture},
                     {"capture_memory_over_step", memory}};
  return show_figures(figures, raw, console);
}

}  // namespace autodist::studies
