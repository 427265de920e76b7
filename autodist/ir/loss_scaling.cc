#include "autodist/ir/loss_scaling.h"

#include <cmath>
#include <string_view>

#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/base/numbers.h"
#include "autodist/base/text.h"

namespace autodist::ir {
namespace {

constexpr std::string_view kDynamic = "dynamic";

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  fail(ErrorCode::kUsage,
       "loss scaling '{}': {}. A number, or dynamic:scale=65536,growth=2,backoff=0.5,interval=2000 "
       "expected.",
       text, why);
}

double number_in(const std::string& text, std::string_view word) {
  const auto value = as_number<double>(word);
  if (!value || !std::isfinite(*value)) refuse(text, fmt::format("'{}' is no number", word));
  return *value;
}

void set(const std::string& text, std::string_view item, LossScaling& scaling) {
  const std::size_t equals = item.find('=');
  const std::string key(item.substr(0, equals));
  if (equals == std::string_view::npos) refuse(text, fmt::format("'{}' has no value", key));
  const double value = number_in(text, item.substr(equals + 1));
  if (key == "scale") {
    scaling.scale = static_cast<float>(value);
  } else if (key == "growth") {
    scaling.growth = value;
  } else if (key == "backoff") {
    scaling.backoff = value;
  } else if (key == "interval") {
    if (value != std::floor(value) || std::abs(value) > 1e15) refuse(text, "interval is no count");
    scaling.interval = static_cast<std::int64_t>(value);
  } else {
    const std::string near = nearest(key, {"scale", "growth", "backoff", "interval"});
    refuse(text, fmt::format("no option '{}'{}", key,
                             near.empty() ? "" : fmt::format(", did you mean '{}'?", near)));
  }
}

void check(const std::string& text, const LossScaling& scaling) {
  if (!(scaling.scale > 0) || !std::isfinite(scaling.scale)) refuse(text, "scale is not above 0");
  if (scaling.growth < 1) refuse(text, "growth is below 1");
  if (scaling.backoff <= 0 || scaling.backoff > 1) refuse(text, "backoff is not in (0, 1]");
  if (scaling.interval < 1) refuse(text, "interval is below 1");
}

}  // namespace

bool operator==(const LossScaling&, const LossScaling&) = default;
bool operator==(const LossScale&, const LossScale&) = default;

LossScaling parse_loss_scaling(const std::string& text) {
  LossScaling scaling;
  if (text.rfind(kDynamic, 0) != 0) {
    scaling.scale = static_cast<float>(number_in(text, text));
    scaling.growth = scaling.backoff = 1;
    check(text, scaling);
    return scaling;
  }
  std::string_view rest(text);
  rest.remove_prefix(kDynamic.size());
  if (!rest.empty()) {
    if (rest.front() != ':') refuse(text, fmt::format("what is '{}'", rest));
    for (const std::string& item : split_all(rest.substr(1), ',')) set(text, item, scaling);
  }
  check(text, scaling);
  return scaling;
}

std::string to_string(const LossScaling& scaling) {
  if (scaling.growth == 1 && scaling.backoff == 1) return fmt::format("{}", scaling.scale);
  return fmt::format("dynamic:scale={},growth={},backoff={},interval={}", scaling.scale,
                     scaling.growth, scaling.backoff, scaling.interval);
}

LossScale first_scale(const LossScaling& scaling) { return {scaling.scale, 0, 0}; }

// The products are rounded to a float, as those of _amp_update_scale_.
LossScale next_scale(const LossScaling& scaling, LossScale scale, bool overflow) {
  if (overflow) {
    ++scale.skipped;
    scale.good_steps = 0;
    scale.scale = static_cast<float>(scale.scale * scaling.backoff);
    return scale;
  }
  if (++scale.good_steps < scaling.interval) return scale;
  scale.good_steps = 0;
  const auto grown = static_cast<float>(scale.scale * scaling.growth);
  if (std::isfinite(grown)) scale.scale = grown;
  return scale;
}

bool scales_loss(const Graph& graph) {
  return !graph.inputs.empty() && graph.inputs.back().name == kLossScaleInput;
}

}  // namespace autodist::ir
