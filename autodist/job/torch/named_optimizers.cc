// The optimizers of the facade by name.

#include "autodist/job/torch/session.h"

namespace autodist {
namespace {

void set_rule(ir::Optimizer& optimizer, ir::Rule rule,
              const std::map<std::string, double>& options) {
  optimizer.rule = ir::default_rule(rule);
  for (const auto& [name, value] : options) optimizer.rule.options[name] = value;
}

}  // namespace

Sgd::Sgd(double lr, double momentum, double weight_decay) {
  set_rule(*this, ir::Rule::kSgd,
           {{"lr", lr}, {"momentum", momentum}, {"weight_decay", weight_decay}});
}

Adam::Adam(double lr, double weight_decay) {
  set_rule(*this, ir::Rule::kAdam, {{"lr", lr}, {"weight_decay", weight_decay}});
}

AdamW::AdamW(double lr, double weight_decay) {
  set_rule(*this, ir::Rule::kAdamW, {{"lr", lr}, {"weight_decay", weight_decay}});
}

}  // namespace autodist
