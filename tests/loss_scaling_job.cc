// A user's program for loss_scaling_test.cc: a step whose gradients overflow, or not, depending on
// the scale, at one rank at a time. Every rank compares with plain libtorch and with GradScaler's
// arithmetic, written down here.
//
//   loss_scaling_job CLUSTER BUILDER SCALING OPTIMIZER FIRST LAST [LOAD] SAVE

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "autodist/app/torch/session.h"
#include "tests/reference.h"

namespace autodist {
namespace {

using namespace testing_jobs;

// The hidden layer is divided by a number of each row's and multiplied with it again, which shows
// in the backward pass alone: there the product with a large number comes first.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(5, 8));
    second = register_module("second", torch::nn::Linear(8, 1));
    to(torch::kFloat64);
  }
  torch::Tensor loss(const Batch& batch) {
    const torch::Tensor hidden = torch::tanh(first->forward(batch[0])) / batch[2] * batch[2];
    return (second->forward(hidden) - batch[1]).square().mean();
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Net);

Net make_net() {
  torch::manual_seed(kSeed);
  return {};
}

// At some steps one row, of another replica each time, has a number so large that its gradient
// overflows unless the scale is below 2^14, and at one step unless it is below 2^12.
Batch batch_of(int step) {
  const auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(500 + step));
  const torch::Tensor x = torch::randn({kBatch, 5}, generator, torch::kFloat64);
  torch::Tensor large = torch::ones({kBatch, 1}, torch::kFloat64);
  if (step % 5 == 1) large[step * 7 % kBatch][0] = std::ldexp(1.0, 1010);
  if (step == 8) large[kBatch - 1][0] = std::ldexp(1.0, 1012);
  return {x, x.sum(1, true) + 3, large};
}

// torch.cuda.amp.GradScaler, one step of it: unscale_(), step() and update() with its defaults for
// growth and backoff, scale and tracker of the types that it has.
class PlainScaler {
 public:
  PlainScaler(float scale, int interval, bool dynamic)
      : scale_(scale), interval_(interval), dynamic_(dynamic) {}
  [[nodiscard]] float scale() const { return scale_; }
  [[nodiscard]] int skipped() const { return skipped_; }
  [[nodiscard]] double inverse() const {
    return static_cast<float>(1.0 / static_cast<double>(scale_));
  }
  void update(bool found_inf) {
    skipped_ += found_inf ? 1 : 0;
    if (!dynamic_) return;
    if (found_inf) {
      scale_ *= 0.5F;
      growth_tracker_ = 0;
    } else if (++growth_tracker_ == interval_) {
      scale_ *= 2.0F;
      growth_tracker_ = 0;
    }
  }

 private:
  float scale_;
  int interval_;
  bool dynamic_;
  int growth_tracker_ = 0;
  int skipped_ = 0;
};

// The job's training on one process.
class Plain {
 public:
  Plain(std::uint32_t replicas, const std::string& scaling, const std::string& optimizer)
      : net_(make_net()),
        replicas_(replicas),
        scaler_(scaling == "1024" ? 1024 : 65536, 3, scaling != "1024"),
        clips_(optimizer.find("clip") != std::string::npos) {
    if (optimizer.rfind("adam", 0) == 0) {
      optimizer_ =
          std::make_unique<torch::optim::Adam>(net_->parameters(), torch::optim::AdamOptions(0.01));
    } else {
      optimizer_ = std::make_unique<torch::optim::SGD>(
          net_->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
    }
  }

  void run(const Batch& batch) {
    const auto parameters = net_->parameters();
    std::vector<torch::Tensor> sums(parameters.size());
    bool found_inf = false;
    for (std::uint32_t r = 0; r < replicas_; ++r) {
      const Batch rows = rows_of(batch, r, replicas_);
      net_->zero_grad();
      (net_->loss(rows) * static_cast<double>(scaler_.scale())).backward();
      const double share = static_cast<double>(rows[0].size(0)) / static_cast<double>(kBatch);
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        const torch::Tensor gradient = parameters[p].grad();
        found_inf = found_inf || !torch::isfinite(gradient).all().item<bool>();
        const torch::Tensor part = gradient * scaler_.inverse() * share;
        sums[p] = sums[p].defined() ? sums[p] + part : part;
      }
    }
    if (!found_inf) {
      for (std::size_t p = 0; p < parameters.size(); ++p) parameters[p].mutable_grad() = sums[p];
      if (clips_) torch::nn::utils::clip_grad_norm_(parameters, 0.5);
      optimizer_->step();
    }
    scaler_.update(found_inf);
  }

  [[nodiscard]] const PlainScaler& scaler() const { return scaler_; }
  Net& net() { return net_; }

 private:
  Net net_;
  std::uint32_t replicas_;
  PlainScaler scaler_;
  bool clips_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

struct Arguments {
  std::string cluster, builder, scaling, optimizer;
  int first, last;
  std::string load, save;
};

int run(const Arguments& arguments) {
  JobOptions options;
  options.builder = arguments.builder;
  options.seed = kSeed;
  options.measure = false;
  options.loss_scaling = arguments.scaling;
  AutoDist autodist(arguments.cluster, options);
  Net net = make_net();
  const Batch example = rows_of(batch_of(0), 0, autodist.size());
  Session session = autodist.distribute(
      make_training_step(
          "net", net.ptr(), [](NetImpl& module, const Batch& batch) { return module.loss(batch); },
          example),
      ir::parse_optimizer(arguments.optimizer));
  if (!arguments.load.empty()) session.load(arguments.load);
  Plain plain(session.size(), arguments.scaling, arguments.optimizer);
  bool same_scale = true;
  int overflows = 0;  // of this rank's own rows
  std::int64_t told = 0;
  std::string scales;
  for (int step = 0; step < arguments.last; ++step) {
    plain.run(batch_of(step));
    if (step < arguments.first) continue;
    const double loss = session.run(batch_of(step));
    same_scale = same_scale && std::isfinite(loss);
    overflows += session.last().overflow ? 1 : 0;
    session.summarise();
    const ir::LossScale scale = session.loss_scale();
    same_scale = same_scale && scale.scale == plain.scaler().scale() &&
                 scale.skipped == plain.scaler().skipped();
    told += session.last_summary().skipped ? 1 : 0;
    scales += fmt::format("{} ", std::log2(scale.scale));
  }
  session.synchronize();
  double largest = 0;
  const auto ours = net->parameters();
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const torch::Tensor difference = ours[i].detach() - plain.net()->parameters()[i].detach();
    largest = std::max(largest, difference.abs().max().item<double>());
  }
  const std::int64_t skipped = session.loss_scale().skipped;
  session.save(arguments.save);
  session.finish();
  std::printf("rank %u same %d skipped %ld told %ld overflows %d difference %.3g scales %s\n",
              autodist.rank(), same_scale ? 1 : 0, static_cast<long>(skipped),
              static_cast<long>(told), overflows, largest, scales.c_str());
  return 0;
}

}  // namespace
}  // namespace autodist

int main(int argc, char** argv) {
  if (argc != 8 && argc != 9) return 2;
  return autodist::testing_jobs::job_main("loss_scaling_job", [&] {
    return autodist::run({argv[1], argv[2], argv[3], argv[4], std::atoi(argv[5]),
                          std::atoi(argv[6]), argc == 9 ? argv[7] : "", argv[argc - 1]});
  });
}
