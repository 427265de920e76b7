#include "autodist/exec/start.h"

#include <cstring>
#include <string>

#include "autodist/base/digest.h"
#include "autodist/base/error.h"
#include "autodist/capture/torch_types.h"
#include "autodist/comm/agreement.h"
#include "autodist/exec/topic.h"

namespace autodist::exec {
namespace {

std::string bytes_of(const torch::Tensor& tensor) {
  const torch::Tensor dense = tensor.to(torch::kCPU).contiguous();
  return {static_cast<const char*>(dense.data_ptr()), dense.nbytes()};
}

void take_chiefs(comm::Transport& transport, const NamedTensor& own, Seconds limit) {
  const auto& [name, tensor] = own;
  const bool is_chief = transport.self() == kChief;
  const std::string bytes =
      comm::broadcast(transport, kChief, is_chief ? bytes_of(tensor) : std::string(),
                      "initial value of " + name, limit);
  if (bytes.size() != tensor.nbytes()) {
    fail(ErrorCode::kUsage,
         "start: the chief's '{}' has {} bytes, rank {} has {} ({}). Start all ranks with one "
         "program and one model.",
         name, bytes.size(), transport.self(), tensor.nbytes(), describe(tensor));
  }
  if (is_chief) return;
  const torch::Tensor dense = torch::empty(tensor.sizes(), tensor.options().device(torch::kCPU));
  std::memcpy(dense.data_ptr(), bytes.data(), bytes.size());
  tensor.copy_(dense);
}

}  // namespace

std::vector<NamedTensor> initial_tensors(const ir::Graph& graph,
                                         const capture::Bindings& bindings) {
  std::vector<NamedTensor> tensors;
  const auto add = [&](const auto& list, const std::vector<torch::Tensor>& bound) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!list[i].name.empty()) tensors.push_back({list[i].name, bound[i]});
    }
  };
  add(graph.variables, bindings.variables);
  add(graph.buffers, bindings.buffers);
  add(graph.constants, bindings.constants);
  return tensors;
}

void broadcast_initial(comm::Transport& transport, const std::vector<NamedTensor>& tensors,
                       Seconds limit) {
  const torch::NoGradGuard no_grad;
  std::string digests;
  // One tensor at a time: the whole model would be in memory twice otherwise.
  for (const NamedTensor& each : tensors) {
    take_chiefs(transport, each, limit);
    digests += to_string(digest_of(bytes_of(each.tensor)));
  }
  comm::agree(transport, "initial values", digest_of(digests),
              fmt::format("{} tensors", tensors.size()), limit);
}

void broadcast_initial(comm::Transport& transport, const ir::Graph& graph,
                       const capture::Bindings& bindings, Seconds limit) {
  broadcast_initial(transport, initial_tensors(graph, bindings), limit);
}

}  // namespace autodist::exec
