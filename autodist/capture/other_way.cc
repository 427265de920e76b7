#include "autodist/capture/other_way.h"

#include <fmt/format.h>

namespace autodist::capture {

OtherWay::OtherWay(std::size_t guard, std::variant<bool, std::int64_t> found)
    : std::runtime_error(fmt::format(
          "guard {} of the graph: {}, which was not so at the capture", guard,
          std::holds_alternative<bool>(found)
              ? fmt::format("the host reads {}", std::get<bool>(found))
              : fmt::format("a number of the step's is {}", std::get<std::int64_t>(found)))),
      guard(guard),
      found(found) {}

ir::Way way_of(const ir::Graph& graph, std::int64_t batch, const OtherWay& other) {
  ir::Way way = ir::way_of(graph, batch, other.guard);
  if (const auto* read = std::get_if<bool>(&other.found)) {
    way.booleans.push_back(*read);
  } else {
    way.numbers.push_back(std::get<std::int64_t>(other.found));
  }
  return way;
}

}  // namespace autodist::capture
