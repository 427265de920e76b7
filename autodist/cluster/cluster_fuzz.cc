// Whatever a cluster file holds, in each of its three forms: it is refused by an Error of one line,
// or is a cluster whose YAML has the same nodes, groups and switches. (Figures may change in the
// last digit, and what is not UTF-8 cannot be written.)

#include <cstdint>
#include <cstdlib>
#include <string>

#include "autodist/base/error.h"
#include "autodist/cluster/cluster.h"

namespace {

using autodist::cluster::Cluster;
using Parse = Cluster (*)(const std::string&, const std::string&);

bool same_names(const Cluster& a, const Cluster& b) {
  if (a.nodes.size() != b.nodes.size() || a.ssh.size() != b.ssh.size() ||
      a.switches.size() != b.switches.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.nodes.size(); ++i) {
    if (a.nodes[i].address != b.nodes[i].address) return false;
  }
  return true;
}

Cluster parsed(const std::string& text, Parse parse, bool& accepted) {
  using namespace autodist;
  try {
    Cluster cluster = parse(text, "fuzz");
    accepted = true;
    return cluster;
  } catch (const Error& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) std::abort();
    accepted = false;
    return {};
  }
}

void read_and_write(const std::string& text, Parse parse) {
  using namespace autodist;
  bool accepted = false;
  const Cluster cluster = parsed(text, parse, accepted);
  if (!accepted) return;
  cluster::ranks_of(cluster);
  const std::string yaml = cluster::to_yaml(cluster);
  for (const char c : yaml) {
    if (static_cast<unsigned char>(c) >= 0x80) return;
  }
  const Cluster again = parsed(yaml, cluster::parse_resource_spec, accepted);
  if (!accepted || !same_names(cluster, again)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace autodist;
  const std::string text(reinterpret_cast<const char*>(data), size);
  read_and_write(text, cluster::parse_resource_spec);
  read_and_write(text, cluster::parse_host_file);
  read_and_write(text, cluster::parse_host_list);
  return 0;
}
