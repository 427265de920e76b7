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

// One tensor at a time: the whole model would be in memory twice otherwise.
class InitialValues {
 public:
  InitialValues(comm::Transport& transport, Seconds limit) : transport_(transport), limit_(limit) {}

  void take(const std::string& name, torch::Tensor tensor) {
    const bool is_chief = transport_.self() == kChief;
    const std::string bytes =
        comm::broadcast(transport_, kChief, is_chief ? bytes_of(tensor) : std::string(),
                        "initial value of " + name, limit_);
    if (bytes.size() != tensor.nbytes()) {
      fail(ErrorCode::kUsage,
           "start: the chief's '{}' has {} bytes, rank {} has {} ({}). Start all ranks with one "
           "program and one model.",
           name, bytes.size(), transport_.self(), tensor.nbytes(), describe(tensor));
    }
    if (!is_chief) {
      torch::Tensor dense = torch::empty(tensor.sizes(), tensor.options().device(torch::kCPU));
      std::memcpy(dense.data_ptr(), bytes.data(), bytes.size());
      tensor.copy_(dense);
    }
    digests_ += to_string(digest_of(bytes_of(tensor)));
    ++count_;
  }

  void compare() {
    comm::agree(transport_, "initial values", digest_of(digests_),
                fmt::format("{} tensors", count_), limit_);
  }

 private:
  comm::Transport& transport_;
  Seconds limit_;
  std::string digests_;
  std::size_t count_ = 0;
};

}  // namespace

std::vector<NamedTensor> initial_tensors(const ir::Graph& graph,
                                         const capture::Bindings& bindings) {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    tensors.push_back({graph.variables[i].name, bindings.variables[i]});
  }
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    tensors.push_back({graph.buffers[i].name, bindings.buffers[i]});
  }
  for (std::size_t i = 0; i < graph.constants.size(); ++i) {
    if (graph.constants[i].name.empty()) continue;
    tensors.push_back({graph.constants[i].name, bindings.constants[i]});
  }
  return tensors;
}

void broadcast_initial(comm::Transport& transport, const std::vector<NamedTensor>& tensors,
                       Seconds limit) {
  const torch::NoGradGuard no_grad;
  InitialValues values(transport, limit);
  for (const NamedTensor& each : tensors) values.take(each.name, each.tensor);
  values.compare();
}

void broadcast_initial(comm::Transport& transport, const ir::Graph& graph,
                       const capture::Bindings& bindings, Seconds limit) {
  broadcast_initial(transport, initial_tensors(graph, bindings), limit);
}

}  // namespace autodist::exec
