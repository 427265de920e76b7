// This process's place in a job: which ranks there are, how this one became one of them, and how it
// reaches the others.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodist/base/clock.h"
#include "autodist/cluster/members.h"
#include "autodist/comm/live_transport.h"
#include "autodist/comm/rendezvous.h"
#include "autodist/comm/transport.h"
#include "autodist/exec/runner_options.h"
#include "autodist/job/heart.h"
#include "autodist/job/job_memory.h"
#include "autodist/job/launch.h"
#include "autodist/job/launcher.h"
#include "autodist/job/place.h"
#include "autodist/job/process_context.h"
#include "autodist/job/remote.h"
#include "autodist/job/torch/session.h"

namespace autodist::job {

class JoinedJob {
 public:
  // Reads the cluster file and meets the other ranks: as the rank that the environment names, as
  // one that a launcher started, or as a chief that starts the others, here and over ssh. Sets the
  // number of threads that this process computes with, and that its allocator keeps what is freed.
  // Throws Error(kUsage) for a cluster file or an environment that does not fit,
  // Error(kEnvironment) for a node that cannot be used, Error(kPeersLost) where the others do not
  // come within options.join_limit.
  JoinedJob(const std::string& specification, JobOptions options, ProcessContext process);

  // Throws Error(kPeersLost) when a rank that this one started has died: sooner than heartbeats
  // notice it.
  void check_children() const;
  // Before the first step: also throws where a rank that this one started has ended at all; calls
  // JobOptions::while_waiting.
  void look_around();
  // By all ranks, before a state is loaded and before the first step: those of a standby wait here
  // for their turn; false where there was nothing to wait for. Throws as look_around(), and
  // Error(kPeersLost) naming a rank of it that says nothing for options.silence_limit.
  bool await_turn();
  // Until its turn has come: it is none of the job's ranks yet.
  [[nodiscard]] bool stands_by() const { return stands_by_; }
  // The checkpoint that a standby goes on from, at its chief; empty: where its program says.
  [[nodiscard]] const std::string& checkpoint() const { return checkpoint_; }
  // Behind a message about a rank whose connection ended: how that one has ended, where this one
  // started it. Nothing where it still runs.
  [[nodiscard]] std::string end_of_lost(const std::string& message) const;
  // After the job has ended in order: nobody waits for signs of life any more, and the ranks that
  // this one started are waited for, however long they go on.
  void end();

  [[nodiscard]] bool encrypts() const { return planning::encrypts(options_.encryption, cluster()); }
  // What JobOptions say of a runner: how long it waits for whom, what it keeps, and what the user
  // gave. Its first step and values are its own.
  [[nodiscard]] exec::RunnerOptions runner_options(std::uint64_t seed,
                                                   std::uint32_t generation) const;

  // At the chief of a job that is supervised; else null.
  [[nodiscard]] JobMemory* memory() { return memory_ ? &*memory_ : nullptr; }
  [[nodiscard]] const JobMemory* memory() const { return memory_ ? &*memory_ : nullptr; }

  // Of the jobs that this process has made, from 0.
  [[nodiscard]] std::size_t number() const { return number_; }

  // To the user of this process. Of a standby nobody wants to hear until its turn.
  void say(const std::string& line) const {
    if (!stands_by_) process_.say(line);
  }
  // JobOptions::progress, at the chief.
  void show(const std::string& line) const {
    if (options_.progress && is_chief() && !stands_by_) options_.progress(line);
  }

  [[nodiscard]] const JobOptions& options() const { return options_; }
  // The machines that it has now, and which of them have taken a lost one's place.
  [[nodiscard]] const cluster::Cluster& cluster() const { return members_.cluster; }
  [[nodiscard]] const std::map<std::string, std::string>& stand_ins() const {
    return members_.stand_ins;
  }
  // As it was given: a file's path, "local:2", or nothing where a launcher's ranks are the cluster.
  [[nodiscard]] const std::string& specification() const { return specification_; }
  [[nodiscard]] std::uint32_t rank() const { return place_.rank; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(places_.size()); }
  [[nodiscard]] bool is_chief() const { return place_.rank == 0; }
  [[nodiscard]] const std::string& own_address() const { return place_.own_address; }
  // "torchrun", …; empty where the ranks were started by AutoDist or by hand.
  [[nodiscard]] const std::string& launcher() const { return launcher_; }
  // Per machine, where all have as many and fewer than ranks; else nothing.
  [[nodiscard]] std::optional<std::uint32_t> too_few_cores() const { return cores_; }
  // The device that this rank computes on.
  [[nodiscard]] torch::Device device() const { return device_; }
  comm::Transport& transport() { return *transport_; }
  // What the chief passes, at every rank; as comm::broadcast(), whose `what` it is.
  std::string of_chief(const std::string& what, const std::string& text);
  bool chief_says(const std::string& what, bool is_so);
  Clock& clock() { return clock_; }

 private:
  // To who supervises the job, from here on.
  void show_life();
  [[nodiscard]] bool turn_comes(Seconds limit);
  // By their addresses: who supervises the job may go on without them.
  void note_unusable(const std::vector<std::string>& machines);
  // For a chief: where the others will knock.
  [[nodiscard]] comm::ChiefListener listener(std::uint16_t port) const;
  void share_cores();
  void share_gpus();
  // With what the job's start before this one had; says what differs.
  void compare_computing();
  // That this is the job which this rank was started for.
  void check_started_for_this() const;
  [[nodiscard]] comm::RendezvousOptions rendezvous();
  [[nodiscard]] RemoteProgram program() const;
  // At the chief: the other ranks join.
  void receive(comm::ChiefListener& listener);
  void join_started();
  void join_launched(const Launched& launched);
  void join_at_meeting(const std::string& folder, const std::string& job_id);
  void start_and_join();
  void listen_where_others_reach_us(bool own_is_given);
  // Called again and again while `whom` is waited for, `since` so long: says so from time to time.
  void wait(const std::string& what, const std::string& whom, Seconds since);
  void connect(std::unique_ptr<comm::Transport> transport);

  JobOptions options_;
  ProcessContext process_;
  Environment environment_;
  std::string specification_;
  std::size_t number_;
  cluster::Members members_;
  std::vector<cluster::Place> places_;  // by rank
  JobPlace place_;
  std::optional<JobMemory> memory_;
  std::unique_ptr<Heart> heart_;  // where there is a memory; a standby's, since its turn
  std::atomic<bool> stands_by_ = false;
  std::string checkpoint_;
  torch::Device device_ = torch::kCPU;
  std::optional<std::uint32_t> cores_;  // too_few_cores()
  std::vector<std::string> computing_;  // by rank: on which GPU, or CPU with how many threads
  std::string launcher_;
  SteadyClock clock_;
  std::unique_ptr<StartedRanks> children_;
  std::unique_ptr<comm::Transport> transport_;
  comm::LiveTransport* live_ = nullptr;  // transport_, where there are other ranks
  std::shared_ptr<const void> one_job_;  // while it lives, no other may start ranks
  Seconds told_;                         // for how long we had waited when we said so
};

}  // namespace autodist::job
