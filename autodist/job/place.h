// What a process needs to know to be one rank of a job, and where it gets it from.
//
// The first process of a job is the chief; it starts the other ranks with the same program and
// arguments (launch.h) and these environment variables. Whoever starts ranks by other means (a
// scheduler, a script) sets the same for every rank, the chief included:
//
//   AUTODIST_RANK      this rank
//   AUTODIST_SIZE      number of ranks
//   AUTODIST_CHIEF     ADDRESS:PORT where the chief listens
//   AUTODIST_ADDRESS   where this rank listens (default: the address from which it reaches the
//                      chief)
//   AUTODIST_STARTED_BY  where a chief started this rank, for one job: the chief's process
//   AUTODIST_KEY_FD    descriptor from which the job's key is read, or
//   AUTODIST_KEY_FILE  file that holds it. The key itself is never in the environment.
//   AUTODIST_JOB_FD    rank 0 of a job that is supervised: descriptor of job_memory.h
//   AUTODIST_LOST_MACHINES  addresses of the cluster file, separated by commas, whose places spares
//                      have taken, or without which the job goes on, in the order of their losses
//   AUTODIST_STANDBY   a standby's ranks: which one it is of its job's, from 1 on. It waits before
//                      its first step until the job's memory says that its turn has come

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autodist/base/environment.h"

namespace autodist::job {

constexpr std::uint32_t kMostRanks = 65'535;

struct JobPlace {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::string chief_address = "127.0.0.1";
  std::uint16_t chief_port = 0;
  std::string own_address = "127.0.0.1";
  std::string key;
  std::uint32_t started_by = 0;  // the process of the chief that started this rank for its one job
  int memory = -1;  // for rank 0, of a job that is supervised: a descriptor (job_memory.h)
  std::vector<std::string> lost = {};  // machines of the cluster file (cluster/members.h)
  std::uint32_t standby = 0;           // its number; 0: the job's ranks, which wait for nothing
};

// The addresses in that variable, and its value for them.
constexpr const char* kLostMachines = "AUTODIST_LOST_MACHINES";
std::vector<std::string> lost_machines(const Environment& environment);
std::string addresses_text(const std::vector<std::string>& lost);

// A standby's number in its variable; 0 where that is not set. Throws Error(kUsage).
constexpr const char* kStandby = "AUTODIST_STANDBY";
std::uint32_t standby_number(const Environment& environment);

// `text`, which variable `name` holds, as a number. Throws Error(kUsage).
std::uint32_t number_of(const std::string& name, const std::string& text, std::uint32_t largest);

// Whether the environment names rank 0, or none, as for a chief that starts the others.
bool is_rank_0(const Environment& environment);

// Nothing when AUTODIST_RANK is not set: this process is the chief and starts the others. Throws
// Error(kUsage) naming the variable that is missing or wrong.
std::optional<JobPlace> job_from_environment(const Environment& environment);

// "NAME=value" for a rank that reads its key from `key_descriptor`; and whether a variable is one
// of these, which a rank must not inherit from another.
std::vector<std::string> place_variables(const JobPlace& place, int key_descriptor);
bool names_a_place(const std::string& variable);

// 32 random bytes in hexadecimal.
std::string make_job_key();

}  // namespace autodist::job
