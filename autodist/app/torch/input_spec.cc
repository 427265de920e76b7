#include "autodist/app/torch/input_spec.h"

#include <ATen/CPUGeneratorImpl.h>

#include <optional>

#include "autodist/base/error.h"
#include "autodist/base/numbers.h"
#include "autodist/base/text.h"

namespace autodist::app {
namespace {

std::optional<std::int64_t> positive(const std::string& text) {
  const auto value = as_number<std::int64_t>(text);
  return value && *value > 0 ? value : std::nullopt;
}

}  // namespace

InputSpec parse_input_spec(const std::string& text) {
  const auto refuse = [&] {
    fail(ErrorCode::kUsage,
         "--input '{}': float32:SIZES, float64:SIZES or int64:SIZES:BELOW expected, SIZES of one "
         "sample with commas (float32:3,224,224; int64::10)",
         text);
  };
  const std::vector<std::string> parts = split_all(text, ':');
  InputSpec spec;
  const bool whole = parts[0] == "int64";
  if (parts[0] == "float64") spec.dtype = torch::kFloat64;
  if (whole) spec.dtype = torch::kInt64;
  const bool known = whole || parts[0] == "float32" || parts[0] == "float64";
  if (!known || parts.size() != (whole ? 3 : 2)) refuse();
  for (const std::string& each : split_all(parts[1], ',')) {
    if (parts[1].empty()) break;
    const auto size = positive(each);
    if (!size) refuse();
    spec.sizes.push_back(*size);
  }
  if (whole) {
    const auto below = positive(parts[2]);
    if (!below) refuse();
    spec.below = *below;
  }
  return spec;
}

Batch random_samples(const std::vector<InputSpec>& inputs, std::int64_t samples,
                     std::uint64_t seed) {
  torch::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  Batch batch;
  for (const InputSpec& input : inputs) {
    std::vector<std::int64_t> sizes{samples};
    sizes.insert(sizes.end(), input.sizes.begin(), input.sizes.end());
    batch.push_back(input.dtype == torch::kInt64
                        ? torch::randint(0, input.below, sizes, generator, torch::kInt64)
                        : torch::randn(sizes, generator, input.dtype));
  }
  return batch;
}

}  // namespace autodist::app
