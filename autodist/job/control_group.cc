#include "autodist/job/control_group.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>

#include "autodist/base/numbers.h"
#include "autodist/base/text.h"

namespace autodist::job {
namespace {

constexpr const char* kMount = "/sys/fs/cgroup";

// The group's folder and those above it, up to the mount.
void add_folders(const std::string& mount, std::string group, std::vector<std::string>& folders) {
  while (true) {
    folders.push_back(mount + (group == "/" ? "" : group));
    if (group.size() <= 1) return;
    group = group.substr(0, std::max<std::size_t>(group.rfind('/'), 1));
  }
}

// Of files, which a group gives back when it needs memory.
double cache_of(const std::optional<std::string>& stat) {
  std::istringstream words(stat.value_or(""));
  double bytes = 0;
  for (std::string key; words >> key >> bytes;) {
    if (key == "inactive_file") return bytes;
  }
  return 0;
}

std::optional<Bytes> available(const std::optional<std::string>& meminfo) {
  std::istringstream lines(meminfo.value_or(""));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string key;
    std::int64_t kib = 0;
    if (words >> key >> kib && key == "MemAvailable:") return Bytes{kib << 10};
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> read_if_there(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::vector<double> numbers_in(const std::optional<std::string>& text) {
  std::vector<double> numbers;
  std::istringstream words(text.value_or(""));
  for (std::string word; words >> word;) numbers.push_back(as_number<double>(word).value_or(0));
  return numbers;
}

// Lines are "0::/path" (version 2) or "4:cpu,cpuacct:/path".
std::vector<ControlGroup> control_groups(const std::string& groups, const std::string& controller) {
  std::vector<ControlGroup> found;
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::vector<std::string> each = split(controllers, ',');
    ControlGroup group{line.substr(second + 1), {}};
    if (controllers.empty()) {
      add_folders(kMount, group.name, group.folders);
    } else if (std::find(each.begin(), each.end(), controller) != each.end()) {
      add_folders(std::string(kMount) + "/" + controllers, group.name, group.folders);
      if (controllers != controller) {
        add_folders(std::string(kMount) + "/" + controller, group.name, group.folders);
      }
    } else {
      continue;
    }
    found.push_back(std::move(group));
  }
  return found;
}

Bytes free_memory(const ReadFile& read) {
  Bytes least = available(read("/proc/meminfo")).value_or(Bytes{0});
  const std::string groups = read("/proc/self/cgroup").value_or("");
  for (const ControlGroup& group : control_groups(groups, "memory")) {
    for (const std::string& folder : group.folders) {
      for (const auto& [limit_file, used_file] :
           {std::pair{"/memory.max", "/memory.current"},
            std::pair{"/memory.limit_in_bytes", "/memory.usage_in_bytes"}}) {
        const std::vector<double> limit = numbers_in(read(folder + limit_file));
        const std::vector<double> used = numbers_in(read(folder + used_file));
        if (limit.size() != 1 || limit[0] <= 0 || used.size() != 1) continue;
        const double rest =
            std::max(0.0, limit[0] - used[0] + cache_of(read(folder + "/memory.stat")));
        if (rest < static_cast<double>(least.value)) least = Bytes{static_cast<std::int64_t>(rest)};
      }
    }
  }
  return least;
}

}  // namespace autodist::job
