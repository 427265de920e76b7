// Strategies run for real, one after another, in a job that has met: the step is captured once, the
// ranks stay, and only Programs change.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autodist/capture/bindings.h"
#include "autodist/comm/collectives.h"
#include "autodist/job/torch/joined_job.h"
#include "autodist/passes/pipeline.h"
#include "autodist/planning/runtimes.h"
#include "autodist/strategy/strategy.h"

namespace autodist::job {

// What runs. All outlives the trials.
struct TrialStep {
  std::shared_ptr<const ir::Graph> graph;
  const TrainingStep* step = nullptr;  // as it was captured; its example is every step's batch
  const capture::Bindings* bindings = nullptr;
  passes::Options passes;
  std::uint64_t seed = 0;
};

struct TrialLengths {
  std::int64_t warmup = 10;  // AutoSync's
  std::int64_t steps = 40;
  bool barrier = false;  // a step begins when all variables are there, as in systems without gates
};

struct Trial {
  strategy::Strategy strategy;
  planning::Runtimes runtimes;  // of the counted steps, at this rank
  std::string refused;          // why the passes cannot carry it out; the same at every rank

  // The median of the counted steps: other work on the machine spoils some of them.
  [[nodiscard]] Seconds step() const { return runtimes.step(); }
};

class Trials {
 public:
  // By all ranks at the same point, while nobody else uses the job's transport. Sends the chief's
  // values to every rank; the destructor puts them back where trials have changed them.
  Trials(JoinedJob& job, TrialStep step);
  ~Trials();
  Trials(const Trials&) = delete;
  Trials& operator=(const Trials&) = delete;

  // Runs the strategies in order; `strategies` is the chief's, others pass nothing. `stop` is asked
  // at the chief before each, `done` told there after each. No trial ends before all ranks have its
  // last version, nor begins to count before they have its first. Returns those that ran. Throws as
  // Runner does.
  std::vector<Trial> run(const std::vector<strategy::Strategy>& strategies,
                         const TrialLengths& lengths, const std::function<bool()>& stop = {},
                         const std::function<void(const Trial&)>& done = {});

  // Of exchanges, used so far: whoever comes after has a larger one.
  [[nodiscard]] std::uint32_t generations() const { return generations_; }

 private:
  void put_back() const;
  Trial run_one(strategy::Strategy strategy, const TrialLengths& lengths);

  JoinedJob& job_;
  TrialStep step_;
  std::uint32_t generations_ = 0;
  std::unique_ptr<comm::Collectives> collectives_;
  std::vector<torch::Tensor> before_;  // of variables, then of buffers
};

}  // namespace autodist::job
