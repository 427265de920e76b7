// The control groups that limit a process: which folders say so, and how much memory they leave.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "autodist/base/units.h"

namespace autodist::job {

// A file's contents, or nothing where there is none.
using ReadFile = std::function<std::optional<std::string>(const std::string& path)>;
std::optional<std::string> read_if_there(const std::string& path);

// A line's numbers; "max", or what else is no number, as 0.
std::vector<double> numbers_in(const std::optional<std::string>& text);

struct ControlGroup {
  std::string name;
  std::vector<std::string> folders;  // its own, and those of the groups above it
};
// The groups of a process in which a controller ("cpu", "memory") may limit it: of version 2, and
// of version 1. `groups` is the text of /proc/self/cgroup.
std::vector<ControlGroup> control_groups(const std::string& groups, const std::string& controller);

// What this process may still take: what the machine has available, and no more than its control
// groups leave. `read` sees /proc and /sys.
Bytes free_memory(const ReadFile& read = read_if_there);

}  // namespace autodist::job
