#include "autodist/capture/interpreter.h"

#include <utility>

#include "autodist/base/check.h"
#include "autodist/ir/liveness.h"
#include "autodist/ir/own_ops.h"

namespace autodist::capture {

Interpreter::Interpreter(const ir::Graph& graph, Bindings tensors, const ComputePlace& place,
                         std::int64_t batch)
    : graph_(graph), tensors_(std::move(tensors)), freed_after_(ir::slots_freed_after(graph)) {
  calls_.reserve(graph.ops.size());
  for (const ir::Op& op : graph.ops) calls_.emplace_back(graph, op, place, batch);
}

void Interpreter::set_batch(std::int64_t batch) {
  for (OpCall& call : calls_) call.set_batch(batch);
}

void Interpreter::clear() { slots_.assign(graph_.slot_count, at::Tensor()); }

void Interpreter::run(const Batch& inputs) {
  AD_CHECK(inputs.size() == graph_.inputs.size()) << "the graph takes other inputs";
  clear();
  const auto put = [&](const auto& table, const std::vector<at::Tensor>& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      slots_[graph_.value(table[i].value).slot.value] = tensors[i];
    }
  };
  put(graph_.inputs, inputs);
  put(graph_.variables, tensors_.variables);
  put(graph_.buffers, tensors_.buffers);
  put(graph_.constants, tensors_.constants);
  const BelowAutograd guard;
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    if (before) before(ir::OpId(i));
    const bool reads = graph_.ops[i].name == ir::kGuardOp;
    if (!reads || reads_booleans) calls_[i].run(slots_, stack_);
    if (after) after(ir::OpId(i), slots_);
    for (std::uint32_t slot : freed_after_[i]) slots_[slot] = at::Tensor();
  }
}

}  // namespace autodist::capture
