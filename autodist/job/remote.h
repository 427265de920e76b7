// Ranks on other machines, over OpenSSH: its own configuration, agent and known_hosts hold.
//
// What runs there is a script that the remote shell reads from its standard input, so neither the
// key nor the user's settings stand in any list of processes. The input stays open as long as the
// rank is wanted: when it ends, also because this machine is gone, the rank is told to end.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "autodist/base/error.h"
#include "autodist/cluster/cluster.h"
#include "autodist/job/launch.h"
#include "autodist/job/place.h"

namespace autodist::job {

// The exit code of ssh itself, not of what it was to run.
inline constexpr int kSshFailed = 255;

// For a POSIX shell: one word, and a program with its arguments.
std::string quoted(const std::string& text);
std::string quoted(const CommandLine& command);

// The ssh command for a node. Asks nothing; a host that known_hosts does not know is refused.
std::vector<std::string> ssh_command(const cluster::Node& node, const cluster::SshConfig& ssh);

// What every rank of a job is started as.
struct RemoteProgram {
  CommandLine command;
  std::string folder;                       // working directory
  std::vector<std::string> environment;     // "NAME=value", for ranks on other machines
  std::vector<std::string> inherited = {};  // "NAME=value", for ranks on this machine
};
// This process, its folder, and of its environment (`variables`) what it carries along to other
// machines: AUTODIST_*, OMP_*, MKL_*, OPENBLAS_*, NCCL_*, GLOO_*, TORCH_*, LD_LIBRARY_PATH and
// PYTHONPATH; not a rank's place, nor OPENBLAS_CORETYPE, which is this CPU's.
RemoteProgram this_program(const std::vector<std::string>& variables);

// The script of one rank, in which the place's key stands.
std::string script_of(const RemoteProgram& program, const cluster::SshConfig& ssh,
                      const JobPlace& place);

// The nodes of a job that are other machines. Throws Error(kUsage) where the chief is one: a job is
// started on its chief; and where a spare names no ssh group.
std::vector<cluster::Node> remote_nodes(const cluster::Cluster& cluster);

// One process per rank, in their order: here, or over ssh. `chief` gives size, key and where the
// chief listens.
std::vector<RankProcess> rank_processes(const cluster::Cluster& cluster, bool cpu_only,
                                        const RemoteProgram& program, const JobPlace& chief);

// The ssh group of a node. Throws Error(kUsage) where it names none.
const cluster::SshConfig& ssh_of(const cluster::Cluster& cluster, const cluster::Node& node);

// Machines of a job that could not be used (kEnvironment): addresses, and the first one's
// complaint.
class UnusableMachines : public Error {
 public:
  UnusableMachines(std::vector<std::string> addresses, const std::string& message)
      : Error(ErrorCode::kEnvironment, message), addresses_(std::move(addresses)) {}
  [[nodiscard]] const std::vector<std::string>& addresses() const { return addresses_; }

 private:
  std::vector<std::string> addresses_;
};

// Asks every node, all at once: does it let us in, are folder and program there? Throws
// UnusableMachines.
void check_nodes(const cluster::Cluster& cluster, const std::vector<cluster::Node>& nodes,
                 const RemoteProgram& program);

}  // namespace autodist::job
