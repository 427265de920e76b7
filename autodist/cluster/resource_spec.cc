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

// A node of the file with its place; false where it is the value of a key that is not there.
struct Field {
  YAML::Node node;
  At at;

  explicit operator bool() const { return static_cast<bool>(node); }
  Field operator[](const char* key) const { return {node[key], at.key(key)}; }
  Field operator[](std::size_t i) const { return {node[i], at.index(i)}; }
  // The scalar, for messages.
  [[nodiscard]] std::string shown() const { return node.IsScalar() ? node.Scalar() : "…"; }

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    at.refuse(node, format, std::forward<Args>(args)...);
  }
};

// What to write in place of an unknown word: the nearest one, else `otherwise` and all of them.
std::string hint_for(const std::string& word, const std::vector<std::string>& known,
                     const char* otherwise) {
  const std::string meant = nearest(word, known);
  return meant.empty() ? fmt::format("{} {}.", otherwise, fmt::join(known, ", "))
                       : fmt::format("Did you mean '{}'?", meant);
}

void expect_keys(const Field& map, const std::vector<std::string>& known) {
  if (!map.node.IsMap())
    map.refuse("a map with the keys {} expected. Write KEY: VALUE.", fmt::join(known, ", "));
  std::set<std::string> seen;
  for (const auto& entry : map.node) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      map.at.refuse(entry.first, "unknown key '{}'. {}", key, hint_for(key, known, "Take one of"));
    }
    if (!seen.insert(key).second)
      map.at.refuse(entry.first, "the key '{}' stands twice. Keep one.", key);
  }
}

std::string text_of(const Field& field) {
  if (!field.node.IsScalar()) field.refuse("a text expected. Write one word, or quote it.");
  return field.node.Scalar();
}

bool truth_of(const Field& field) {
  bool value = false;
  if (!field.node.IsScalar() || !YAML::convert<bool>::decode(field.node, value)) {
    field.refuse("true or false expected, got '{}'. Write one of them.", field.shown());
  }
  return value;
}

double number_of(const Field& field, double least) {
  double value = 0;
  const bool parsed = field.node.IsScalar() && YAML::convert<double>::decode(field.node, value);
  if (!parsed || !std::isfinite(value) || value < least) {
    field.refuse("a number of at least {} expected, got '{}'. Mend it.", least, field.shown());
  }
  return value;
}

std::uint32_t count_of(const Field& field, std::uint32_t least, std::uint32_t most) {
  const double value = number_of(field, least);
  if (value != std::floor(value) || value > most) {
    field.refuse("a whole number from {} to {} expected, got '{}'. Mend it.", least, most,
                 field.shown());
  }
  return static_cast<std::uint32_t>(value);
}

double positive(const Field& field) {
  const double value = number_of(field, 0);
  if (value == 0) field.refuse("a number above 0 expected. Mend it.");
  return value;
}

// Bytes per second of a number of Gbit/s, in which people like to write a unit.
double link_rate(const Field& field) {
  double value = 0;
  if (!field.node.IsScalar() || !YAML::convert<double>::decode(field.node, value) ||
      !std::isfinite(value) || value <= 0) {
    field.refuse("a number of Gbit/s above 0, without a unit, expected, got '{}'. 10 GB/s are 80.",
                 field.shown());
  }
  return kBytesPerGigabit * value;
}

std::vector<Device> devices_of(const Field& list, DeviceKind kind) {
  if (!list.node.IsSequence()) list.refuse("a list of indices expected. Write [0, 1], say.");
  std::vector<Device> devices;
  std::set<std::uint32_t> seen;
  for (std::size_t i = 0; i < list.node.size(); ++i) {
    const std::uint32_t index = count_of(list[i], 0, kMostDevices - 1);
    if (!seen.insert(index).second)
      list.at.refuse(list.node[i], "the index {} stands twice. Keep one.", index);
    devices.push_back({kind, index, {}});
  }
  std::sort(devices.begin(), devices.end(),
            [](const Device& a, const Device& b) { return a.index < b.index; });
  return devices;
}

