// Of OpRecorder: what the host reads of data, on which a step goes its way, becomes guards.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/capture/op_recorder.h"
#include "autodist/ir/history.h"
#include "autodist/ir/own_ops.h"

namespace autodist::capture {

// Whether a forward op with a guard takes rows by the same masks: the gradient of what is put into
// rows (out[mask] = x[mask]) is as many.
bool OpRecorder::is_known_index(const ir::Op& op) const {
  if (in_forward() || op.name != "aten::index") return false;
  return guarded_indices_.count(std::get<ir::Values>(op.arguments.at(1))) != 0;
}

// A replay compares them with those of this run.
void OpRecorder::guard_sizes(const std::vector<ir::Result>& results, ir::ScopeId scope) {
  for (const ir::Result& result : results) {
    const auto* value = std::get_if<ir::ValueId>(&result);
    if (value == nullptr) continue;
    ir::Op op;
    op.phase = phase_;
    op.scope = scope;
    const auto sizes = ir::integers_at(graph_.value(*value).type.sizes, 0);
    const std::int64_t sum = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    add_guard(std::move(op), ir::kSizeGuardOp, *value, ir::Affine{0, sum});
  }
}

std::vector<at::Tensor> OpRecorder::masks_of_forward(const ir::Op& op,
                                                     const c10::IValue* arguments) {
  if (op.name != "aten::masked_select" && op.name != "aten::index") return {};
  std::vector<at::Tensor> masks;
  bool all = true;
  for_each_tensor(arguments[1], [&](const at::Tensor& index) {
    if (!is_mask(index) || !depends_on_step(index)) return;
    ir::Op reader;
    reader.arguments = {table_.value_of(index)};
    all &= can_guard(reader);
    masks.push_back(index);
  });
  return all ? masks : std::vector<at::Tensor>();
}

// How many elements it chooses is a size of an op of its own, as what is chosen may be a gradient.
void OpRecorder::guard_count(const at::Tensor& mask, ir::ScopeId scope) {
  ir::Op op;
  op.name = "aten::nonzero";
  op.arguments = {table_.value_of(mask)};
  const ir::Result chosen = table_.add(at::nonzero(mask), ir::StorageKind::kIntermediate);
  op.results = {chosen};
  op.phase = phase_;
  op.scope = scope;
  graph_.ops.push_back(std::move(op));
  guard_sizes({chosen}, scope);
}

void OpRecorder::end_guard(Pending pending, bool read) {
  ir::Argument of = std::move(pending.op.arguments.at(0));
  add_guard(std::move(pending.op), ir::kGuardOp, std::move(of), read);
}

void OpRecorder::end_integer_guard(Pending pending, std::int64_t read) {
  ir::Argument of = std::move(pending.op.arguments.at(0));
  add_guard(std::move(pending.op), ir::kIntegerGuardOp, std::move(of), ir::Affine{0, read});
}

void OpRecorder::add_guard(ir::Op op, const char* name, ir::Argument of, ir::Argument expected) {
  op.name = name;
  op.overload = "";
  op.arguments = {std::move(of), std::move(expected), ir::Affine{0, guards_++}};
  if (in_forward()) return graph_.ops.push_back(std::move(op));
  const auto makers = makers_in_backward(op);
  AD_CHECK(makers) << name << " of what depends on gradients";
  graph_.ops.push_back(std::move(op));
  for (const std::size_t each : *makers) move_to_forward(each);
  move_to_forward(graph_.ops.size() - 1);
}

bool OpRecorder::can_guard(const ir::Op& op) const {
  return in_forward() || (!op.random && op.writes.empty() && makers_in_backward(op));
}

// All gradients follow from the first op of the backward pass, which makes that of the loss. What
// the forward pass has made, and no op of the backward pass writes, is at its end what it is when
// it is read. An op that writes moves with what made its memory, if nobody else has used that so
// far.
std::optional<std::vector<std::size_t>> OpRecorder::makers_in_backward(const ir::Op& reader) const {
  std::vector<std::size_t> makers;
  std::set<ir::ValueId> needed;
  std::set<ir::StorageId> written;
  std::set<ir::StorageId> written_by_makers;
  const auto need = [&](ir::ValueId value) { needed.insert(value); };
  ir::for_each_read(reader, need);
  for (std::size_t i = graph_.ops.size(); i-- > backward_begins_;) {
    const ir::Op& op = graph_.ops[i];
    bool makes = false;
    ir::for_each_result(op, [&](ir::ValueId value) { makes |= needed.erase(value) > 0; });
    if (makes && (op.random || i == backward_begins_)) return std::nullopt;
    bool disturbs = false;
    for (const ir::StorageId each : ir::written_storages(graph_, op)) {
      written.insert(each);
      disturbs |= written_by_makers.count(each) != 0;
      if (makes) written_by_makers.insert(each);
    }
    ir::for_each_read(op, [&](ir::ValueId value) {
      disturbs |= written_by_makers.count(graph_.value(value).storage) != 0;
    });
    if (disturbs && !makes) return std::nullopt;
    if (!makes) continue;
    ir::for_each_read(op, need);
    makers.push_back(i);
  }
  const bool stays = std::none_of(needed.begin(), needed.end(), [&](ir::ValueId value) {
    return written.count(graph_.value(value).storage) != 0;
  });
  if (!stays) return std::nullopt;
  std::reverse(makers.begin(), makers.end());
  return makers;
}

void OpRecorder::move_to_forward(std::size_t index) {
  const auto ops = graph_.ops.begin();
  const auto at = [&](std::size_t i) { return ops + static_cast<std::ptrdiff_t>(i); };
  std::rotate(at(backward_begins_), at(index), at(index + 1));
  for (StorageState& each : states_) {
    auto& since = each.uninitialised_since;
    if (since && *since >= backward_begins_ && *since < index) ++*since;
  }
  graph_.ops[backward_begins_++].phase = ir::Phase::kForward;
}

}  // namespace autodist::capture
