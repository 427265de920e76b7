// The machines of a job: nodes, devices, links. Read from an AutoDist resource specification
// (extended), a host file, or `local:N`.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "autodist/base/digest.h"
#include "autodist/base/units.h"

namespace autodist::cluster {

enum class DeviceKind : std::uint8_t { kCpu, kGpu };

// What the extension `devices:` tells about the accelerators or CPUs of a node; 0 where unknown.
struct DeviceFigures {
  std::string kind;  // "A100"
  double tflops = 0;
  Bytes memory;
  double memory_bandwidth_bytes_per_s = 0;
  // Of dense products on matrix units, in TF32, and of 16-bit numbers of either kind; 0: not said.
  double tf32_tflops = 0;
  double half_tflops = 0;
  double pcie_bytes_per_s = 0;  // between a GPU's memory and its host's, each way

  friend bool operator==(const DeviceFigures&, const DeviceFigures&);
};

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  std::uint32_t index = 0;
  DeviceFigures figures;

  friend bool operator==(const Device&, const Device&);
};

enum class NodeRole : std::uint8_t {
  kWorker,
  kServer
};  // a server owns slices and computes nothing

struct Node {
  std::string address;       // IP literal, host name or localhost
  std::vector<Device> cpus;  // CPU 0 always exists
  std::vector<Device> gpus;
  bool chief = false;
  std::string ssh_config;  // name of the ssh group; "" for none
  NodeRole role = NodeRole::kWorker;
  std::uint32_t slots = 0;               // ranks on this node; 0: one per device
  double bandwidth_bytes_per_s = 125e6;  // NIC; `network_bandwidth` (Gbit/s), default 1
  bool bandwidth_is_stated = false;      // by the file; changes only what is said of it
  Seconds latency{50e-6};
  double intra_node_bytes_per_s = 10e9;
  double price_per_hour = 0;  // `price`, in any currency; 0: not known

  friend bool operator==(const Node&, const Node&);
};

struct SshConfig {
  std::string username;
  std::uint16_t port = 22;
  std::string key_file;
  std::string python_venv;
  std::map<std::string, std::string> shared_envs;

  friend bool operator==(const SshConfig&, const SshConfig&);
};

// Nodes below one switch. `oversubscription` o: the uplink carries 1/o of the sum of its ports.
struct Switch {
  std::string name;
  std::vector<std::string> nodes;  // addresses, or names of other switches
  double oversubscription = 1;

  friend bool operator==(const Switch&, const Switch&);
};

struct Cluster {
  std::vector<Node> nodes;   // as in the file
  std::vector<Node> spares;  // have no part until they take a lost machine's place (members.h)
  std::map<std::string, SshConfig> ssh;
  std::vector<Switch> switches;

  friend bool operator==(const Cluster&, const Cluster&);
};

// The place of one rank: a device of a node.
struct Place {
  std::size_t node = 0;  // index into Cluster::nodes
  Device device;
  std::uint32_t local_rank = 0;  // counts the ranks of its node
  bool serves_only = false;
};

// `text` as an AutoDist resource specification; `where` names it in messages. Throws Error(kUsage):
// one line with the key, what was found, what was expected, and the nearest known key.
Cluster parse_resource_spec(const std::string& text, const std::string& where);

// `text` as an MPI or Horovod host file, or as a JSON list of hosts; the first one is the chief.
Cluster parse_host_file(const std::string& text, const std::string& where);
Cluster parse_host_list(const std::string& text, const std::string& where);

// Any of these three: by the end of the name (.yml, .yaml, .json), else by what the text is.
Cluster parse_cluster(const std::string& text, const std::string& name);

// What a user types: `local:N` (N ranks on this machine), or the path of a resource specification,
// of an MPI/Horovod host file ("host slots=N", "host:N") or of a JSON list of hosts.
Cluster read_cluster(const std::string& specification);

// Writes a resource specification that parses back to the same Cluster.
std::string to_yaml(const Cluster& cluster);

// "10.0.0.1:GPU:0"
std::string device_name(const Cluster& cluster, const Place& place);
// The node's address in a device's name.
std::string address_of(const std::string& device);

// The ranks: the chief's devices first, then the other nodes in file order, devices ascending. A
// node's devices are its GPUs (the first `slots` of them, if given), or its CPUs when it has none;
// there `slots` ranks share the cores, as CPU 0 to slots - 1. With `cpu_only`, one CPU rank stands
// for each listed GPU.
std::vector<Place> ranks_of(const Cluster& cluster, bool cpu_only = false);

// Of these the ones that compute, which servers do not.
std::vector<Place> computing_ranks_of(const Cluster& cluster, bool cpu_only = false);

// Devices that may own slices on parameter-server paths, in file order: CPU 0 of every node, and
// the further CPUs of a node that has no GPUs (AutoDist's rule).
std::vector<std::string> servers_of(const Cluster& cluster);

const Node& chief_of(const Cluster& cluster);

// The least bandwidth and the largest latency of all nodes; 0 without nodes.
struct SlowestLink {
  double bytes_per_s = 0;
  Seconds latency;
};
SlowestLink slowest_link(const Cluster& cluster);

// Of what shapes a plan: addresses, devices, roles, links; not ssh.
Digest shape_digest(const Cluster& cluster);

}  // namespace autodist::cluster
