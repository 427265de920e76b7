// What a job saves, and how it is put back. Private to the session.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "autodist/capture/training_step.h"
#include "autodist/exec/checkpoint.h"
#include "autodist/exec/safetensors.h"
#include "autodist/job/torch/job_steps.h"
#include "autodist/job/torch/model_values.h"
#include "autodist/job/torch/step_run.h"
#include "autodist/program/program.h"

namespace autodist::job {

// Whether replicas have something of their own that a checkpoint keeps: buffers that they write, or
// what compression owes.
bool replicas_differ(const program::Program& program);

// What differs between replicas, of one step, at the chief; by all ranks, which have the newest
// variables.
void gather(JobStep& step, exec::Checkpoint& checkpoint);

// What a checkpoint is made of, as it was between two steps.
class StateCopy {
 public:
  exec::Checkpoint checkpoint;  // without the optimizers' state, until whole() has put it in
  // The optimizers' state, which may still be on its way, by the step's prefix; none once whole()
  // was called.
  std::vector<std::pair<std::string, StepRun::State>> optimizers;

  // The checkpoint with the optimizers' state, for which it waits. By one thread at a time. Throws
  // Error where it does not come.
  const exec::Checkpoint& whole();
  [[nodiscard]] bool has_come() const { return optimizers.empty(); }  // by whole()
};

// Copies of parameters (a tied one once) and buffers, under the model's names.
std::vector<exec::TensorData> copy_model(const TrainingStep& step);

// What the chief read of a checkpoint for all ranks, as safetensors.
struct LoadedState {
  // With the steps among its metadata: "step" where a job has one alone, else "stepNAME"; and where
  // it was read, "from".
  std::string optimizer;
  std::string replicas;   // "<rank>/<tensor>"; nothing where all start from the chief's
  std::string kept;       // what the program keeps, by its names
  std::int64_t step = 0;  // of the job, when it was saved
};

// Reads the newest sound checkpoint of `directory` into the chief's tensors. Warns of damaged newer
// ones, of steps that the job has not, and where the other replicas' statistics are missing or were
// saved by a job of another size. Throws Error(kCheckpoint), also for names that do not fit the
// model, and where a step that trains is not in it.
LoadedState load_at_chief(FileSystem& files, const std::string& directory, const JobSteps& steps,
                          const Warn& warn);

// This rank's own buffers, once it has the chief's; returns what else was saved of it: what
// compression owes. `where` names the checkpoint in messages.
std::vector<NamedTensor> put_replica(const std::string& replicas, std::uint32_t rank,
                                     const TrainingStep& step, const std::string& where);

}  // namespace autodist::job
