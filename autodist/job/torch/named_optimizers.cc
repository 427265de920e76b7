// The optimizers of the facade by name: what the text of one makes, whose numbers are checked.

#include <fmt/format.h>

#include "autodist/job/torch/session.h"

namespace autodist {

Sgd::Sgd(double lr, double momentum, double weight_decay)
    : Optimizer(ir::parse_optimizer(
          fmt::format("sgd:lr={},momentum={},weight_decay={}", lr, momentum, weight_decay))) {}

Adam::Adam(double lr, double weight_decay)
    : Optimizer(ir::parse_optimizer(fmt::format("adam:lr={},weight_decay={}", lr, weight_decay))) {}

AdamW::AdamW(double lr, double weight_decay)
    : Optimizer(ir::parse_optimizer(fmt::format("adamw:lr={},weight_decay={}", lr, weight_decay))) {
}

}  // namespace autodist
