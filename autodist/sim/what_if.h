// A cluster changed as a question asks: more nodes, another link, another batch.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/cluster/cluster.h"

namespace autodist::sim {

struct WhatIf {
  std::uint32_t nodes = 0;  // 0: as they are
  double bandwidth = 0;     // Gbit/s of every node's NIC; 0: as it is
  double latency = -1;      // seconds; below 0: as it is
  std::string device;       // every replica computes on this kind; "": as it does
  std::int64_t batch = 0;   // per replica; 0: as captured
};

// "nodes=16,bandwidth=25,latency=2e-5,device=A100,batch=32". Throws Error(kUsage) for an unknown
// key (nearest known one given) or a value that makes no sense.
WhatIf parse_what_if(const std::string& text);

// A question with several answers: one value may be a list (`bandwidth=10|25|100`) or, of `nodes`
// and `batch`, a range (`nodes=1..16`: its ends, and the powers of two between them).
struct WhatIfs {
  struct Each {
    std::string value;  // "16"; empty where nothing varies
    WhatIf what_if;
  };
  std::string varies;      // "nodes"; empty: nothing
  std::vector<Each> each;  // at least one
};
// Throws Error(kUsage) as parse_what_if(), and where two keys vary.
WhatIfs parse_what_ifs(const std::string& text);

// Fewer nodes: the first ones. More: copies of the last node that computes, named "what-if-17".
// Throws Error(kUsage) where too few nodes would be left to have the chief.
cluster::Cluster changed(cluster::Cluster cluster, const WhatIf& what_if);

}  // namespace autodist::sim
