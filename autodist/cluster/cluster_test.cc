#include "autodist/cluster/cluster.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/cluster/address.h"
#include "autodist/cluster/resource_spec.h"

namespace autodist::cluster {
namespace {

std::string refusal(const std::string& yaml) {
  try {
    parse_resource_spec(yaml, "c.yml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
  return "accepted";
}

Cluster read_text(const std::string& name, const std::string& text) {
  const std::string path =
      (std::filesystem::temp_directory_path() / (std::to_string(::getpid()) + name)).string();
  write_file_atomically(path, text);
  const Cluster cluster = read_cluster(path);
  std::filesystem::remove(path);
  return cluster;
}

const char* const kTwoNodes = R"(
nodes:
  - address: 10.0.0.1
    gpus: [0, 1]
    chief: true
    network_bandwidth: 40
  - address: 10.0.0.2
    gpus: [0]
    ssh_config: conf
ssh:
  conf: {username: me, port: 2222, key_file: /k, shared_envs: {K: $V}}
)";

TEST(ResourceSpec, ReadsNodesDevicesLinksAndSsh) {
  const Cluster cluster = parse_resource_spec(kTwoNodes, "c.yml");
  ASSERT_EQ(cluster.nodes.size(), 2u);
  EXPECT_EQ(cluster.nodes[0].gpus.size(), 2u);
  EXPECT_EQ(cluster.nodes[0].cpus.size(), 1u) << "CPU 0 always exists";
  EXPECT_DOUBLE_EQ(cluster.nodes[0].bandwidth_bytes_per_s, 5e9);
  EXPECT_DOUBLE_EQ(cluster.nodes[1].bandwidth_bytes_per_s, 125e6) << "1 Gbit/s by default";
  EXPECT_TRUE(cluster.nodes[0].bandwidth_is_stated);
  EXPECT_FALSE(cluster.nodes[1].bandwidth_is_stated);
  EXPECT_EQ(chief_of(cluster).address, "10.0.0.1");
  EXPECT_EQ(cluster.ssh.at("conf").port, 2222);
  EXPECT_EQ(cluster.ssh.at("conf").shared_envs.at("K"), "$V");
}

TEST(ResourceSpec, ASingleNodeIsChiefAndMayBeLocal) {
  EXPECT_TRUE(
      parse_resource_spec("nodes: [{address: localhost, cpus: [0, 1]}]", "c").nodes[0].chief);
}

TEST(ResourceSpec, WritesWhatItReadsBack) {
  for (const std::string& text :
       {std::string(kTwoNodes),
        std::string("nodes: [{address: 'fe80::1', slots: 3, latency: 1e-4, intra_node: 80,"
                    " devices: {kind: T4, tflops: 8.1, memory_gib: 16,"
                    " memory_bandwidth_gb_per_s: 320, pcie_gb_per_s: 6.5}}]"),
        std::string("nodes: [{address: a, chief: true}, {address: b, role: server, price: 0.5}]\n"
                    "topology: [{name: s, nodes: [a, b], oversubscription: 2}]")}) {
    const Cluster cluster = parse_resource_spec(text, "c.yml");
    EXPECT_EQ(parse_resource_spec(to_yaml(cluster), "again"), cluster) << to_yaml(cluster);
  }
}

TEST(ResourceSpec, RefusesInOneLineThatSaysWhereAndWhat) {
  const auto expect = [](const std::string& yaml, const std::string& part) {
    const std::string message = refusal(yaml);
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  };
  expect("nodes: [{adress: a}]", "Did you mean 'address'?");
  expect("nodes:\n  - address: a\n    gpus: 2\n", "c.yml:3: nodes[0].gpus: a list of indices");
  expect("nodes: [{address: a, gpus: [0, 0]}]", "stands twice");
  expect("nodes: [{address: a, gpus: [-1]}]", "at least 0");
  expect("nodes: [{address: a}, {address: b}]", "2 nodes and no chief");
  expect("nodes: [{address: a, chief: true}, {address: b, chief: true}]", "2 chiefs (a, b)");
  expect("nodes: [{address: 127.0.0.1, chief: true}, {address: b}]", "127.0.0.1 among 2 nodes");
  expect("nodes: [{address: a, chief: true}, {address: a}]", "the address a stands twice");
  expect("nodes: [{address: a, chief: yess}]", "true or false expected, got 'yess'");
  expect("nodes: [{address: a, network_bandwidth: 0}]", "above 0");
  expect("nodes: [{address: a, network_bandwidth: .nan}]", "a number");
  expect("nodes: [{address: a, price: 0}]", "above 0");
  expect("nodes: [{address: a, role: boss}]", "worker or server");
  expect("nodes: [{address: a, chief: true, role: server}, {address: b}]", "must compute");
  expect("nodes: []", "'nodes', a list of machines");
  expect("- a", "a map with the keys nodes");
  expect("nodes: [", "not YAML");
  expect("", "a map with the keys");
  expect("nodes: [{address: a}]\ntopology: [{name: s, nodes: [b]}]", "names 'b'");
  expect("nodes: [{address: a}]\ntopology: [{name: s, nodes: [t]}, {name: t, nodes: [s]}]",
         "hangs below itself");
  expect("nodes: [{address: a, gpus: [0, 1], slots: 3}]", "from 1 to 2");
  expect("nodes: [{address: a}]\n---\nnodes: [{address: b}]", "c.yml:2: a second YAML document");
  expect("nodes: [{address: a}]\nssh: {g: {}, g: {}}", "'g' stands twice");
  expect("nodes: [{address: a, chief: true}, {address: b, ssh_config: workrs}]\nssh: {workers: {}}",
         "no group 'workrs' in ssh. Did you mean 'workers'?");
  expect("nodes: [{address: a}]\nssh: {g: {shared_envs: {K: 1, K: 2}}}", "'K' stands twice");
  expect("nodes: [{address: a, \"two\\nlines\": 1}]", "unknown key 'two\\nlines'");
}

// One node of many devices, named again and again.
TEST(ResourceSpec, RefusesARepeatedNodeBeforeItFillsTheMemory) {
  std::string yaml = "nodes:\n  - &n {address: a, chief: true, gpus: [0, 1, 2, 3]}\n";
  for (int i = 0; i < 50'000; ++i) yaml += "  - *n\n";
  EXPECT_NE(refusal(yaml).find("nodes[1]: the address a stands twice"), std::string::npos);
}

TEST(ResourceSpec, RefusesAliasesThatMultiply) {
  std::string variables;
  for (int i = 0; i < 1000; ++i) variables += "K" + std::to_string(i) + ": v, ";
  std::string yaml = "nodes: [{address: a}]\nssh:\n  g: &g {shared_envs: {" + variables + "}}\n";
  for (int i = 0; i < 10'000; ++i) yaml += "  h" + std::to_string(i) + ": *g\n";
  EXPECT_NE(refusal(yaml).find("shared_envs in all"), std::string::npos);
  std::string names;
  for (int i = 0; i < 1000; ++i) names += "n, ";
  yaml = "nodes: [{address: a}]\ntopology:\n  - &s {name: s, nodes: [" + names + "]}\n";
  for (int i = 0; i < 10'000; ++i) yaml += "  - *s\n";
  EXPECT_NE(refusal(yaml).find("below switches in all"), std::string::npos);
}

TEST(Address, IsAHostNameOrAnAddressAsItIsUsuallyWritten) {
  for (const char* good : {"10.0.0.1", "fe80::1", "fe80::1%eth0", "node-1.example.org", "a_b"}) {
    EXPECT_TRUE(is_address(good)) << good;
  }
  for (const char* bad : {"", "-oProxyCommand=x", "a b", "a/b", "a;b", "0x7f.1", "127.1",
                          "010.0.0.1", "2130706433", "1::2::3", "0:0:0:0:0:0:0:1", "[::1]"}) {
    EXPECT_FALSE(is_address(bad)) << bad;
  }
  for (const char* here : {"localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "::1"}) {
    EXPECT_TRUE(is_loopback(here)) << here;
  }
}

TEST(Ranks, TheChiefsDevicesComeFirst) {
  const Cluster cluster = parse_resource_spec(
      "nodes: [{address: a, cpus: [0, 1]}, {address: b, gpus: [1, 0], chief: true},"
      " {address: c, role: server}]",
      "c");
  std::vector<std::string> names;
  for (const Place& place : ranks_of(cluster)) names.push_back(device_name(cluster, place));
  EXPECT_EQ(names,
            (std::vector<std::string>{"b:GPU:0", "b:GPU:1", "a:CPU:0", "a:CPU:1", "c:CPU:0"}));
  EXPECT_TRUE(ranks_of(cluster).back().serves_only);
  EXPECT_EQ(device_name(cluster, ranks_of(cluster, true)[1]), "b:CPU:1");
  EXPECT_EQ(servers_of(cluster),
            (std::vector<std::string>{"a:CPU:0", "a:CPU:1", "b:CPU:0", "c:CPU:0"}));
}

TEST(ReadCluster, LocalRanks) {
  EXPECT_EQ(ranks_of(read_cluster("local:3")).size(), 3u);
  for (const char* bad : {"local:0", "local:", "local:x", "local:99999999999"}) {
    EXPECT_THROW(read_cluster(bad), Error) << bad;
  }
}

TEST(ReadCluster, HostFilesAndLists) {
  const Cluster hosts =
      read_text("hosts", "# mine\na slots=2 max_slots=4\nb:3\n[::2]:2\nfe80::1\n");
  ASSERT_EQ(hosts.nodes.size(), 4u);
  EXPECT_TRUE(hosts.nodes[0].chief);
  EXPECT_EQ(hosts.nodes[0].slots, 2u);
  EXPECT_EQ(hosts.nodes[1].slots, 3u);
  EXPECT_EQ(hosts.nodes[2].address, "::2");
  EXPECT_EQ(hosts.nodes[2].slots, 2u);
  EXPECT_EQ(hosts.nodes[3].address, "fe80::1");
  EXPECT_EQ(ranks_of(hosts).size(), 8u);
  EXPECT_EQ(read_text("hosts.json", "[\"a\", \"b\"]").nodes[1].address, "b");
  EXPECT_THROW(read_text("hosts", "a slots=0\n"), Error);
  std::string many;
  for (int i = 0; i < 64; ++i) many += "host" + std::to_string(i) + " slots=1024\n";
  EXPECT_THROW(read_text("hosts", many), Error) << "65,536 ranks";
  EXPECT_THROW(read_text("hosts", ""), Error);
  EXPECT_THROW(read_text("hosts.json", "{}"), Error);
  EXPECT_THROW(read_text("hosts.json", "[\"a\", [[[]]]]"), Error);
  EXPECT_THROW(read_cluster("/nowhere/c.yml"), Error);
}

// Data sets name them without an end.
TEST(ReadCluster, FilesWithoutAnEndAreToldByTheirText) {
  EXPECT_EQ(parse_cluster("nodes:\n  - address: a\n", "ID").nodes[0].address, "a");
  EXPECT_EQ(parse_cluster("# ours\nssh: {}\nnodes: [{address: a}]\n", "ID").nodes.size(), 1u);
  EXPECT_EQ(parse_cluster("\n[\"a\", \"b\"]", "ID").nodes.size(), 2u);
  EXPECT_EQ(parse_cluster("[::2]:2\nnodes:3\n", "ID").nodes[1].slots, 3u);
}

TEST(ShapeDigest, SeesDevicesAndLinksButNotSsh) {
  Cluster cluster = parse_resource_spec(kTwoNodes, "c");
  const Digest before = shape_digest(cluster);
  cluster.ssh["conf"].username = "other";
  EXPECT_EQ(shape_digest(cluster), before);
  cluster.nodes[1].bandwidth_bytes_per_s *= 2;
  EXPECT_NE(shape_digest(cluster), before);
}

}  // namespace
}  // namespace autodist::cluster
