#include "autodist/cluster/resource_spec.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/cluster/address.h"

namespace autodist::cluster {
namespace {

constexpr std::size_t kMostNodes = 65'535;
constexpr std::size_t kMostRanks = 65'535;
constexpr std::uint32_t kMostDevices = 1024;
// Aliases let a small file ask for many.
constexpr std::size_t kMostDevicesInAll = 1 << 20;
constexpr std::size_t kMostNamesInAll = 1 << 17;  // below switches; of shared_envs
constexpr Seconds kMostLatency{10};               // what is more was meant in another unit

// A place in the file, for messages: "cluster.yml:7: nodes[1].gpus".
class At {
 public:
  At(std::string where, std::string path) : where_(std::move(where)), path_(std::move(path)) {}

  [[nodiscard]] At key(const std::string& name) const {
    return {where_, path_.empty() ? name : path_ + "." + name};
  }
  [[nodiscard]] At index(std::size_t i) const { return {where_, fmt::format("{}[{}]", path_, i)}; }

  template <typename... Args>
  [[noreturn]] void refuse(const YAML::Node& node, fmt::format_string<Args...> format,
                           Args&&... args) const {
    const YAML::Mark mark = node.Mark();
    const std::string line = mark.is_null() ? "" : fmt::format(":{}", mark.line + 1);
    fail(ErrorCode::kUsage, "{}{}: {}{}{}", where_, line, path_, path_.empty() ? "" : ": ",
         fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::string where_;
  std::string path_;
};

void expect_keys(const YAML::Node& map, const At& at, const std::vector<std::string>& known) {
  if (!map.IsMap())
    at.refuse(map, "a map with the keys {} expected. Write KEY: VALUE.", fmt::join(known, ", "));
  std::set<std::string> seen;
  for (const auto& entry : map) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      const std::string meant = nearest(key, known);
      at.refuse(entry.first, "unknown key '{}'. {}", key,
                meant.empty() ? fmt::format("Take one of {}.", fmt::join(known, ", "))
                              : fmt::format("Did you mean '{}'?", meant));
    }
    if (!seen.insert(key).second)
      at.refuse(entry.first, "the key '{}' stands twice. Keep one.", key);
  }
}

std::string text_of(const YAML::Node& node, const At& at) {
  if (!node.IsScalar()) at.refuse(node, "a text expected. Write one word, or quote it.");
  return node.Scalar();
}

bool truth_of(const YAML::Node& node, const At& at) {
  bool value = false;
  if (!node.IsScalar() || !YAML::convert<bool>::decode(node, value)) {
    at.refuse(node, "true or false expected, got '{}'. Write one of them.",
              node.IsScalar() ? node.Scalar() : "…");
  }
  return value;
}

double number_of(const YAML::Node& node, const At& at, double least) {
  double value = 0;
  const bool parsed = node.IsScalar() && YAML::convert<double>::decode(node, value);
  if (!parsed || !std::isfinite(value) || value < least) {
    at.refuse(node, "a number of at least {} expected, got '{}'. Mend it.", least,
              node.IsScalar() ? node.Scalar() : "…");
  }
  return value;
}

std::uint32_t count_of(const YAML::Node& node, const At& at, std::uint32_t least,
                       std::uint32_t most) {
  const double value = number_of(node, at, least);
  if (value != std::floor(value) || value > most) {
    at.refuse(node, "a whole number from {} to {} expected, got '{}'. Mend it.", least, most,
              node.Scalar());
  }
  return static_cast<std::uint32_t>(value);
}

double positive(const YAML::Node& node, const At& at) {
  const double value = number_of(node, at, 0);
  if (value == 0) at.refuse(node, "a number above 0 expected. Mend it.");
  return value;
}

// Bytes per second of a number of Gbit/s, in which people like to write a unit.
double link_rate(const YAML::Node& node, const At& at) {
  double value = 0;
  if (!node.IsScalar() || !YAML::convert<double>::decode(node, value) || !std::isfinite(value) ||
      value <= 0) {
    at.refuse(node,
              "a number of Gbit/s above 0, without a unit, expected, got '{}'. 10 GB/s are 80.",
              node.IsScalar() ? node.Scalar() : "…");
  }
  return kBytesPerGigabit * value;
}

std::vector<Device> devices_of(const YAML::Node& list, const At& at, DeviceKind kind) {
  if (!list.IsSequence()) at.refuse(list, "a list of indices expected. Write [0, 1], say.");
  std::vector<Device> devices;
  std::set<std::uint32_t> seen;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::uint32_t index = count_of(list[i], at.index(i), 0, kMostDevices - 1);
    if (!seen.insert(index).second)
      at.refuse(list[i], "the index {} stands twice. Keep one.", index);
    devices.push_back({kind, index, {}});
  }
  std::sort(devices.begin(), devices.end(),
            [](const Device& a, const Device& b) { return a.index < b.index; });
  return devices;
}

DeviceFigures figures_of(const YAML::Node& map, const At& at) {
  expect_keys(map, at, {"kind", "tflops", "memory_gib", "memory_bandwidth_gb_per_s"});
  DeviceFigures figures;
  if (map["kind"]) figures.kind = text_of(map["kind"], at.key("kind"));
  if (map["tflops"]) figures.tflops = positive(map["tflops"], at.key("tflops"));
  if (map["memory_gib"]) {
    figures.memory = Bytes(static_cast<std::int64_t>(
        std::min(positive(map["memory_gib"], at.key("memory_gib")), 1e9) * 1024 * 1024 * 1024));
  }
  if (map["memory_bandwidth_gb_per_s"]) {
    figures.memory_bandwidth_bytes_per_s =
        1e9 * positive(map["memory_bandwidth_gb_per_s"], at.key("memory_bandwidth_gb_per_s"));
  }
  return figures;
}

Node node_of(const YAML::Node& map, const At& at) {
  expect_keys(map, at,
              {"address", "cpus", "gpus", "chief", "ssh_config", "network_bandwidth", "latency",
               "devices", "intra_node", "slots", "role", "price", "spare"});
  Node node;
  if (!map["address"]) at.refuse(map, "the key 'address' is missing. Add it.");
  node.address = text_of(map["address"], at.key("address"));
  if (!is_address(node.address)) {
    at.key("address").refuse(map["address"], "'{}' is no IP address or host name. Name a machine.",
                             node.address);
  }
  if (map["cpus"]) node.cpus = devices_of(map["cpus"], at.key("cpus"), DeviceKind::kCpu);
  if (node.cpus.empty()) node.cpus = {Device{}};  // CPU 0 always exists
  if (map["gpus"]) node.gpus = devices_of(map["gpus"], at.key("gpus"), DeviceKind::kGpu);
  if (map["chief"]) node.chief = truth_of(map["chief"], at.key("chief"));
  if (map["ssh_config"]) node.ssh_config = text_of(map["ssh_config"], at.key("ssh_config"));
  if (map["network_bandwidth"]) {
    node.bandwidth_bytes_per_s = link_rate(map["network_bandwidth"], at.key("network_bandwidth"));
  }
  if (map["latency"]) {
    node.latency = Seconds(number_of(map["latency"], at.key("latency"), 0));
    if (node.latency > kMostLatency) {
      at.key("latency").refuse(map["latency"],
                               "{} seconds, at most {} expected. 50 microseconds are 50e-6.",
                               node.latency.value, kMostLatency.value);
    }
  }
  if (map["intra_node"]) {
    node.intra_node_bytes_per_s = link_rate(map["intra_node"], at.key("intra_node"));
  }
  if (map["slots"]) {
    const auto gpus = static_cast<std::uint32_t>(node.gpus.size());
    node.slots = count_of(map["slots"], at.key("slots"), 1, gpus > 0 ? gpus : kMostDevices);
  }
  if (map["price"]) node.price_per_hour = positive(map["price"], at.key("price"));
  if (map["role"]) {
    const std::string role = text_of(map["role"], at.key("role"));
    if (role != "worker" && role != "server") {
      at.key("role").refuse(map["role"], "'{}'. Write worker or server.", role);
    }
    node.role = role == "server" ? NodeRole::kServer : NodeRole::kWorker;
  }
  if (node.role == NodeRole::kServer && node.slots > 1) {
    at.key("slots").refuse(map["slots"], "{} of a server, which is one rank. Leave it out.",
                           node.slots);
  }
  if (map["devices"]) {
    const DeviceFigures figures = figures_of(map["devices"], at.key("devices"));
    for (Device& device : node.gpus.empty() ? node.cpus : node.gpus) device.figures = figures;
  }
  return node;
}

// Whether it waits to take another's place, which includes what that one is in the job.
bool is_spare(const YAML::Node& map, const At& at) {
  if (!map["spare"] || !truth_of(map["spare"], at.key("spare"))) return false;
  for (const char* key : {"chief", "role"}) {
    if (map[key]) at.key(key).refuse(map[key], "of a spare, which has none. Leave it out.");
  }
  return true;
}

SshConfig ssh_of(const YAML::Node& map, const At& at) {
  expect_keys(map, at, {"username", "port", "key_file", "python_venv", "shared_envs"});
  SshConfig config;
  if (map["username"]) config.username = text_of(map["username"], at.key("username"));
  if (map["port"]) {
    config.port = static_cast<std::uint16_t>(count_of(map["port"], at.key("port"), 1, 65'535));
  }
  if (map["key_file"]) config.key_file = text_of(map["key_file"], at.key("key_file"));
  if (map["python_venv"]) config.python_venv = text_of(map["python_venv"], at.key("python_venv"));
  if (const YAML::Node variables = map["shared_envs"]) {
    const At here = at.key("shared_envs");
    if (!variables.IsMap()) here.refuse(variables, "a map expected. Write NAME: value.");
    for (const auto& entry : variables) {
      const std::string name = text_of(entry.first, here);
      const std::string value = text_of(entry.second, here.key(name));
      if (!config.shared_envs.emplace(name, value).second) {
        here.refuse(entry.first, "the name '{}' stands twice. Keep one.", name);
      }
    }
  }
  return config;
}

Switch switch_of(const YAML::Node& map, const At& at) {
  expect_keys(map, at, {"name", "nodes", "oversubscription"});
  Switch result;
  if (!map["name"]) at.refuse(map, "the key 'name' is missing. Add it.");
  result.name = text_of(map["name"], at.key("name"));
  const YAML::Node nodes = map["nodes"];
  if (!nodes || !nodes.IsSequence())
    at.refuse(map, "a switch without its nodes. Add a list of addresses: nodes: [a, b].");
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    result.nodes.push_back(text_of(nodes[i], at.key("nodes").index(i)));
  }
  if (map["oversubscription"]) {
    result.oversubscription = number_of(map["oversubscription"], at.key("oversubscription"), 1);
  }
  return result;
}

void check_switches(const Cluster& cluster, const std::string& where) {
  std::set<std::string> known;
  for (const Node& node : cluster.nodes) known.insert(node.address);
  for (const Node& spare : cluster.spares) {
    for (const Switch& each : cluster.switches) {
      if (std::find(each.nodes.begin(), each.nodes.end(), spare.address) == each.nodes.end()) {
        continue;
      }
      fail(ErrorCode::kUsage,
           "{}: topology: switch '{}' names {}, a spare; one hangs where the machine does whose "
           "place it takes. Leave it out.",
           where, each.name, spare.address);
    }
  }
  for (const Switch& each : cluster.switches) {
    if (!known.insert(each.name).second) {
      fail(ErrorCode::kUsage, "{}: topology: the name '{}' stands twice. Give each switch its own.",
           where, each.name);
    }
  }
  std::map<std::string, std::string> above;  // the switch that a node or switch hangs below
  for (const Switch& each : cluster.switches) {
    for (const std::string& name : each.nodes) {
      if (known.count(name) == 0) {
        fail(ErrorCode::kUsage,
             "{}: topology: switch '{}' names '{}', no node or switch{} Name one.", where,
             each.name, name, nearest_hint(name, {known.begin(), known.end()}));
      }
      if (!above.emplace(name, each.name).second) {
        fail(ErrorCode::kUsage,
             "{}: topology: '{}' hangs below more than one switch. Leave it below one.", where,
             name);
      }
    }
  }
  for (const Switch& each : cluster.switches) {
    std::size_t height = 0;
    for (auto up = above.find(each.name); up != above.end(); up = above.find(up->second)) {
      if (++height > cluster.switches.size()) {
        fail(ErrorCode::kUsage,
             "{}: topology: '{}' hangs below itself. Take it out of what hangs below it.", where,
             each.name);
      }
    }
  }
}

// YAML::Load reads the first document and says nothing of a second; YAML::LoadAll does not return
// from some damaged files. At the start of a line "---" is never anything else.
void expect_one_document(const std::string& text, const std::string& where) {
  std::istringstream lines(text);
  bool content = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const bool marker = line.rfind("---", 0) == 0 &&
                        (line.size() == 3 || line[3] == ' ' || line[3] == '\r' || line[3] == '\t');
    if (marker && content) {
      fail(ErrorCode::kUsage, "{}:{}: a second YAML document, one expected. Keep the first.", where,
           number);
    }
    const std::size_t first = line.find_first_not_of(" \t\r");
    content |= marker || (first != std::string::npos && line[first] != '#' && line[0] != '%');
  }
}

YAML::Node load(const std::string& text, const std::string& where) {
  if (text.size() > static_cast<std::size_t>(kLongestFile)) {
    fail(ErrorCode::kUsage,
         "{}: {} bytes, at most {} expected of a resource specification. Name another file.", where,
         text.size(), kLongestFile);
  }
  expect_one_document(text, where);
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    fail(ErrorCode::kUsage,
         "{}:{}: not YAML: {}. Mend the line; a cluster file has `nodes:` with an address each.",
         where, error.mark.line + 1, error.msg);
  }
}

}  // namespace

