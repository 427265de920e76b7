#include "autodist/exec/stage_link.h"

#include <cstring>
#include <memory>
#include <vector>

#include "autodist/base/error.h"
#include "autodist/capture/torch_types.h"
#include "autodist/comm/wire.h"
#include "autodist/exec/tensor_data.h"
#include "autodist/ir/history.h"

namespace autodist::exec {

StageLink::StageLink(const program::Program& program, program::Rank self, Staging& staging,
                     Seconds limit, Signal& signal, Post post)
    : program_(program),
      self_(self),
      staging_(staging),
      limit_(limit),
      signal_(signal),
      post_(std::move(post)) {}

StageLink::~StageLink() {
  if (signal_.failure()) return;
  for (const auto& [memory, copied] : staged_) copied.block_host(WaitSite::kStageLinkEnds);
}

torch::Tensor StageLink::distinct(program::StageTransferId id, torch::Tensor value) const {
  const program::StageTransfer& transfer = program_.transfer(id);
  if (!transfer.value) return value;
  const ir::TensorType& type = program_.graph->value(*transfer.value).type;
  for (std::size_t i = 0; i < type.strides.size(); ++i) {
    const auto dim = static_cast<std::int64_t>(i);
    if (type.strides[i] == ir::Affine{} && value.size(dim) > 1) value = value.narrow(dim, 0, 1);
  }
  return value;
}

void StageLink::send(program::StageTransferId id, std::uint64_t step, const torch::Tensor& tensor) {
  const program::StageTransfer& transfer = program_.transfer(id);
  const auto keep = std::make_shared<const torch::Tensor>(tensor.contiguous());
  const comm::Payload payload{memory_of(*keep), keep->nbytes(), keep};
  if (payload.size > comm::kLargestPayload) {
    fail(ErrorCode::kInfeasible,
         "step {}: {} has {}, a transfer at most {}. Use more micro-batches.", step,
         describe(id, step), to_string(Bytes(static_cast<std::int64_t>(payload.size))),
         to_string(Bytes(static_cast<std::int64_t>(comm::kLargestPayload))));
  }
  for (const std::uint32_t stage : transfer.to) {
    post_(program_.stage_mate(self_, stage), id, step, payload);
  }
}

void StageLink::take(program::StageTransferId transfer, std::uint64_t step, comm::Payload payload) {
  {
    const MutexLock lock(signal_);
    arrived_[{step, transfer}] = std::move(payload);
  }
  signal_.notify();
}

std::string StageLink::describe(program::StageTransferId id, std::uint64_t step) const {
  const program::StageTransfer& transfer = program_.transfer(id);
  const program::Rank from = program_.stage_mate(self_, transfer.from);
  std::string what = "the generator's state";
  if (transfer.value) {
    const auto maker = ir::History(*program_.graph).maker(*transfer.value);
    if (maker)
      what = fmt::format("the result of op {} ({})", *maker, program_.graph->op(*maker).name);
  }
  return fmt::format("{} (micro-batch {} of step {}, rank {} at {})", what, transfer.micro_batch,
                     step, from, program_.ranks[from.value].node);
}

torch::Tensor StageLink::receive(program::StageTransferId id, std::uint64_t step,
                                 std::int64_t samples) {
  comm::Payload payload;
  {
    const MutexLock lock(signal_);
    const auto key = std::make_pair(step, id);
    signal_.wait(
        limit_, [&]() AD_REQUIRES(signal_) { return arrived_.count(key) != 0; },
        [&] { return "step: " + describe(id, step) + " does not come."; });
    payload = std::move(arrived_.extract(key).mapped());
  }
  const program::StageTransfer& transfer = program_.transfer(id);
  if (!transfer.value) {
    torch::Tensor state = torch::empty({static_cast<std::int64_t>(payload.size)}, torch::kUInt8);
    std::memcpy(state.data_ptr(), payload.data, payload.size);
    return state;
  }
  const ir::TensorType& type = program_.graph->value(*transfer.value).type;
  const std::vector<std::int64_t> sizes = ir::integers_at(type.sizes, samples);
  std::vector<std::int64_t> distinct = sizes;  // of what travelled
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (type.strides[i] == ir::Affine{} && sizes[i] > 1) distinct[i] = 1;
  }
  const auto options = torch::TensorOptions(scalar_type_of(type.dtype));
  const torch::Tensor rows = torch::from_blob(const_cast<std::byte*>(payload.data), distinct,
                                              options);  // NOLINT: is only read
  if (rows.nbytes() != payload.size) {
    fail(ErrorCode::kUsage, "step: {} came with {} bytes, {} expected", describe(id, step),
         payload.size, rows.nbytes());
  }
  const torch::Tensor tensor = torch::empty_strided(
      distinct, ir::integers_at(type.strides, samples), options.device(staging_.device()));
  copy(rows, tensor);
  return tensor.expand(sizes);
}

void StageLink::copy(const torch::Tensor& from, torch::Tensor to) {
  if (to.is_cpu()) {
    to.copy_(from);
    return;
  }
  while (!staged_.empty() && staged_.front().second.reached(WaitSite::kStageValueRead)) {
    staged_.pop_front();
  }
  const torch::Tensor staged = staging_.take(from.sizes(), from.scalar_type()).copy_(from);
  to.copy_(staged, /*non_blocking=*/true);
  staged_.emplace_back(staged, Queue::current(to.device()).record());
}

}  // namespace autodist::exec
