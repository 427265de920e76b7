#include "autodist/base/environment.h"

#include <algorithm>
#include <utility>

namespace autodist {

Environment environment_of(std::vector<std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const std::string begin = name + "=";
    const auto found =
        std::find_if(variables.begin(), variables.end(),
                     [&](const std::string& each) { return each.rfind(begin, 0) == 0; });
    if (found == variables.end()) return std::nullopt;
    return found->substr(begin.size());
  };
}

}  // namespace autodist