DeviceFigures figures_of(const Field& map) {
  expect_keys(map, {"kind", "tflops", "memory_gib", "memory_bandwidth_gb_per_s", "tf32_tflops",
                    "half_tflops", "pcie_gb_per_s"});
  DeviceFigures figures;
  if (const Field kind = map["kind"]) figures.kind = text_of(kind);
  if (const Field tflops = map["tflops"]) figures.tflops = positive(tflops);
  if (const Field gib = map["memory_gib"]) {
    figures.memory =
        Bytes(static_cast<std::int64_t>(std::min(positive(gib), 1e9) * 1024 * 1024 * 1024));
  }
  if (const Field bandwidth = map["memory_bandwidth_gb_per_s"]) {
    figures.memory_bandwidth_bytes_per_s = 1e9 * positive(bandwidth);
  }
  if (const Field tflops = map["tf32_tflops"]) figures.tf32_tflops = positive(tflops);
  if (const Field tflops = map["half_tflops"]) figures.half_tflops = positive(tflops);
  if (const Field rate = map["pcie_gb_per_s"]) figures.pcie_bytes_per_s = 1e9 * positive(rate);
  return figures;
}

Node node_of(const Field& map) {
  expect_keys(map, {"address", "cpus", "gpus", "chief", "ssh_config", "network_bandwidth",
                    "latency", "devices", "intra_node", "slots", "role", "price", "spare"});
  Node node;
  const Field address = map["address"];
  if (!address) map.refuse("the key 'address' is missing. Add it.");
  node.address = text_of(address);
  if (!is_address(node.address)) {
    address.refuse("'{}' is no IP address or host name. Name a machine.", node.address);
  }
  if (const Field cpus = map["cpus"]) node.cpus = devices_of(cpus, DeviceKind::kCpu);
  if (node.cpus.empty()) node.cpus = {Device{}};  // CPU 0 always exists
  if (const Field gpus = map["gpus"]) node.gpus = devices_of(gpus, DeviceKind::kGpu);
  if (const Field chief = map["chief"]) node.chief = truth_of(chief);
  if (const Field group = map["ssh_config"]) node.ssh_config = text_of(group);
  if (const Field rate = map["network_bandwidth"]) {
    node.bandwidth_bytes_per_s = link_rate(rate);
    node.bandwidth_is_stated = true;
  }
  if (const Field latency = map["latency"]) {
    node.latency = Seconds(number_of(latency, 0));
    if (node.latency > kMostLatency) {
      latency.refuse("{} seconds, at most {} expected. 50 microseconds are 50e-6.",
                     node.latency.value, kMostLatency.value);
    }
  }
  if (const Field rate = map["intra_node"]) node.intra_node_bytes_per_s = link_rate(rate);
  const Field slots = map["slots"];
  if (slots) {
    const auto gpus = static_cast<std::uint32_t>(node.gpus.size());
    node.slots = count_of(slots, 1, gpus > 0 ? gpus : kMostDevices);
  }
  if (const Field price = map["price"]) node.price_per_hour = positive(price);
  if (const Field role = map["role"]) {
    const std::string word = text_of(role);
    if (word != "worker" && word != "server") role.refuse("'{}'. Write worker or server.", word);
    node.role = word == "server" ? NodeRole::kServer : NodeRole::kWorker;
  }
  if (node.role == NodeRole::kServer && node.slots > 1) {
    slots.refuse("{} of a server, which is one rank. Leave it out.", node.slots);
  }
  if (const Field devices = map["devices"]) {
    const DeviceFigures figures = figures_of(devices);
    for (Device& device : node.gpus.empty() ? node.cpus : node.gpus) device.figures = figures;
  }
  return node;
}

// Whether it waits to take another's place, which includes what that one is in the job.
bool is_spare(const Field& map) {
  const Field spare = map["spare"];
  if (!spare || !truth_of(spare)) return false;
  for (const char* key : {"chief", "role"}) {
    if (const Field set = map[key]) set.refuse("of a spare, which has none. Leave it out.");
  }
  return true;
}

