#include "autodist/capture/module_scope.h"

namespace autodist::capture {
namespace {

std::string& scope_of_this_thread() {
  thread_local std::string scope;
  return scope;
}

}  // namespace

ModuleScope::ModuleScope(const std::string& name) : outer_length_(scope_of_this_thread().size()) {
  std::string& scope = scope_of_this_thread();
  if (!scope.empty()) scope += '.';
  scope += name;
}

ModuleScope::~ModuleScope() { scope_of_this_thread().resize(outer_length_); }

const std::string& current_module_scope() { return scope_of_this_thread(); }

}  // namespace autodist::capture
