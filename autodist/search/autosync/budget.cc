#include "autodist/base/error.h"
#include "autodist/base/numbers.h"
#include "autodist/search/autosync/autosync.h"

namespace autodist::search {

Budget parse_budget(const std::string& text, const std::string& option) {
  if (const auto time = as_duration(text)) return {*time, 0};
  const auto simulations = as_number<std::uint64_t>(text);
  if (simulations && *simulations > 0) return {Seconds{}, *simulations};
  fail(ErrorCode::kUsage,
       "{}: '{}', a time (10s, 2m, 500ms) or a number of simulations (40) expected", option, text);
}

}  // namespace autodist::search
