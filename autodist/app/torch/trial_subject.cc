#include "autodist/app/torch/trial_subject.h"

#include <utility>

#include "autodist/base/clock.h"
#include "autodist/capture/capture.h"
#include "autodist/ir/optimizer.h"

namespace autodist::app {

TrialSubject::TrialSubject(job::JoinedJob& job, const ModelRequest& model,
                           const std::string& optimizer)
    : source_(open_model(model, "synthetic")), seed_(model.seed), encrypted_(job.encrypts()) {
  capture::Options options;
  options.seed = seed_;
  options.cost_repetitions = job.is_chief() ? 3 : 0;
  capture::CapturedStep captured = capture::capture(source_.step, options);
  ir::declare_updates(captured.graph, ir::parse_optimizer(optimizer));
  graph_ = std::make_shared<const ir::Graph>(std::move(captured.graph));
  bindings_ = capture::bind(*graph_, source_.step, torch::kCPU, captured.tensors.constants);
  if (job.cluster().nodes.size() > 1) {
    links_ = comm::probe_links(job.transport(), job.clock(), ProcessCpuClock(),
                               job.options().join_limit);
  }
}

job::TrialStep TrialSubject::step(passes::Options passes) const {
  passes.encrypted = encrypted_;
  return {graph_, &source_.step, &bindings_, passes, seed_};
}

}  // namespace autodist::app
