// Values that a step was asked to keep, while it runs.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "autodist/exec/replay.h"
#include "autodist/exec/runner.h"
#include "autodist/ir/names.h"

namespace autodist::exec {

class WatchedValues {
 public:
  // From the next step on, until take().
  void watch(std::vector<std::string> names);
  std::vector<Watched> take();

  // Before every micro-batch, for its graph: looking a name up goes through all ops.
  void find(const ir::Graph& graph);
  // Nothing was kept of the micro-batch: it is run again.
  void abandon() { kept_ = before_; }
  [[nodiscard]] bool any() const { return !found_.empty(); }
  // Behind an op, and of a variable's gradient.
  void keep_values(const Replay& replay, ir::OpId op);
  void keep_gradient(ir::VariableId variable, const torch::Tensor& gradient);

 private:
  void keep(Watched value);

  std::vector<std::string> names_;
  std::vector<std::pair<std::string, ir::WatchedValue>> found_;  // those that this step has
  std::vector<Watched> kept_;
  std::vector<Watched> before_;  // what kept_ was before the micro-batch
};

}  // namespace autodist::exec
