// A strategy of a user's own: large variables on parameter servers in turn, small ones all-reduced.
//
//   ./own_builder "Mixed:large=1000"      # every 1,000 elements and more on a server

#include <cstdio>

#include "autodist/app/torch/session.h"

namespace strategy = autodist::strategy;

strategy::Strategy mixed(const autodist::ir::Graph& graph,
                         const autodist::cluster::Cluster& cluster,
                         const autodist::search::BuilderOptions& options) {
  // Replicas, names and order as AutoDist's; then each variable's synchronizer anew.
  strategy::Strategy plan = autodist::search::build_strategy("AllReduce", graph, cluster);
  const std::vector<std::string> servers = autodist::cluster::servers_of(cluster);
  const long large = std::stol(options.at("large"));
  std::size_t next = 0;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    if (autodist::ir::element_count(graph, autodist::ir::VariableId(i)) < large) continue;
    strategy::PsSynchronizer ps;
    ps.reduction_destination = servers[next++ % servers.size()];
    plan.nodes[i].synchronizer = ps;
  }
  return plan;
}

int main(int argc, char** argv) try {
  autodist::JobOptions options;
  options.builders.push_back({"Mixed", "servers for large variables", {{"large", "500"}}, mixed});
  options.builder = argc > 1 ? argv[1] : "Mixed";
  autodist::AutoDist ad{"local:2", options};

  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(8, 64), torch::nn::Tanh(),
                              torch::nn::Linear(64, 1));
  const auto loss = [](torch::nn::SequentialImpl& mlp, const autodist::Batch& batch) {
    return torch::mse_loss(mlp.forward(batch[0]), batch[1]);
  };
  const torch::Tensor x = torch::randn({64, 8});
  const torch::Tensor y = x.sum(1, true).sin();
  auto session =
      ad.distribute(model, loss, autodist::Adam{1e-2}, {x.slice(0, 0, 32), y.slice(0, 0, 32)});
  for (int step = 0; step < 100; ++step) session.run({x, y});
  session.synchronize();
  if (session.is_chief()) {
    std::printf("%s", strategy::to_text(session.strategy()).c_str());
    std::printf("trained: loss %.4f\n", loss(*model, {x, y}).item<double>());
  }
  session.finish();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return autodist::exit_code_of(error);
}
