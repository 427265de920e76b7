// Of what kind GPUs are whose kind the cluster file does not say.

#pragma once

#include <string>

#include "autodist/cluster/cluster.h"

namespace autodist::planning {

// The node's GPUs of which its file says neither kind nor rates are of this model, as their driver
// names it, where the device table has it; else, and where it is "", they stay as they are.
void name_gpus(cluster::Node& node, const std::string& model);

}  // namespace autodist::planning