Cluster parse_resource_spec(const std::string& text, const std::string& where) {
  const YAML::Node root = load(text, where);
  const At top(where, "");
  expect_keys(root, top, {"nodes", "ssh", "topology"});
  const YAML::Node nodes = root["nodes"];
  if (!nodes || !nodes.IsSequence() || nodes.size() == 0) {
    top.refuse(root, "'nodes', a list of machines, expected. Begin with it.");
  }
  if (nodes.size() > kMostNodes)
    top.refuse(nodes, "{} nodes, at most {}. Leave some out.", nodes.size(), kMostNodes);
  Cluster cluster;
  std::set<std::string> addresses;  // before one alias of a large node fills the memory
  std::size_t devices = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const At here = top.key("nodes").index(i);
    const Node node = node_of(nodes[i], here);
    (is_spare(nodes[i], here) ? cluster.spares : cluster.nodes).push_back(node);
    if (!addresses.insert(node.address).second) {
      here.refuse(nodes[i],
                  "the address {} stands twice. Keep one; several ranks on it are `slots: 2`.",
                  node.address);
    }
    devices += node.cpus.size() + node.gpus.size();
    if (devices > kMostDevicesInAll) {
      here.refuse(nodes[i], "more than {} devices in all. Leave some out.", kMostDevicesInAll);
    }
  }
  if (const YAML::Node groups = root["ssh"]) {
    if (!groups.IsMap())
      top.key("ssh").refuse(groups,
                            "a map of groups expected. Write ssh: {{workers: {{username: me}}}}.");
    std::size_t variables = 0;
    for (const auto& group : groups) {
      const std::string name = text_of(group.first, top.key("ssh"));
      if (!cluster.ssh.emplace(name, ssh_of(group.second, top.key("ssh").key(name))).second) {
        top.key("ssh").refuse(group.first, "the group '{}' stands twice. Keep one.", name);
      }
      variables += cluster.ssh[name].shared_envs.size();
      if (variables > kMostNamesInAll) {
        top.key("ssh").refuse(group.first, "more than {} shared_envs in all. Leave some out.",
                              kMostNamesInAll);
      }
    }
  }
  std::vector<std::string> groups;
  for (const auto& [name, group] : cluster.ssh) groups.push_back(name);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const YAML::Node named = nodes[i]["ssh_config"];
    // A file without any group is one of ranks that are started by other means.
    if (!named || groups.empty() || cluster.ssh.count(named.Scalar()) > 0) continue;
    const std::string meant = nearest(named.Scalar(), groups);
    top.key("nodes")
        .index(i)
        .key("ssh_config")
        .refuse(named, "no group '{}' in ssh. {}", named.Scalar(),
                meant.empty() ? fmt::format("Add it, or take one of {}.", fmt::join(groups, ", "))
                              : fmt::format("Did you mean '{}'?", meant));
  }
  if (const YAML::Node switches = root["topology"]) {
    if (!switches.IsSequence())
      top.key("topology")
          .refuse(switches, "a list of switches expected. Write - {{name: …, nodes: […]}}.");
    std::size_t names = 0;
    for (std::size_t i = 0; i < switches.size(); ++i) {
      const At here = top.key("topology").index(i);
      cluster.switches.push_back(switch_of(switches[i], here));
      names += cluster.switches.back().nodes.size();
      if (names > kMostNamesInAll) {
        here.refuse(switches[i], "more than {} names below switches in all. Leave some out.",
                    kMostNamesInAll);
      }
    }
  }
  settle(cluster, where);
  check_switches(cluster, where);
  return cluster;
}

