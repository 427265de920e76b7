#include "autodist/capture/op_traits.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "autodist/ir/op_classes.h"

namespace autodist::capture {
namespace {

// Arguments that a kernel of libtorch writes although its schema does not say so.
const std::vector<std::uint32_t>& undeclared_writes(const std::string& op_name) {
  static const std::vector<std::uint32_t> kNone;
  static const std::map<std::string, std::vector<std::uint32_t>> kTable = {
      // running_mean and running_var
      {"aten::native_batch_norm", {3, 4}},
      {"aten::cudnn_batch_norm", {3, 4}},
      {"aten::miopen_batch_norm", {3, 4}},
      {"aten::batch_norm_gather_stats", {3, 4}},
      {"aten::batch_norm_gather_stats_with_counts", {3, 4}},
      {"aten::batch_norm_update_stats", {1, 2}},
      // noise
      {"aten::rrelu_with_noise", {1}},
  };
  const auto found = kTable.find(op_name);
  return found == kTable.end() ? kNone : found->second;
}

bool overwrites_target(const std::string& op_name, const std::string& overload) {
  static const std::set<std::string> kNames = {
      "aten::copy_",      "aten::zero_",      "aten::fill_",       "aten::normal_",
      "aten::uniform_",   "aten::random_",    "aten::bernoulli_",  "aten::exponential_",
      "aten::geometric_", "aten::cauchy_",    "aten::log_normal_", "aten::resize_",
      "aten::set_",       "aten::resize_as_",
  };
  const bool out_variant = overload.find("out") != std::string::npos;
  return out_variant || kNames.count(op_name) > 0;
}

bool mentions(const c10::Argument& argument, const char* type) {
  return argument.type()->str().find(type) != std::string::npos;
}

OpTraits traits_of(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  OpTraits traits;
  traits.random = op.hasTag(at::Tag::nondeterministic_seeded);
  for (const c10::Argument& argument : schema.arguments()) {
    const auto* alias = argument.alias_info();
    ArgumentTraits each;
    each.written = alias != nullptr && alias->isWrite();
    each.viewed = alias != nullptr && !alias->isWrite();
    each.generator = mentions(argument, "Generator");
    traits.random |= each.generator;
    traits.arguments.push_back(each);
  }
  for (std::uint32_t index : undeclared_writes(schema.name())) {
    if (index < traits.arguments.size()) traits.arguments[index].written = true;
  }
  const auto& returns = schema.returns();
  traits.makes_no_tensor =
      !returns.empty() && std::none_of(returns.begin(), returns.end(),
                                       [](const auto& each) { return mentions(each, "Tensor"); });
  traits.leaves_uninitialised = ir::leaves_uninitialised(schema.name());
  traits.overwrites_target = overwrites_target(schema.name(), schema.overload_name());
  return traits;
}

}  // namespace

bool reads_boolean(const c10::OperatorHandle& op, const c10::IValue* arguments) {
  return op.schema().name() == "aten::_local_scalar_dense" &&
         arguments[0].toTensor().scalar_type() == at::kBool;
}

bool reads_integer(const c10::OperatorHandle& op, const c10::IValue* arguments) {
  return op.schema().name() == "aten::_local_scalar_dense" &&
         at::isIntegralType(arguments[0].toTensor().scalar_type(), /*includeBool=*/false);
}

const char* with_fixed_sizes(const std::string& op_name) {
  static const char* const kMask =
      "For x[mask].mean() write torch.where(mask, x, 0).sum() / mask.sum(); for labels[mask], "
      "labels.masked_fill(~mask, -100), which cross_entropy leaves out.";
  static const char* const kCounts =
      "Where values are 0 to n - 1, (x.reshape(-1, 1) == torch.arange(n)).sum(0) counts them.";
  static const std::map<std::string, const char*> kTable = {
      {"aten::index", kMask},
      {"aten::masked_select", kMask},
      {"aten::nonzero",
       "Keep the mask: torch.where(mask, a, b) chooses by it, and topk(k) has a fixed number of "
       "indices."},
      {"aten::repeat_interleave",
       "Say output_size=, the sum of the repeats, where it is the same in every step."},
      {"aten::bincount", kCounts},
      {"aten::_unique", kCounts},
      {"aten::_unique2", kCounts},
      {"aten::unique_consecutive", kCounts},
      {"aten::unique_dim", kCounts},
      {"aten::unique_dim_consecutive", kCounts},
  };
  const auto found = kTable.find(op_name);
  return found == kTable.end() ? "Use a mask of fixed size (torch.where, multiplication)."
                               : found->second;
}

const OpTraits& OpTraitsTable::of(const c10::OperatorHandle& op) {
  const auto [found, added] = known_.try_emplace(&op.schema());
  if (added) found->second = traits_of(op);
  return found->second;
}

}  // namespace autodist::capture
