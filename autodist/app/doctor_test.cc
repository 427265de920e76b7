// Machines that lack one thing each: the finding must name it, and a remedy.

#include "autodist/app/doctor.h"

#include <gtest/gtest.h>

#include <functional>

namespace autodist::app {
namespace {

MachineFacts healthy() {
  MachineFacts machine;
  machine.torch_program = "/usr/bin/autodist-torch";
  machine.ssh = machine.curve = machine.port = machine.synchronised = true;
  machine.libtorch = {"1.13.0", "", "CPU"};
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

void with_gpus(MachineFacts& machine) {
  machine.libtorch = {"2.14.1", "/v/torch", "CUDA 13.0"};
  machine.torch_there = "2.14.1";
  machine.gpu_driver = "NVRM version: 580";
  machine.gpu_models = {"NVIDIA H100", "NVIDIA H100"};
  machine.gpus = {{25e9, 24e9, 45e9}, {25e9, 24e9, 45e9}};
  machine.nccl = true;
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

cluster::Cluster three_machines() {
  return cluster::parse_resource_spec(
      "nodes: [{address: 10.0.0.1, cpus: [0], network_bandwidth: 1, chief: true}, {address: "
      "10.0.0.2, cpus: [0], network_bandwidth: 1, ssh_config: a}, {address: 10.0.0.3, cpus: [0], "
      "network_bandwidth: 1, ssh_config: a}]\nssh: {a: {}}",
      "c");
}

std::vector<MeasuredLink> three_links(double mbit_per_s, double odd_one = 0) {
  const double rate = mbit_per_s * 125e3;
  const double odd = odd_one > 0 ? odd_one * 125e3 : rate;
  return {{"10.0.0.1", "10.0.0.2", rate, Seconds(3e-4), Seconds(4e-5)},
          {"10.0.0.1", "10.0.0.3", rate, Seconds(3e-4), Seconds(4e-5)},
          {"10.0.0.2", "10.0.0.3", odd, Seconds(3e-4), Seconds(4e-5)}};
}

TEST(Links, AreSoundWhereTheyCarryWhatTheFileSays) {
  EXPECT_EQ(only_finding(findings(three_links(930), three_machines())).subject, "");
  EXPECT_TRUE(findings(std::vector<MeasuredLink>{}, three_machines()).empty());
}

TEST(Links, ALinkSlowerThanTheOthersIsNamed) {
  const Finding found = only_finding(findings(three_links(930, 90), three_machines()));
  EXPECT_EQ(found.health, Health::kPoor);
  EXPECT_EQ(found.found,
            "10.0.0.2 to 10.0.0.3: 0.09 Gbit/s, round trip 300.0 us; others have 0.93 Gbit/s");
}

TEST(Links, LinksThatAreAllSlowerThanDeclaredAreReported) {
  for (const Finding& found : findings(three_links(500), three_machines())) {
    EXPECT_EQ(found.health, Health::kPoor);
    EXPECT_NE(found.found.find("the file says 1 Gbit/s"), std::string::npos) << found.found;
    EXPECT_NE(found.remedy.find("network_bandwidth: 0.5"), std::string::npos) << found.remedy;
  }
}

TEST(Links, LinksThatAreAllFasterThanDeclaredAreReported) {
  const std::vector<MeasuredLink> links = three_links(9400);
  cluster::Cluster cluster = three_machines();
  for (const Finding& found : findings(links, cluster)) {
    EXPECT_EQ(found.health, Health::kPoor);
    EXPECT_NE(found.found.find("the file says 1 Gbit/s"), std::string::npos) << found.found;
    EXPECT_NE(found.remedy.find("network_bandwidth: 9.4"), std::string::npos) << found.remedy;
  }
  for (cluster::Node& node : cluster.nodes) node.bandwidth_is_stated = false;
  const std::string found = findings(links, cluster).front().found;
  EXPECT_NE(found.find("the file says nothing, which counts as 1 Gbit/s"), std::string::npos)
      << found;
}

TEST(Links, ALinkWithALongerRoundTripIsNamed) {
  std::vector<MeasuredLink> links = three_links(930);
  links[1].round_trip = Seconds(5e-3);
  EXPECT_NE(only_finding(findings(links, three_machines())).found.find("others take 300.0 us"),
            std::string::npos);
}

TEST(Links, TheWorstLinkCalibratesTheGoodput) {
  const sim::Calibration calibration = link_calibration(three_links(930, 460), three_machines());
  EXPECT_NEAR(calibration.at("goodput"), 0.46, 1e-9);
  EXPECT_TRUE(link_calibration({}, three_machines()).empty());
}

TEST(Links, StandInATableBandwidthAboveTheDiagonal) {
  EXPECT_EQ(link_table(three_links(930, 90)),
            "                                 0             1             2\n"
            "0   10.0.0.1                     -   0.93 Gbit/s   0.93 Gbit/s\n"
            "1   10.0.0.2              300.0 us             -   0.09 Gbit/s\n"
            "2   10.0.0.3              300.0 us      300.0 us             -\n");
}

TEST(Doctor, NamesWhatIsMissing) {
  struct Case {
    const char* subject;
    Health health;
    std::function<void(MachineFacts&)> change;
  };
  const Case cases[] = {
      {"training", Health::kBad, [](MachineFacts& m) { m.torch_program = ""; }},
      {"libtorch", Health::kBad,
       [](MachineFacts& m) {
         m.libtorch = {"2.13.0", "/v/torch", "CPU"};
       }},
      {"libtorch", Health::kBad,
       [](MachineFacts& m) {
         m.libtorch = {"2.13.0", "/v/torch", "CPU"};
         m.torch_there = "2.14.1";
       }},
      {"GPU driver", Health::kPoor,
       [](MachineFacts& m) {
         m.libtorch = {"2.14.1", "/v/torch", "CUDA 13.0"};
         m.torch_there = "2.14.1";
       }},
      {"GPUs", Health::kPoor,
       [](MachineFacts& m) {
         with_gpus(m);
         m.gpus.emplace();
       }},
      {"GPUs", Health::kPoor,
       [](MachineFacts& m) {
         with_gpus(m);
         m.gpus.reset();
       }},
      {"pinned memory", Health::kPoor,
       [](MachineFacts& m) {
         with_gpus(m);
         m.free_memory = std::uint64_t{7} << 30;
       }},
      {"NCCL", Health::kPoor,
       [](MachineFacts& m) {
         with_gpus(m);
         m.nccl = false;
       }},
      {"GPU copies", Health::kPoor,
       [](MachineFacts& m) {
         with_gpus(m);
         m.gpus = {{25e9, 24e9, 45e9}, {3e9, 24e9, 27e9}};
       }},
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

TEST(Doctor, CountsTheGpusThatTheFileListsHere) {
  MachineFacts machine = healthy();
  const std::vector<NodeFacts> nodes{{"10.0.0.1", "10.0.0.1", true, 2},
                                     {"10.0.0.2", "10.0.0.2", false, 8}};
  EXPECT_EQ(only_finding(gpu_findings(machine, nodes)).found,
            "the file lists GPU 1 of 10.0.0.1, and libtorch is built for CPUs");
  machine.libtorch = {"2.14.1", "/v/torch", "CUDA 13.0"};
  machine.gpus.emplace();
  EXPECT_EQ(only_finding(gpu_findings(machine, nodes)).found,
            "the file lists GPU 1 of 10.0.0.1, and libtorch finds 0");
  machine.gpus = {{25e9, 24e9, 45e9}, {25e9, 24e9, 45e9}};
  EXPECT_TRUE(gpu_findings(machine, nodes).empty());
}

TEST(Doctor, NamesGpusThatNoFileLists) {
  const std::vector<NodeFacts> none{{"10.0.0.1", "10.0.0.1", true, 0},
                                    {"10.0.0.2", "10.0.0.2", false, 8}};
  EXPECT_TRUE(gpu_findings(healthy(), none).empty());
  MachineFacts machine = healthy();
  with_gpus(machine);
  EXPECT_EQ(only_finding(gpu_findings(machine, none)).found,
            "the cluster lists none of the 2 that are here: its ranks train on CPUs");
  EXPECT_TRUE(gpu_findings(machine, {}).empty());
  EXPECT_TRUE(gpu_findings(machine, {{"10.0.0.2", "10.0.0.2", false, 0}}).empty());
}

TEST(Doctor, SaysWhatBringsNccl) {
  MachineFacts machine = healthy();
  with_gpus(machine);
  EXPECT_EQ(only_finding(findings(machine, 2)).subject, "");
  machine.nccl = false;
  EXPECT_EQ(
      only_finding(findings(machine, 2)).remedy,
      "pip install \"nvidia-cuda-crt==13.0.*\" \"nvidia-cuda-cccl==13.0.*\", and build again; "
      "Python brings its own");
}

}  // namespace
}  // namespace autodist::app
