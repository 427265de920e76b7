#include "autodist/job/same_bits.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

namespace autodist::job {

std::string other_computing_line(const std::vector<std::string>& before,
                                 const std::vector<std::string>& now,
                                 const std::vector<cluster::Place>& places) {
  if (before.size() != now.size()) return "";
  std::string first;
  std::size_t more = 0;
  for (std::size_t rank = 0; rank < now.size(); ++rank) {
    if (before[rank] == now[rank]) continue;
    if (!first.empty()) {
      ++more;
      continue;
    }
    first = fmt::format("rank {} now {} {} in place of {}", rank,
                        places[rank].serves_only ? "has" : "computes on", now[rank], before[rank]);
  }
  if (first.empty()) return "";
  return fmt::format("{}{}: results may differ in their last bits from a run that lost nothing",
                     first,
                     more > 0 ? fmt::format(", and {} more on others than before", more) : "");
}

std::string other_loss_line(std::int64_t step, double before, double now) {
  const bool same_bits = std::memcmp(&before, &now, sizeof now) == 0;
  if (same_bits || (std::isnan(before) && std::isnan(now))) return "";
  return fmt::format(
      "step {} was done again and its loss is {}, before {}: something outside of the job's state "
      "differs (data, CPU, or what the loop changes itself)",
      step, now, before);
}

}  // namespace autodist::job
