// The variables of a process, as a value: whoever reads them is told where they come from.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace autodist {

// What a variable holds; nothing where it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Of variables as a process has them: "NAME=value", of which the first counts.
Environment environment_of(std::vector<std::string> variables);

}  // namespace autodist