SshConfig ssh_of(const Field& map) {
  expect_keys(map, {"username", "port", "key_file", "python_venv", "shared_envs"});
  SshConfig config;
  if (const Field name = map["username"]) config.username = text_of(name);
  if (const Field port = map["port"]) {
    config.port = static_cast<std::uint16_t>(count_of(port, 1, 65'535));
  }
  if (const Field file = map["key_file"]) config.key_file = text_of(file);
  if (const Field venv = map["python_venv"]) config.python_venv = text_of(venv);
  if (const Field variables = map["shared_envs"]) {
    if (!variables.node.IsMap()) variables.refuse("a map expected. Write NAME: value.");
    for (const auto& entry : variables.node) {
      const std::string name = text_of({entry.first, variables.at});
      const std::string value = text_of({entry.second, variables.at.key(name)});
      if (!config.shared_envs.emplace(name, value).second) {
        variables.at.refuse(entry.first, "the name '{}' stands twice. Keep one.", name);
      }
    }
  }
  return config;
}

Switch switch_of(const Field& map) {
  expect_keys(map, {"name", "nodes", "oversubscription"});
  Switch result;
  const Field name = map["name"];
  if (!name) map.refuse("the key 'name' is missing. Add it.");
  result.name = text_of(name);
  const Field nodes = map["nodes"];
  if (!nodes || !nodes.node.IsSequence())
    map.refuse("a switch without its nodes. Add a list of addresses: nodes: [a, b].");
  for (std::size_t i = 0; i < nodes.node.size(); ++i) result.nodes.push_back(text_of(nodes[i]));
  if (const Field times = map["oversubscription"]) result.oversubscription = number_of(times, 1);
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
  const Field root{load(text, where), At(where, "")};
  expect_keys(root, {"nodes", "ssh", "topology"});
  const Field nodes = root["nodes"];
  if (!nodes || !nodes.node.IsSequence() || nodes.node.size() == 0) {
    root.refuse("'nodes', a list of machines, expected. Begin with it.");
  }
  if (nodes.node.size() > kMostNodes)
    root.at.refuse(nodes.node, "{} nodes, at most {}. Leave some out.", nodes.node.size(),
                   kMostNodes);
  Cluster cluster;
  std::set<std::string> addresses;  // before one alias of a large node fills the memory
  std::size_t devices = 0;
  for (std::size_t i = 0; i < nodes.node.size(); ++i) {
    const Field here = nodes[i];
    const Node node = node_of(here);
    (is_spare(here) ? cluster.spares : cluster.nodes).push_back(node);
    if (!addresses.insert(node.address).second) {
      here.refuse("the address {} stands twice. Keep one; several ranks on it are `slots: 2`.",
                  node.address);
    }
    devices += node.cpus.size() + node.gpus.size();
    if (devices > kMostDevicesInAll) {
      here.refuse("more than {} devices in all. Leave some out.", kMostDevicesInAll);
    }
  }
  if (const Field groups = root["ssh"]) {
    if (!groups.node.IsMap())
      groups.refuse("a map of groups expected. Write ssh: {{workers: {{username: me}}}}.");
    std::size_t variables = 0;
    for (const auto& group : groups.node) {
      const std::string name = text_of({group.first, groups.at});
      if (!cluster.ssh.emplace(name, ssh_of({group.second, groups.at.key(name)})).second) {
        groups.at.refuse(group.first, "the group '{}' stands twice. Keep one.", name);
      }
      variables += cluster.ssh[name].shared_envs.size();
      if (variables > kMostNamesInAll) {
        groups.at.refuse(group.first, "more than {} shared_envs in all. Leave some out.",
                         kMostNamesInAll);
      }
    }
  }
  std::vector<std::string> groups;
  for (const auto& [name, group] : cluster.ssh) groups.push_back(name);
  for (std::size_t i = 0; i < nodes.node.size(); ++i) {
    const Field named = nodes[i]["ssh_config"];
    // A file without any group is one of ranks that are started by other means.
    if (!named || groups.empty() || cluster.ssh.count(named.node.Scalar()) > 0) continue;
    named.refuse("no group '{}' in ssh. {}", named.node.Scalar(),
                 hint_for(named.node.Scalar(), groups, "Add it, or take one of"));
  }
  if (const Field switches = root["topology"]) {
    if (!switches.node.IsSequence())
      switches.refuse("a list of switches expected. Write - {{name: …, nodes: […]}}.");
    std::size_t names = 0;
    for (std::size_t i = 0; i < switches.node.size(); ++i) {
      const Field here = switches[i];
      cluster.switches.push_back(switch_of(here));
      names += cluster.switches.back().nodes.size();
      if (names > kMostNamesInAll) {
        here.refuse("more than {} names below switches in all. Leave some out.", kMostNamesInAll);
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
           "{}: {}, a spare: the others cannot reach it. Give the address that they see.", where,
           spare.address);
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
