// Machines that lack one thing each: the finding must name it, and a remedy.

#include "autodist/app/doctor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace autodist::app {
namespace {

MachineFacts healthy() {
  MachineFacts machine;
  machine.torch_program = "/usr/bin/autodist-torch";
  machine.ssh = machine.curve = machine.port = machine.synchronised = true;
  machine.blas = "/usr/lib/openblas-pthread/libblas.so.3";
  machine.cores = 4;
  machine.open_files = 65536;
  machine.processes = 65536;
  machine.shared_memory = machine.free_memory = std::uint64_t{8} << 30;
  machine.first_port = 32768;
  machine.last_port = 60999;
  machine.clock_source = "tsc";
  return machine;
}

// The one finding that is not good; "" for none.
Finding only_finding(const std::vector<Finding>& all) {
  Finding found;
  int count = 0;
  for (const Finding& each : all) {
    EXPECT_EQ(each.remedy.empty(), each.health == Health::kGood) << each.subject;
    EXPECT_EQ(each.remedy.find('\n'), std::string::npos);
    if (each.health == Health::kGood) continue;
    ++count;
    found = each;
  }
  EXPECT_LE(count, 1);
  return found;
}

TEST(Doctor, HasNothingToSayOfAHealthyMachine) {
  EXPECT_EQ(only_finding(findings(healthy(), 2)).subject, "");
}

TEST(Doctor, NamesWhatIsMissing) {
  struct Case {
    const char* subject;
    Health health;
    std::function<void(MachineFacts&)> change;
  };
  const Case cases[] = {
      {"training", Health::kBad, [](MachineFacts& m) { m.torch_program = ""; }},
      {"ssh", Health::kPoor, [](MachineFacts& m) { m.ssh = false; }},
      {"encryption", Health::kPoor, [](MachineFacts& m) { m.curve = false; }},
      {"BLAS", Health::kPoor, [](MachineFacts& m) { m.blas = "/usr/lib/blas/libblas.so.3"; }},
      {"BLAS kernels", Health::kPoor, [](MachineFacts& m) { m.better_kernels = "Haswell"; }},
      {"threads", Health::kPoor, [](MachineFacts& m) { m.cores = 1; }},
      {"threads", Health::kPoor, [](MachineFacts& m) { m.core_limit = 2; }},
      {"open files", Health::kBad, [](MachineFacts& m) { m.open_files = 64; }},
      {"processes", Health::kPoor, [](MachineFacts& m) { m.processes = 100; }},
      {"shared memory", Health::kPoor, [](MachineFacts& m) { m.shared_memory = 0; }},
      {"memory", Health::kPoor, [](MachineFacts& m) { m.free_memory = 1 << 20; }},
      {"ports", Health::kBad, [](MachineFacts& m) { m.port = false; }},
      {"clock", Health::kPoor, [](MachineFacts& m) { m.clock_source = "hpet"; }},
      {"time", Health::kPoor, [](MachineFacts& m) { m.synchronised = false; }},
  };
  for (const Case& each : cases) {
    MachineFacts machine = healthy();
    each.change(machine);
    const Finding found = only_finding(findings(machine, 2));
    EXPECT_EQ(found.subject, each.subject);
    EXPECT_EQ(found.health, each.health) << each.subject;
  }
}

TEST(Doctor, LooksAtAddresses) {
  EXPECT_EQ(only_finding(findings({{"10.0.0.1", "10.0.0.1", true}})).subject, "");
  EXPECT_EQ(only_finding(findings({{"a", "10.0.0.1", true}, {"b", "", false}})).found,
            "'b' cannot be resolved");
  EXPECT_EQ(only_finding(findings({{"a", "127.0.1.1", true}, {"b", "10.0.0.2", false}})).subject,
            "address");
  EXPECT_EQ(only_finding(findings({{"b", "10.0.0.2", false}})).subject, "cluster");
}

TEST(Doctor, ReadsThisMachine) {
  const MachineFacts facts = machine_facts();
  EXPECT_GT(facts.cores, 0U);
  EXPECT_GT(facts.open_files, 0U);
  EXPECT_GT(facts.free_memory, 0U);
  EXPECT_LT(facts.first_port, facts.last_port);
}

}  // namespace
}  // namespace autodist::app
