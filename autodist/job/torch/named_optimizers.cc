// The optimizers of the facade by name.

#include "autodist/job/torch/session.h"

namespace autodist {

Sgd::Sgd(double lr, double momentum, double weight_decay) {
  rule = ir::default_rule(ir::Rule::kSgd);
  rule.options["lr"] = lr;
  rule.options["momentum"] = momentum;
  rule.options["weight_decay"] = weight_decay;
}

Adam::Adam(double lr, double weight_decay) {
  rule = ir::default_rule(ir::Rule::kAdam);
  rule.options["lr"] = lr;
  rule.options["weight_decay"] = weight_decay;
}

AdamW::AdamW(double lr, double weight_decay) {
  rule = ir::default_rule(ir::Rule::kAdamW);
  rule.options["lr"] = lr;
  rule.options["weight_decay"] = weight_decay;
}

}  // namespace autodist
