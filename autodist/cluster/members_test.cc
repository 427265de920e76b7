#include "autodist/cluster/members.h"

#include <gtest/gtest.h>

#include "autodist/base/error.h"

namespace autodist::cluster {
namespace {

Cluster four_machines(bool with_spares) {
  std::string text = R"(
nodes:
  - {address: 10.0.0.1, chief: true}
  - {address: 10.0.0.2, slots: 2, ssh_config: a}
  - {address: 10.0.0.3, role: server, ssh_config: a}
)";
  if (with_spares) {
    text += R"(
  - {address: 10.0.0.8, slots: 2, ssh_config: a, spare: true}
  - {address: 10.0.0.9, slots: 2, ssh_config: a, spare: true}
)";
  }
  return parse_resource_spec(text + R"(
ssh: {a: {username: me}}
topology:
  - {name: left, nodes: [10.0.0.1, 10.0.0.2]}
  - {name: right, nodes: [10.0.0.3]}
)",
                             "c.yml");
}

std::vector<std::string> ranks(const Cluster& cluster) {
  std::vector<std::string> names;
  for (const Place& place : ranks_of(cluster)) names.push_back(device_name(cluster, place));
  return names;
}

using Names = std::vector<std::string>;

TEST(Members, NobodyLostIsTheCluster) {
  const Cluster cluster = four_machines(true);
  EXPECT_EQ(ranks(cluster),
            (Names{"10.0.0.1:CPU:0", "10.0.0.2:CPU:0", "10.0.0.2:CPU:1", "10.0.0.3:CPU:0"}))
      << "a spare is no rank";
  EXPECT_EQ(without(cluster, {}).cluster, cluster);
  EXPECT_EQ(shape_digest(cluster), shape_digest(four_machines(false)));
}

TEST(Members, ASpareTakesRanksRoleAndSwitch) {
  const Members left = without(four_machines(true), {"10.0.0.2"});
  EXPECT_EQ(ranks(left.cluster),
            (Names{"10.0.0.1:CPU:0", "10.0.0.8:CPU:0", "10.0.0.8:CPU:1", "10.0.0.3:CPU:0"}));
  EXPECT_EQ(left.cluster.switches[0].nodes, (Names{"10.0.0.1", "10.0.0.8"}));
  EXPECT_EQ(left.cluster.spares.size(), 1U);
  EXPECT_EQ(left.stand_ins.at("10.0.0.2"), "10.0.0.8");
  const Members server = without(four_machines(true), {"10.0.0.3"});
  EXPECT_EQ(server.cluster.nodes[2].role, NodeRole::kServer);
  EXPECT_EQ(server.cluster.switches[1].nodes, Names{"10.0.0.8"});
}

TEST(Members, ASpareMayBeLostInItsTurn) {
  const Members left = without(four_machines(true), {"10.0.0.2", "10.0.0.8"});
  EXPECT_EQ(left.cluster.nodes[1].address, "10.0.0.9");
  EXPECT_EQ(left.stand_ins.at("10.0.0.2"), "10.0.0.9");
  EXPECT_EQ(left.stand_ins.at("10.0.0.8"), "10.0.0.9");
  const Members unused = without(four_machines(true), {"10.0.0.8", "10.0.0.2"});
  EXPECT_EQ(unused.cluster.nodes[1].address, "10.0.0.9");
}

TEST(Members, WithoutASpareTheMachineIsLeftOut) {
  const Members left = without(four_machines(false), {"10.0.0.2", "10.0.0.77"});
  EXPECT_EQ(ranks(left.cluster), (Names{"10.0.0.1:CPU:0", "10.0.0.3:CPU:0"}));
  EXPECT_EQ(left.cluster.switches[0].nodes, Names{"10.0.0.1"});
  EXPECT_TRUE(left.stand_ins.empty());
  const Members last =
      without(four_machines(true), {"10.0.0.2", "10.0.0.3", "10.0.0.8", "10.0.0.9"});
  EXPECT_EQ(ranks(last.cluster), Names{"10.0.0.1:CPU:0"});
}

TEST(Members, TheChiefCannotBeReplaced) {
  EXPECT_THROW(without(four_machines(true), {"10.0.0.1"}), Error);
}

TEST(Members, SparesAreReadAndWritten) {
  const Cluster cluster = four_machines(true);
  EXPECT_EQ(cluster.spares.size(), 2U);
  EXPECT_EQ(parse_resource_spec(to_yaml(cluster), "again"), cluster);
  const auto refusal = [](const std::string& nodes, const std::string& rest = "") {
    try {
      parse_resource_spec("nodes: [" + nodes + "]\n" + rest, "c.yml");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal("{address: a, spare: true}").rfind("c.yml: no node but spares.", 0), 0U);
  EXPECT_EQ(refusal("{address: a}, {address: b, spare: true, chief: true}"),
            "c.yml:1: nodes[1].chief: of a spare, which has none. Leave it out.");
  EXPECT_EQ(refusal("{address: a}, {address: a, spare: true}"),
            "c.yml:1: nodes[1]: the address a stands twice. Keep one; several ranks on it are "
            "`slots: 2`.");
  EXPECT_EQ(
      refusal("{address: a}, {address: b, spare: true}", "topology: [{name: s, nodes: [a, b]}]"),
      "c.yml: topology: switch 's' names b, a spare; one hangs where the machine does whose "
      "place it takes. Leave it out.");
}

}  // namespace
}  // namespace autodist::cluster
