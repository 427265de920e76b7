// The learned placer's policy: a graph network that looks at one task of a partly visited graph and
// says on which device it should be.
//
// Three networks: message passing forwards and backwards over the graph (Placeto, Addanki et al.,
// NeurIPS 2019, section 3.2), GraphSAGE with mean aggregation (Hamilton et al., NeurIPS 2017), and
// position-aware messages from random anchor sets (P-GNN, You et al., ICML 2019).

#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/search/placement/task_graph.h"

namespace autodist::learned {

enum class Network : std::uint8_t { kPlaceto, kSage, kPgnn };

// "placeto", "sage" or "pgnn". Throws Error(kUsage).
Network parse_network(const std::string& name);

// What of a graph no placement changes, as tensors. N tasks, E pairs of neighbours.
struct GraphTensors {
  // `seed` draws the anchor sets.
  GraphTensors(const search::placement::TaskGraph& graph, std::uint64_t seed);

  std::int64_t tasks = 0;
  torch::Tensor parents;      // [E] indices; with children: one pair per edge
  torch::Tensor children;     // [E]
  torch::Tensor parents_of;   // [N, 1] how many, at least 1
  torch::Tensor children_of;  // [N, 1]
  torch::Tensor ancestors;    // [N, N] row t: 1 / count at the ancestors of t
  torch::Tensor descendants;  // [N, N]
  torch::Tensor costs;        // [N, 2]: time and bytes of output, over the graph's means
  torch::Tensor anchors;      // [K, N] the member of anchor set k that is nearest to t
  torch::Tensor nearness;     // [K, N, 1] 1 / (1 + steps to it); 0 where there is no way
};

// What is known on the way, of S states: costs, start times, devices, who was visited, who is
// asked. [S, N, features(devices)]
std::int64_t features(std::int64_t devices);

class PolicyImpl : public torch::nn::Module {
 public:
  PolicyImpl(Network network, std::int64_t devices);

  // Logits over the devices. `states`: [S, N, features]; `asked`: [S] the task in question of each.
  // Returns [S, devices].
  torch::Tensor forward(const GraphTensors& graph, const torch::Tensor& states,
                        const torch::Tensor& asked);

 private:
  torch::Tensor embed(const GraphTensors& graph, const torch::Tensor& states);
  torch::Tensor sweep(const torch::Tensor& start, const torch::Tensor& from,
                      const torch::Tensor& to, const torch::Tensor& degree,
                      torch::nn::Linear& message, torch::nn::Linear& update);

  Network network_;
  torch::nn::Linear enter_{nullptr};
  torch::nn::Linear up_message_{nullptr};
  torch::nn::Linear up_update_{nullptr};
  torch::nn::Linear down_message_{nullptr};
  torch::nn::Linear down_update_{nullptr};
  torch::nn::Linear hidden_{nullptr};
  torch::nn::Linear logits_{nullptr};
};
TORCH_MODULE(Policy);

}  // namespace autodist::learned
