// Says which layer is running, so that every captured op can be shown under a name people know.

#pragma once

#include <string>

namespace autodist::capture {

// While it lives, ops of this thread belong to `name` below the scopes already open:
//   ModuleScope block("layer1"); ModuleScope conv("conv2");   // -> "layer1.conv2"
// Costs an append to a string; does nothing else outside of a capture. Without it, capture infers
// the scope from the variables that an op reads.
class ModuleScope {
 public:
  explicit ModuleScope(const std::string& name);
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  std::size_t outer_length_;
};

// "layer1.conv2", or "" outside of any scope.
const std::string& current_module_scope();

}  // namespace autodist::capture
