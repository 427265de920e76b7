#include "autodist/capture/scope_tracker.h"

#include "autodist/capture/module_scope.h"
#include "autodist/ir/names.h"

namespace autodist::capture {

ScopeTracker::ScopeTracker(ir::Graph& graph) : graph_(graph) { intern(""); }

ir::ScopeId ScopeTracker::intern(const std::string& scope) {
  const auto [found, added] = ids_.try_emplace(scope, ir::ScopeId(graph_.scopes.size()));
  if (added) graph_.scopes.push_back(scope);
  return found->second;
}

void ScopeTracker::name_storage(ir::StorageId storage, const std::string& tensor_name) {
  named_.emplace(storage, intern(ir::module_of(tensor_name)));
}

ir::ScopeId ScopeTracker::inferred(const std::vector<ir::StorageId>& read) const {
  for (ir::StorageId storage : read) {
    const auto found = named_.find(storage);
    if (found != named_.end()) return found->second;
  }
  for (ir::StorageId storage : read) {
    const auto found = makers_.find(storage);
    if (found != makers_.end()) return found->second;
  }
  return last_;
}

ir::ScopeId ScopeTracker::forward(const std::vector<ir::StorageId>& read,
                                  std::uint64_t sequence_number) {
  const std::string& declared = current_module_scope();
  last_ = declared.empty() ? inferred(read) : intern(declared);
  // The nodes that autograd made since the op before are this op's.
  if (!started_) first_node_ = sequence_number > 0 ? sequence_number - 1 : 0;
  started_ = true;
  while (first_node_ + nodes_.size() < sequence_number) nodes_.push_back(last_);
  return last_;
}

ir::ScopeId ScopeTracker::backward(const std::vector<ir::StorageId>& read, std::int64_t node) {
  const std::uint64_t index = static_cast<std::uint64_t>(node) - first_node_;
  if (node >= 0 && index < nodes_.size()) {
    last_ = nodes_[index];
  } else if (node < 0) {
    last_ = inferred(read);  // sums of contributions, between two nodes
  }
  return last_;
}

}  // namespace autodist::capture
