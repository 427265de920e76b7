// Which machines of a cluster a job has, when some are lost.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "autodist/cluster/cluster.h"

namespace autodist::cluster {

struct Members {
  Cluster cluster;  // without the lost ones; its spares are those that are still free
  // By the address of a lost machine whose place a spare has taken: that spare's.
  std::map<std::string, std::string> stand_ins;
};

// A lost machine's place is taken by the first spare of the file that is free: rank numbers, role
// and switch stay. Where none is left the machine is left out, and the ranks behind it have lower
// numbers. `lost` is in the order of the losses; a spare that has taken a place may be lost, too.
// Addresses that the cluster has not are passed over. Throws Error(kUsage) where the chief is lost.
Members without(const Cluster& cluster, const std::vector<std::string>& lost);

}  // namespace autodist::cluster
