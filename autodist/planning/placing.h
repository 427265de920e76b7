// From what a user names to a graph, devices and a request that search/placement understands, and
// from its answer to what people and files read.

#pragma once

#include <string>
#include <vector>

#include "autodist/cluster/cluster.h"
#include "autodist/ir/graph.h"
#include "autodist/search/placement/place.h"
#include "autodist/strategy/strategy.h"

namespace autodist::planning {

// A published task graph (plain or gzipped), a captured graph, or the name of a shipped one; the
// latter two at their example batch; or generated:FAMILY:SEED (generators.h). Throws Error(kUsage).
// A captured one has the times of the CPU that captured it: on_cluster() gives it those of others.
search::placement::TaskGraph load_task_graph(const std::string& name_or_path);

// Whether load_task_graph() takes it for a step of ours, which a strategy can run.
bool is_captured(const std::string& name_or_path);

struct NamedDevice {
  std::string name;
  search::placement::ListDevice figures;
};

// The ranks of a cluster as devices, in the time unit of `graph`: speeds relative to the first one
// with a known figure (sim::figures_of), links from the nodes' bandwidths. Throws Error(kUsage) for
// a kind that nobody knows.
std::vector<NamedDevice> devices_of_cluster(const cluster::Cluster& cluster,
                                            const search::placement::TaskGraph& graph);

// A captured step at its example batch, as it is on a cluster: tasks take what their ops take on
// the first device whose rates are known, by roofline, and speeds are relative to that one by the
// time of the whole step; without such a device times are those that were measured.
struct OnCluster {
  search::placement::TaskGraph tasks;
  std::vector<NamedDevice> devices;
};
OnCluster on_cluster(const ir::Graph& graph, const cluster::Cluster& cluster);

// What a published file states, or `count` accelerators with Placeto's links (7,600 bytes/µs). With
// count 0 the file must state its devices: throws Error(kUsage) otherwise.
std::vector<NamedDevice> devices_by_count(std::size_t count,
                                          const search::placement::TaskGraph& graph);

const char* name_of(search::placement::Objective objective);  // "makespan", "throughput"

// "10s", "500ms" or "2m". A number alone would be seconds here and simulations for `plan`: it is
// refused, as what is no time is. Throws Error(kUsage).
Seconds parse_duration(const std::string& text);

// Devices by row, then the predicted time, the bound and the gap.
// For a terminal of so many columns (0: any number).
std::string placement_table(const search::placement::TaskGraph& graph,
                            const std::vector<NamedDevice>& devices,
                            const search::placement::PlaceRequest& request,
                            const search::placement::PlaceResult& result, std::size_t columns = 0);
// The facts of placement_table() as one JSON object. With `tasks`, also the device of every task
// (docs/formats/placement.md).
std::string placement_json(const search::placement::TaskGraph& graph,
                           const std::vector<NamedDevice>& devices,
                           const search::placement::PlaceRequest& request,
                           const search::placement::PlaceResult& result, bool tasks);

// The strategy that runs a captured graph so: device i of `result` is stage i of the cluster's
// ranks (the first of `replicas` equal parts of them; the others do the same with other rows), and
// every variable is updated where the ops are that touch it.
strategy::Strategy placement_strategy(const ir::Graph& graph, const cluster::Cluster& cluster,
                                      std::uint32_t replicas,
                                      const search::placement::PlaceResult& result);

// The tasks as a DOT graph, coloured by device; tensors that cross are bold.
std::string placement_dot(const search::placement::TaskGraph& graph,
                          const search::placement::PlaceResult& result);

}  // namespace autodist::planning
