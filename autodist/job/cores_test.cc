#include "autodist/job/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <map>
#include <sstream>

namespace autodist::job {
namespace {

ReadFile files(std::map<std::string, std::string> contents) {
  return [contents = std::move(contents)](const std::string& path) -> std::optional<std::string> {
    const auto found = contents.find(path);
    return found == contents.end() ? std::nullopt : std::optional(found->second);
  };
}

double quota_of(const std::string& groups, const ReadFile& read) {
  Cores cores;
  read_quota(groups, read, cores);
  return cores.quota;
}

TEST(Cores, TheLeastQuotaOfAGroupAndThoseAboveItCounts) {
  const std::string own = "0::/jobs/mine\n";
  EXPECT_EQ(quota_of(own, files({})), 0);
  EXPECT_EQ(quota_of(own, files({{"/sys/fs/cgroup/jobs/mine/cpu.max", "max 100000\n"}})), 0);
  EXPECT_EQ(quota_of(own, files({{"/sys/fs/cgroup/jobs/mine/cpu.max", "300000 100000\n"},
                                 {"/sys/fs/cgroup/jobs/cpu.max", "150000 100000\n"},
                                 {"/sys/fs/cgroup/cpu.max", "max 100000\n"}})),
            1.5);
  // In a container the group is the mount itself.
  EXPECT_EQ(quota_of("0::/\n", files({{"/sys/fs/cgroup/cpu.max", "200000 100000\n"}})), 2);
}

TEST(Cores, QuotasOfControlGroupsVersionOneAreRead) {
  const std::string own = "5:memory:/x\n4:cpu,cpuacct:/jobs/mine\n0::/ignored\n";
  const std::string folder = "/sys/fs/cgroup/cpu,cpuacct/jobs/mine/";
  EXPECT_EQ(quota_of(own, files({{folder + "cpu.cfs_quota_us", "250000\n"},
                                 {folder + "cpu.cfs_period_us", "100000\n"}})),
            2.5);
  EXPECT_EQ(quota_of(own, files({{folder + "cpu.cfs_quota_us", "-1\n"},
                                 {folder + "cpu.cfs_period_us", "100000\n"}})),
            0);
}

TEST(Cores, AreReadBackFromTheirText) {
  const Cores cores{{0, 2, 7}, "/jobs/mine", 1.5, "A CPU (R) of 2.2 GHz", 3};
  EXPECT_EQ(parse_cores(to_string(cores)), cores);
  EXPECT_EQ(parse_cores(to_string(Cores{})), Cores{});
}

Cores on(std::vector<std::uint32_t> allowed, double quota = 0, const std::string& group = "/") {
  return {std::move(allowed), group, quota, "", 0};
}

TEST(Cores, TheCpusNameIsRead) {
  std::istringstream intel("processor\t: 0\nmodel\t\t: 85\nmodel name\t: Xeon(R) @ 2.70GHz\n\n");
  EXPECT_EQ(cpu_name(intel), "Xeon(R) @ 2.70GHz");
  std::istringstream arm(
      "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\nmodel name\t: no more\n");
  EXPECT_EQ(cpu_name(arm), "implementer 0x41, part 0xd0c");
  std::istringstream nothing("");
  EXPECT_EQ(cpu_name(nothing), "");
}

TEST(Cores, AUsersNumberOfThreadsIsTaken) {
  Cores own = on({0, 1});
  own.threads = 5;
  EXPECT_EQ(threads_for(own, {own, own}), 5);
}

TEST(Cores, AreDividedAmongThoseThatShareThem) {
  const Cores all = on({0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(threads_for(all, {all}), 8);
  EXPECT_EQ(threads_for(all, {all, all, all}), 2);
  // Bound by a launcher: each has its own, whatever the others have.
  const Cores left = on({0, 1, 2, 3});
  const Cores right = on({4, 5, 6, 7});
  EXPECT_EQ(threads_for(left, {left, right}), 4);
  EXPECT_EQ(threads_for(left, {left, left, right}), 2);
  EXPECT_EQ(threads_for(on({3}), {on({3}), on({3})}), 1);
}

TEST(Cores, AMachineWithFewerCoresThanRanksHasTooFew) {
  const Cores two = on({0, 1});
  EXPECT_FALSE(too_few_cores({two, two}));
  EXPECT_EQ(too_few_cores({two, two, two, two}), 2U);
  EXPECT_EQ(too_few_cores({on({0}), on({0}), on({1})}), 2U) << "pinned";
  const Cores limited = on({0, 1, 2, 3, 4, 5, 6, 7}, 2.5);
  EXPECT_EQ(too_few_cores({limited, limited, limited}), 2U);
  EXPECT_FALSE(too_few_cores({limited, two, two}));
}

TEST(Cores, AQuotaIsDividedAmongItsGroup) {
  const Cores limited = on({0, 1, 2, 3, 4, 5, 6, 7}, 4);
  EXPECT_EQ(threads_for(limited, {limited}), 4);
  EXPECT_EQ(threads_for(limited, {limited, limited}), 2);
  EXPECT_EQ(threads_for(limited, {limited, limited, limited, limited, limited}), 1);
  const Cores other = on({0, 1, 2, 3, 4, 5, 6, 7}, 3, "/other");
  EXPECT_EQ(threads_for(other, {other, limited}), 3);  // of eight cores for two
}

TEST(Cores, AProcessHasTheCoresOfItsAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  const Cores cores = own_cores();
  EXPECT_EQ(static_cast<int>(cores.allowed.size()), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cores.allowed.back(), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(own_cores().allowed, (std::vector<std::uint32_t>{cores.allowed.back()}));
  ::sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace autodist::job
