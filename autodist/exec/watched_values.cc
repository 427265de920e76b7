#include "autodist/exec/watched_values.h"

#include <algorithm>

namespace autodist::exec {

void WatchedValues::watch(std::vector<std::string> names) {
  names_ = std::move(names);
  kept_.clear();
}

std::vector<Watched> WatchedValues::take() {
  names_.clear();
  return std::exchange(kept_, {});
}

void WatchedValues::find(const ir::Graph& graph) {
  found_.clear();
  before_ = kept_;
  for (const std::string& name : names_) {
    if (const auto value = ir::find_watched(graph, name)) found_.emplace_back(name, *value);
  }
}

void WatchedValues::keep_values(const Replay& replay, ir::OpId op) {
  for (const auto& [name, found] : found_) {
    if (found.gradient || found.after != op) continue;
    keep({name, replay.tensor(found.value).clone(), false, found.batched});
  }
}

void WatchedValues::keep_gradient(ir::VariableId variable, const torch::Tensor& gradient) {
  for (const auto& [name, found] : found_) {
    if (found.gradient != variable) continue;
    keep({name, gradient.is_sparse() ? gradient.to_dense() : gradient.clone(), true, false});
  }
}

// Rows of several micro-batches stand one after the other; of the rest the last one's count.
void WatchedValues::keep(Watched value) {
  const auto before = std::find_if(kept_.begin(), kept_.end(),
                                   [&](const Watched& each) { return each.name == value.name; });
  if (before == kept_.end()) {
    kept_.push_back(std::move(value));
  } else {
    before->value = value.batched ? torch::cat({before->value, value.value}) : value.value;
  }
}

}  // namespace autodist::exec
