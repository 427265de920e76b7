// `autodist bench sync-rank`: one rank of a synchronisation benchmark, started by
// tools/bench-sync on every host; prints what this rank measured as one JSON object.
//
// Three settings of one engine: whole variables first in, first out with a barrier after every
// step; slices first in, first out; slices by need. They differ in the Strategy alone, but for the
// barrier.

#include <ATen/core/dispatch/Dispatcher.h>
#include <malloc.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "autodist/app/torch/model_source.h"
#include "autodist/app/torch/session.h"
#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/studies/torch/bench.h"

namespace autodist::studies {
namespace {

using Json = nlohmann::ordered_json;

// Compute that is imitated: it takes its time and no core. benchmarks/models.py puts it after
// layers.
torch::Tensor pause(const torch::Tensor& x, double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  return x.clone();
}

torch::Tensor call_pause(const torch::Tensor& x, double seconds) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("autodist_bench::pause", "")
                             .typed<torch::Tensor(const torch::Tensor&, double, double)>();
  return op.call(x, seconds, 0);
}

// The backward pass of a layer takes about twice as long as the forward pass.
struct Pause : torch::autograd::Function<Pause> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               double forward, double backward) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->saved_data["seconds"] = backward;
    return call_pause(x, forward);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {call_pause(gradients[0], context->saved_data["seconds"].toDouble()), {}, {}};
  }
};

TORCH_LIBRARY(autodist_bench, m) {
  m.def("pause(Tensor x, float forward, float backward) -> Tensor");
}
TORCH_LIBRARY_IMPL(autodist_bench, CPU, m) {
  m.impl("pause", [](const torch::Tensor& x, double forward, double /*backward*/) {
    return pause(x, forward);
  });
}
TORCH_LIBRARY_IMPL(autodist_bench, Autograd, m) {
  m.impl("pause", [](const torch::Tensor& x, double forward, double backward) {
    return Pause::apply(x, forward, backward);
  });
}

bool by_need(const std::string& setting) { return setting == "priority"; }
bool sliced(const std::string& setting) { return setting != "fifo-barrier"; }
bool has_barrier(const std::string& setting) { return setting == "fifo-barrier"; }

// `base`, with whatever the setting takes away.
search::Builder builder_of(const SyncArguments& arguments) {
  return {"bench",
          "a benchmark's setting",
          {},
          [arguments](const ir::Graph& graph, const cluster::Cluster& cluster,
                      const search::BuilderOptions&) {
            constexpr Bytes kWhole{std::int64_t{1} << 28};
            strategy::Strategy strategy = search::build_strategy(arguments.builder, graph, cluster);
            if (arguments.slice_bytes > 0) strategy.slice_bytes = Bytes{arguments.slice_bytes};
            if (arguments.window_bytes > 0) strategy.window_bytes = Bytes{arguments.window_bytes};
            if (!sliced(arguments.setting)) strategy.slice_bytes = kWhole;
            if (by_need(arguments.setting)) return strategy;
            for (strategy::NodeConfig& node : strategy.nodes) node.needed = Seconds{0};
            return strategy;
          }};
}

// Of this process: memory that no file backs, and the most that it had since forget_peak().
struct Resident {
  std::int64_t anonymous = 0;
  std::int64_t peak = 0;
};

Resident resident() {
  std::map<std::string, std::int64_t> bytes;
  std::ifstream status("/proc/self/status");  // "VmHWM:     12345 kB"
  for (std::string line; std::getline(status, line);) {
    const std::size_t colon = line.find(':');
    constexpr std::int64_t kKibibyte = 1024;
    bytes[line.substr(0, colon)] = std::atoll(line.c_str() + colon + 1) * kKibibyte;
  }
  return {bytes["RssAnon"], bytes["VmHWM"] - bytes["RssFile"]};
}

void forget_peak() {
  ::malloc_trim(0);  // what planning freed is not a step's
  std::ofstream("/proc/self/clear_refs") << "5";
}

std::int64_t parameter_count(const TrainingStep& step) {
  std::int64_t count = 0;
  for (const NamedTensor& each : step.parameters) count += each.tensor.numel();
  return count;
}

double checksum_of(const TrainingStep& step) {
  double sum = 0;
  for (const NamedTensor& each : step.parameters) {
    sum += each.tensor.detach().to(torch::kFloat64).abs().sum().item<double>();
  }
  return sum;
}

}  // namespace

int bench_sync_rank(const SyncArguments& arguments, app::Console& console) {
  torch::set_num_threads(1);
  const Resident before = resident();
  const app::ModelSource source = app::open_model(model_request(arguments), "synthetic");
  const TrainingStep step = source.step;  // shares the tensors

  JobOptions options;
  options.builders = {builder_of(arguments)};
  options.builder = "bench";
  options.encryption = arguments.encryption;
  options.trace = !arguments.trace.empty();
  options.trace_steps = 0;
  AutoDist autodist(arguments.cluster, options);
  Session session = autodist.distribute(step, ir::parse_optimizer(arguments.optimizer));
  const SteadyClock clock;
  const ProcessCpuClock cpu_clock;
  std::vector<double> seconds;
  std::vector<double> waiting;
  Seconds cpu_before;
  std::uint64_t sent_before = 0;
  Seconds start;
  for (std::int64_t i = 0; i < arguments.warmup + arguments.steps; ++i) {
    if (i == arguments.warmup) {
      cpu_before = cpu_clock.now();
      sent_before = session.bytes_sent();
      session.take_trace();
      forget_peak();
    }
    const Seconds begin = clock.now();
    if (i == arguments.warmup) start = begin;
    session.run_local(step.example);
    if (has_barrier(arguments.setting)) session.synchronize();
    if (i < arguments.warmup) continue;
    seconds.push_back((clock.now() - begin).value);
    waiting.push_back(session.last().waiting.value);
  }
  const double cpu = (cpu_clock.now() - cpu_before).value;
  const std::uint64_t sent = session.bytes_sent() - sent_before;
  const Seconds wall = clock.now() - start;
  const std::int64_t memory = resident().peak - before.anonymous;
  session.synchronize();
  if (!arguments.trace.empty()) {
    const program::Trace trace = session.gather_trace();
    if (session.is_chief()) write_file_atomically(arguments.trace, program::to_chrome_json(trace));
  }
  const double checksum = checksum_of(step);
  session.finish();
  const auto steps = static_cast<double>(arguments.steps);
  console.out << Json{{"rank", session.rank()},
                      {"step_seconds", seconds},
                      {"waiting_seconds", waiting},
                      {"mean_step_seconds", wall.value / steps},
                      {"cpu_seconds_per_step", cpu / steps},
                      {"bytes_sent_per_step", static_cast<double>(sent) / steps},
                      {"memory_bytes", memory},
                      {"parameters", parameter_count(step)},
                      {"checksum", checksum}}
                     .dump()
              << std::endl;
  return 0;
}

}  // namespace autodist::studies
