#include <autodist/app/torch/session.h>

#include <cstdio>

int main() {
  autodist::AutoDist ad{"local:2"};
  torch::nn::Linear model(4, 1);
  const torch::Tensor x = torch::eye(4).repeat({4, 1});
  const torch::Tensor y = x.sum(1, true);
  auto session = ad.distribute(model,
                               [](torch::nn::LinearImpl& linear, const autodist::Batch& batch) {
                                 return torch::mse_loss(linear.forward(batch[0]), batch[1]);
                               },
                               autodist::Adam{0.05}, {x.slice(0, 0, 8), y.slice(0, 0, 8)});
  double loss = 1;
  for (int step = 0; step < 200; ++step) loss = session.run({x, y});
  session.finish();
  if (session.is_chief()) std::printf("trained: loss %.6f\n", loss);
}
