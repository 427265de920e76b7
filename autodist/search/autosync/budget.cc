#include <charconv>
#include <string>

#include "autodist/base/error.h"
#include "autodist/search/autosync/autosync.h"

namespace autodist::search {

Budget parse_budget(const std::string& text, const std::string& option) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, text.data() + text.size());
  Budget budget;
  if (error == std::errc() && value > 0 && value < 1e9) {
    if (unit == "s") budget.seconds = Seconds(value);
    if (unit == "ms") budget.seconds = Seconds(value / 1000);
    if (unit == "m") budget.seconds = Seconds(value * 60);
    if (unit == "s" || unit == "ms" || unit == "m") return budget;
    const auto whole = static_cast<std::uint64_t>(value);
    if (unit.empty() && static_cast<double>(whole) == value) return {Seconds{}, whole};
  }
  fail(ErrorCode::kUsage,
       "{}: '{}', a time (10s, 2m, 500ms) or a number of simulations (40) expected", option, text);
}

}  // namespace autodist::search
