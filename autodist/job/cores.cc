#include "autodist/job/cores.h"

#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "autodist/base/check.h"

namespace autodist::job {
namespace {

void limit(double quota, double period, Cores& cores) {
  if (quota <= 0 || period <= 0) return;
  const double limit = quota / period;
  cores.quota = cores.quota == 0 ? limit : std::min(cores.quota, limit);
}

std::vector<std::uint32_t> affinity() {
  // Larger machines have larger masks.
  for (int count = 1024; count <= 1 << 20; count *= 2) {
    cpu_set_t* set = CPU_ALLOC(count);
    const std::size_t size = CPU_ALLOC_SIZE(count);
    std::vector<std::uint32_t> cores;
    const bool known = ::sched_getaffinity(0, size, set) == 0;
    for (int i = 0; known && i < count; ++i) {
      if (CPU_ISSET_S(static_cast<unsigned>(i), size, set)) {
        cores.push_back(static_cast<std::uint32_t>(i));
      }
    }
    CPU_FREE(set);
    if (known) return cores;
    if (errno != EINVAL) break;
  }
  std::vector<std::uint32_t> all(std::max(1U, std::thread::hardware_concurrency()));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint32_t>(i);
  return all;
}

bool share(const Cores& a, const Cores& b) {
  return std::any_of(a.allowed.begin(), a.allowed.end(), [&](std::uint32_t core) {
    return std::binary_search(b.allowed.begin(), b.allowed.end(), core);
  });
}

}  // namespace

std::string to_string(const Cores& cores) {
  return fmt::format("{}\n{}\n{}\n{}\n{}", fmt::join(cores.allowed, " "), cores.quota, cores.group,
                     cores.cpu, cores.threads);
}

Cores parse_cores(const std::string& text) {
  Cores cores;
  std::istringstream lines(text);
  std::string allowed;
  std::string quota;
  std::getline(lines, allowed);
  std::getline(lines, quota);
  std::getline(lines, cores.group);
  std::getline(lines, cores.cpu);
  lines >> cores.threads;
  for (const double each : numbers_in(allowed)) {
    cores.allowed.push_back(static_cast<std::uint32_t>(each));
  }
  const std::vector<double> numbers = numbers_in(quota);
  AD_CHECK(numbers.size() == 1) << "cores: '" << text << "'";
  cores.quota = numbers.front();
  return cores;
}

void read_quota(const std::string& groups, const ReadFile& read, Cores& cores) {
  for (const ControlGroup& group : control_groups(groups, "cpu")) {
    cores.group = group.name;
    for (const std::string& folder : group.folders) {
      const std::vector<double> both = numbers_in(read(folder + "/cpu.max"));
      if (both.size() == 2) limit(both[0], both[1], cores);
      const std::vector<double> quota = numbers_in(read(folder + "/cpu.cfs_quota_us"));
      const std::vector<double> period = numbers_in(read(folder + "/cpu.cfs_period_us"));
      if (quota.size() == 1 && period.size() == 1) limit(quota[0], period[0], cores);
    }
  }
}

// The kernel may take long for the text of a machine with many CPUs, so no more of it is read than
// the first one's.
std::string cpu_name(std::istream& cpuinfo) {
  std::string numbers;
  for (std::string line; std::getline(cpuinfo, line) && !line.empty();) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string name = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    const std::string value = line.substr(colon + 2);
    if (name == "model name") return value;
    if (name == "CPU implementer") numbers += "implementer " + value;
    if (name == "CPU part") numbers += ", part " + value;
  }
  return numbers;
}

Cores own_cores() {
  Cores cores;
  cores.allowed = affinity();
  read_quota(read_if_there("/proc/self/cgroup").value_or(""), read_if_there, cores);
  std::ifstream cpuinfo("/proc/cpuinfo");
  cores.cpu = cpu_name(cpuinfo);
  return cores;
}

int threads_for(const Cores& own, const std::vector<Cores>& here) {
  if (own.threads > 0) return own.threads;
  const auto on_them = std::count_if(here.begin(), here.end(),
                                     [&](const Cores& other) { return share(own, other); });
  const auto in_group = std::count_if(here.begin(), here.end(),
                                      [&](const Cores& other) { return other.group == own.group; });
  double threads = static_cast<double>(own.allowed.size()) /
                   static_cast<double>(std::max<std::ptrdiff_t>(on_them, 1));
  if (own.quota > 0) {
    threads =
        std::min(threads, own.quota / static_cast<double>(std::max<std::ptrdiff_t>(in_group, 1)));
  }
  return std::max(1, static_cast<int>(std::floor(threads)));
}

std::optional<std::uint32_t> too_few_cores(const std::vector<Cores>& here) {
  std::set<std::uint32_t> allowed;
  std::map<std::string, double> quotas;  // by group, of those that have one
  bool all_limited = true;
  for (const Cores& each : here) {
    allowed.insert(each.allowed.begin(), each.allowed.end());
    if (each.quota > 0) quotas[each.group] = each.quota;
    all_limited = all_limited && each.quota > 0;
  }
  double cores = static_cast<double>(allowed.size());
  if (all_limited) {
    double sum = 0;
    for (const auto& [group, quota] : quotas) sum += quota;
    cores = std::min(cores, sum);
  }
  if (cores >= static_cast<double>(here.size())) return std::nullopt;
  return static_cast<std::uint32_t>(std::max(1.0, std::floor(cores)));
}

}  // namespace autodist::job