void settle(Cluster& cluster, const std::string& where) {
  if (cluster.nodes.empty()) {
    fail(ErrorCode::kUsage,
         "{}: no node{}. Name one: `nodes:` with an address each in YAML, or a line per host, "
         "'HOST slots=2'.",
         where, cluster.spares.empty() ? "" : " but spares");
  }
  if (cluster.nodes.size() > kMostNodes) {
    fail(ErrorCode::kUsage, "{}: {} nodes, at most {}. Leave some out.", where,
         cluster.nodes.size(), kMostNodes);
  }
  if (cluster.nodes.size() == 1) cluster.nodes.front().chief = true;
  std::set<std::string> addresses;
  std::vector<std::string> chiefs;
  for (const Node& spare : cluster.spares) {
    addresses.insert(spare.address);
    if (is_loopback(spare.address)) {
      fail(ErrorCode::kUsage,
           "{}: {}, a spare: the others cannot reach it. Give the address that "
           "they see.",
           where, spare.address);
    }
  }
  for (const Node& node : cluster.nodes) {
    if (!is_address(node.address)) {
      fail(ErrorCode::kUsage, "{}: '{}' is no IP address or host name. Name a machine.", where,
           node.address);
    }
    if (!addresses.insert(node.address).second) {
      fail(ErrorCode::kUsage,
           "{}: the address {} stands twice. Keep one; several ranks on it are `slots: 2`.", where,
           node.address);
    }
    if (cluster.nodes.size() + cluster.spares.size() > 1 && is_loopback(node.address)) {
      fail(ErrorCode::kUsage,
           "{}: {} among {} nodes: the others cannot reach it. Give the address that they see.",
           where, node.address, cluster.nodes.size());
    }
    if (node.chief) chiefs.push_back(node.address);
  }
  std::size_t slots = 0;
  for (const Node& node : cluster.nodes) slots += node.slots;
  if (slots > kMostRanks) {
    fail(ErrorCode::kUsage, "{}: {} slots in all, at most {} expected. Give fewer.", where, slots,
         kMostRanks);
  }
  if (chiefs.empty()) {
    fail(ErrorCode::kUsage, "{}: {} nodes and no chief. Add `chief: true` to one.", where,
         cluster.nodes.size());
  }
  if (chiefs.size() > 1) {
    fail(ErrorCode::kUsage,
         "{}: {} chiefs ({}), exactly one expected. Take `chief: true` from the others.", where,
         chiefs.size(), fmt::join(chiefs, ", "));
  }
  if (chief_of(cluster).role == NodeRole::kServer) {
    fail(ErrorCode::kUsage, "{}: the chief {} only serves; it must compute. Choose another chief.",
         where, chiefs.front());
  }
}

}  // namespace autodist::cluster
