// How many threads a rank may compute with: the cores that affinity and control groups leave to
// this process, divided among the ranks that share them. More threads than cores only wait for each
// other.

#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "autodist/job/control_group.h"

namespace autodist::job {

// What a process has of its machine.
struct Cores {
  std::vector<std::uint32_t> allowed;  // ascending: the affinity mask, which a launcher may set
  std::string group;                   // the control group; its time is shared by all in it
  double quota = 0;                    // cores' worth of time that the group has; 0: no limit
  std::string cpu;                     // which CPU it is, by name; empty: the kernel does not say
  int threads = 0;                     // that the user asks for; 0: as many as there are cores for

  friend bool operator==(const Cores& a, const Cores& b) {
    return a.allowed == b.allowed && a.group == b.group && a.quota == b.quota && a.cpu == b.cpu &&
           a.threads == b.threads;
  }
};

// For the other ranks. REQUIRES: what to_string() made.
std::string to_string(const Cores& cores);
Cores parse_cores(const std::string& text);

// The least quota of a process's control group and those above it, of version 2 (cpu.max) or 1
// (cpu.cfs_quota_us), and the group's name. `groups` is the text of /proc/self/cgroup.
void read_quota(const std::string& groups, const ReadFile& read, Cores& cores);

// The name of the first CPU in the text of /proc/cpuinfo: its model, or where there is none (on
// ARM) its numbers; empty where neither is said.
std::string cpu_name(std::istream& cpuinfo);

// Of this process; `threads` is the caller's to set.
Cores own_cores();

// Threads for a rank with `own` among the ranks of its machine, itself included: those that its
// user asks for, else its cores divided by the ranks that may run on them, and no more than its
// part of the group's time. At least 1.
int threads_for(const Cores& own, const std::vector<Cores>& here);

// How many cores the ranks of one machine have between them, where these are fewer than the ranks;
// nothing where each has one.
std::optional<std::uint32_t> too_few_cores(const std::vector<Cores>& here);

}  // namespace autodist::job
