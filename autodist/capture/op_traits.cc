#include "autodist/capture/op_traits.h"

#include <map>
#include <set>

namespace autodist::capture {

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

bool leaves_uninitialised(const std::string& op_name) {
  static const std::set<std::string> kNames = {"aten::empty", "aten::empty_like",
                                               "aten::empty_strided", "aten::new_empty",
                                               "aten::new_empty_strided"};
  return kNames.count(op_name) > 0;
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

}  // namespace autodist::capture
