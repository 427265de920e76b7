// Ranks that somebody else started: which launcher it was, and what it says of this process.
//
// torchrun, Open MPI, MPICH, Slurm and Kubeflow each leave a rank and a size in the environment,
// and no two of them under the same names.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autodist/cluster/members.h"
#include "autodist/job/place.h"

namespace autodist::job {

struct Launched {
  std::string by;  // "torchrun", "Open MPI", "MPICH", "Slurm", "Kubeflow"
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::optional<std::uint32_t> local_rank;  // among the ranks of this machine
  std::optional<std::uint32_t> local_size;
  // Where the chief may listen: only of launchers that leave the port to the program.
  std::string chief_address;
  std::uint16_t chief_port = 0;
  // Equal at all ranks of a job, and at no other job; empty where the launcher has none.
  std::string job_id;
  // A host file of the job's machines ("host slots=N" a line); empty where the launcher has none.
  std::string host_file;
};

// Nothing for a process that no known launcher started. Throws Error(kUsage) naming the variable
// that is missing or wrong.
std::optional<Launched> launched_by(const Environment& environment);

// The launcher of this process: launched_by() unless AUTODIST_RANK says all there is to say.
std::optional<Launched> launcher_of(const Environment& environment);

// `specification`, or where that is empty what AUTODIST_CLUSTER names; empty: neither.
std::string specified(const std::string& specification, const Environment& environment);

// The cluster that `specification` names (cluster::read_cluster), without the machines that this
// process's job has lost (lost_machines). An empty one is what the launcher started, else this
// machine alone. Throws Error(kUsage) where a launcher names no machines and not all of its ranks
// are on this one.
cluster::Members members_of(const std::string& specification,
                            const std::optional<Launched>& launched,
                            const Environment& environment);

// Which rank of the cluster a launched process is: launchers number ranks in their own order, so it
// goes by machine and local rank. Throws Error(kUsage) where sizes differ or this machine is none
// of the cluster's.
std::uint32_t rank_in(const cluster::Cluster& cluster, bool cpu_only, const Launched& launched);

// Whether another program has started this process as a rank of a job, or says so in variables that
// are wrong.
bool is_launched(const Environment& environment);

// Whether this process becomes the job's rank 0: what that one alone reads and writes is looked at
// before the ranks meet. Throws as members_of() and rank_in().
bool becomes_chief(const std::string& specification, bool cpu_only, const Environment& environment);

// Slurm's short form, "gpu[01-03,7],head" -> gpu01 gpu02 gpu03 gpu7 head. Throws Error(kUsage).
std::vector<std::string> expand_node_list(const std::string& list);

// Slurm's counts per node, "2(x3),1" -> 2 2 2 1. Throws Error(kUsage).
std::vector<std::uint32_t> expand_counts(const std::string& counts);

}  // namespace autodist::job
