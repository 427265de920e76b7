// Rules on tensors have the bits of the kernels for plain memory, as far as square roots have.

#include "autodist/exec/device/tensor_update.h"

#include <gtest/gtest.h>

#include <string>

#include "autodist/base/check.h"
#include "autodist/capture/torch_types.h"

namespace autodist::exec {
namespace {

constexpr const char* kRules[] = {
    "sgd:lr=0.1",
    "sgd:lr=0.1,momentum=0.9,dampening=0.3,decay=0.01",
    "sgd:lr=0.1,momentum=0.9,nesterov=1",
    "adam:lr=0.01,decay=0.01",
    "adam:lr=0.01,amsgrad=1",
    "adamw:lr=0.01,decay=0.1",
    "adagrad:lr=0.1,lr_decay=0.1,initial_accumulator_value=0.5,decay=0.01",
    "adadelta:lr=1,decay=0.01",
    "adamax:lr=0.01,decay=0.01",
    "nadam:lr=0.01,decay=0.01",
    "nadam:lr=0.01,decay=0.01,decoupled_weight_decay=1",
    "radam:lr=0.01,decay=0.01",
    "rmsprop:lr=0.01,decay=0.01",
    "rmsprop:lr=0.01,centered=1",
    "rmsprop:lr=0.01,momentum=0.9",
    "rmsprop:lr=0.01,momentum=0.9,centered=1",
};

// MKL's square roots (pip's libtorch) are not always the nearest numbers; those of processors and
// of CUDA are.
bool roots_are_exact() { return !at::hasMKL(); }

// NaN where NaN is.
bool same(const torch::Tensor& a, const torch::Tensor& b) {
  if (!a.isnan().equal(b.isnan())) return false;
  const torch::Tensor one = a.nan_to_num(0);
  const torch::Tensor other = b.nan_to_num(0);
  if (roots_are_exact()) return one.equal(other);
  const double ulps = a.scalar_type() == torch::kDouble  ? 1e-14
                      : a.scalar_type() == torch::kFloat ? 1e-5
                                                         : 2e-2;
  return torch::allclose(one.to(torch::kDouble), other.to(torch::kDouble), ulps, ulps);
}

class TensorUpdate : public testing::TestWithParam<std::tuple<const char*, torch::ScalarType>> {};

TEST_P(TensorUpdate, HasTheBitsOfTheKernels) {
  const auto [text, type] = GetParam();
  const ir::UpdateRule rule = ir::parse_optimizer(text).rule;
  torch::manual_seed(7);
  const torch::Tensor plain = torch::randn({7, 13}).to(type);
  // Another order in memory, as a model in channels_last has it.
  const torch::Tensor there = plain.t().contiguous().t();
  const torch::Tensor beside = torch::ones({3}).to(type);  // with another variable
  UpdateState state(rule, plain.numel(), dtype_of(type));
  std::vector<std::vector<torch::Tensor>> states;
  for (const torch::Tensor& each : tensors_of(state, plain.sizes(), torch::kCPU)) {
    states.push_back({each, torch::zeros({3}, each.options())});
  }
  for (int step = 0; step < 7; ++step) {  // RAdam begins to rectify at the sixth
    torch::Tensor gradient = torch::randn({7, 13}).to(type);
    if (step == 3) gradient[2][5] = std::numeric_limits<double>::quiet_NaN();
    apply({rule, 0.5, step}, {plain.data_ptr(), gradient.data_ptr(), plain.numel(), dtype_of(type)},
          state);
    const auto version = there._version();
    apply_to_tensors({rule, 0.5, step}, {there, beside}, {gradient, torch::ones_like(beside)},
                     states);
    EXPECT_TRUE(same(plain, there)) << text << " after step " << step;
    if (type == torch::kFloat) {
      EXPECT_EQ(there._version(), version);  // no write of the user's
    }
  }
  UpdateState back(rule, plain.numel(), dtype_of(type));
  std::vector<torch::Tensor> own;
  for (const auto& each : states) own.push_back(each.front());
  copy_to_host(own, back);
  for (std::size_t i = 0; i < states.size(); ++i) {
    const auto view = [&](UpdateState& of) {
      return torch::from_blob(of.data(i), plain.sizes(), own[i].scalar_type());
    };
    EXPECT_TRUE(same(view(back), view(state))) << state.names()[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, TensorUpdate,
                         testing::Combine(testing::ValuesIn(kRules),
                                          testing::Values(torch::kFloat, torch::kDouble,
                                                          torch::kHalf, torch::kBFloat16)));

TEST(TensorUpdate, LeavesTheRestToTheHost) {
  EXPECT_TRUE(updates_tensors(ir::default_rule(ir::Rule::kAdamW)));
  EXPECT_FALSE(updates_tensors(ir::default_rule(ir::Rule::kLamb)));
  EXPECT_FALSE(updates_tensors(ir::default_rule(ir::Rule::kFtrl)));
}

}  // namespace
}  // namespace autodist::exec
