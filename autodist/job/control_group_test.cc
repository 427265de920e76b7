#include "autodist/job/control_group.h"

#include <gtest/gtest.h>

#include <map>

namespace autodist::job {
namespace {

ReadFile files(std::map<std::string, std::string> contents) {
  contents.emplace("/proc/meminfo", "MemTotal: 64 kB\nMemAvailable:   32 kB\nBuffers: 1 kB\n");
  return [contents = std::move(contents)](const std::string& path) -> std::optional<std::string> {
    const auto found = contents.find(path);
    return found == contents.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(FreeMemory, IsTheMachinesWhereNoGroupLimitsIt) {
  EXPECT_EQ(free_memory(files({})), Bytes{32 << 10});
  EXPECT_EQ(free_memory(files({{"/proc/self/cgroup", "0::/mine\n"},
                               {"/sys/fs/cgroup/mine/memory.max", "max\n"},
                               {"/sys/fs/cgroup/mine/memory.current", "4096\n"}})),
            Bytes{32 << 10});
  EXPECT_EQ(free_memory([](const std::string&) { return std::nullopt; }), Bytes{0});
  EXPECT_GT(free_memory(), Bytes{0});
}

TEST(FreeMemory, IsWhatTheTightestGroupLeaves) {
  EXPECT_EQ(free_memory(files({{"/proc/self/cgroup", "0::/jobs/mine\n"},
                               {"/sys/fs/cgroup/jobs/mine/memory.max", "20000\n"},
                               {"/sys/fs/cgroup/jobs/mine/memory.current", "5000\n"},
                               {"/sys/fs/cgroup/jobs/memory.max", "18000\n"},
                               {"/sys/fs/cgroup/jobs/memory.current", "8000\n"},
                               {"/sys/fs/cgroup/jobs/memory.stat",
                                "anon 7000\ninactive_file 500\nactive_file 400\n"}})),
            Bytes{10'500});
  EXPECT_EQ(free_memory(files({{"/proc/self/cgroup", "6:cpu:/x\n5:memory:/mine\n"},
                               {"/sys/fs/cgroup/memory/mine/memory.limit_in_bytes", "9000\n"},
                               {"/sys/fs/cgroup/memory/mine/memory.usage_in_bytes", "9500\n"}})),
            Bytes{0});
}

}  // namespace
}  // namespace autodist::job
