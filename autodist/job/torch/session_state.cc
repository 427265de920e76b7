#include "autodist/job/torch/session_state.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "autodist/base/error.h"
#include "autodist/exec/tensor_data.h"
#include "autodist/program/loads.h"
#include "autodist/program/state.h"

namespace autodist::job {
namespace {

std::string pack_replicas(const exec::Checkpoint& checkpoint, const JobSteps& steps,
                          const std::string& where, const Warn& warn) {
  const std::uint32_t replicas = steps.front().program().batch_parts();
  const bool differ = std::any_of(steps.all().begin(), steps.all().end(), [](const auto& step) {
    return replicas_differ(step->program());
  });
  if (replicas == 1 || !differ) return "";
  const std::size_t saved =
      checkpoint.replicas.size() + (checkpoint.replicas.count(0) == 0 ? 1 : 0);
  if (saved != replicas) {
    warn(
        fmt::format("{}: statistics of {} replicas, the job has {}: all start from the chief's, "
                    "and what compression owed is dropped",
                    where, saved, replicas));
    return "";
  }
  exec::Safetensors all;
  for (const auto& [rank, buffers] : checkpoint.replicas) {
    for (exec::TensorData each : buffers) {
      each.name = fmt::format("{}/{}", rank, each.name);
      all.tensors.push_back(std::move(each));
    }
  }
  return exec::write_safetensors(all);
}

// How far each of the job's steps is, as metadata.
std::map<std::string, std::string> steps_done(const exec::Checkpoint& checkpoint,
                                              const JobSteps& steps, const std::string& where,
                                              const Warn& warn) {
  std::map<std::string, std::string> done;
  std::map<std::string, std::int64_t> rest = checkpoint.steps;
  if (rest.empty()) rest[""] = checkpoint.step;
  std::vector<std::string> saved;
  for (const auto& [name, step] : rest) saved.push_back("'" + name + "'");
  for (const auto& step : steps.all()) {
    const auto found = rest.find(step->name());
    if (found == rest.end() && step->trains()) {
      fail(ErrorCode::kCheckpoint,
           "{}: of a job with the steps {}; this one trains '{}'. Name the steps as there, or take "
           "another checkpoint.",
           where, fmt::join(saved, ", "), step->name());
    }
    done["step" + step->name()] = std::to_string(found == rest.end() ? 0 : found->second);
    if (found != rest.end()) rest.erase(found);
  }
  for (const auto& [name, step] : rest) {
    warn(fmt::format("{}: the job has no step '{}', whose state is left out", where, name));
  }
  return done;
}

}  // namespace

bool replicas_differ(const program::Program& program) {
  return std::any_of(program.graph->buffers.begin(), program.graph->buffers.end(),
                     [](const ir::Buffer& buffer) { return buffer.mutated; }) ||
         std::any_of(program.slices.begin(), program.slices.end(), program::feeds_back) ||
         std::any_of(program.collectives.begin(), program.collectives.end(),
                     [](const program::Collective& collective) {
                       return !is_lossless(collective.exchange);
                     });
}

void gather(JobStep& step, exec::Checkpoint& checkpoint) {
  for (const auto& [rank, buffers] : step.runner().gather_buffers()) {
    // Of a placed graph all stages of a replica have the same by now.
    if (rank == 0 || step.program().stage(program::Rank(rank)) != 0) continue;
    for (exec::TensorData& each : exec::to_data(buffers)) {  // steps may write the same ones
      std::vector<exec::TensorData>& own = checkpoint.replicas[rank];
      const bool is_there = std::any_of(own.begin(), own.end(), [&](const exec::TensorData& other) {
        return other.name == each.name;
      });
      if (!is_there) own.push_back(std::move(each));
    }
  }
  for (const auto& [rank, owed] : step.runner().gather_owed()) {
    for (exec::TensorData& each : exec::to_data(owed)) {
      each.name = step.prefix() + each.name;
      checkpoint.replicas[rank].push_back(std::move(each));
    }
  }
}

std::vector<exec::TensorData> copy_model(const TrainingStep& step) {
  std::vector<exec::TensorData> copies;
  std::set<std::string> known;
  for (const NamedTensor& each : step.parameters) {
    if (known.insert(each.name).second) copies.push_back(exec::to_data(each));
  }
  for (const NamedTensor& each : step.buffers) copies.push_back(exec::to_data(each));
  return copies;
}

const exec::Checkpoint& StateCopy::whole() {
  std::vector<exec::TensorData> state;
  for (const auto& [prefix, each] : optimizers) {
    for (const auto* tensors : {&each.rules.get(), &each.scaling}) {
      for (const auto& [name, tensor] : *tensors) {
        state.push_back(exec::data_of({prefix + name, tensor}));
      }
    }
  }
  for (exec::TensorData& each : state) checkpoint.optimizer_state.push_back(std::move(each));
  optimizers.clear();
  return checkpoint;
}

LoadedState load_at_chief(FileSystem& files, const std::string& directory, const JobSteps& steps,
                          const Warn& warn) {
  const exec::Checkpoint checkpoint = read_into(files, steps.model(), directory, warn);
  std::map<std::string, std::string> about = steps_done(checkpoint, steps, directory, warn);
  about["from"] = directory;
  return {exec::write_safetensors({checkpoint.optimizer_state, std::move(about)}),
          pack_replicas(checkpoint, steps, directory, warn),
          exec::write_safetensors({checkpoint.kept, {}}), checkpoint.step};
}

std::vector<NamedTensor> put_replica(const std::string& replicas, std::uint32_t rank,
                                     const TrainingStep& step, const std::string& where) {
  if (replicas.empty()) return {};
  std::map<std::string, const NamedTensor*> buffers;
  for (const NamedTensor& each : step.buffers) buffers.emplace(each.name, &each);
  const std::string own = fmt::format("{}/", rank);
  std::vector<NamedTensor> rest;
  for (exec::TensorData& each : exec::read_safetensors(replicas, where).tensors) {
    if (each.name.rfind(own, 0) != 0) continue;
    each.name = each.name.substr(own.size());
    const auto buffer = buffers.find(each.name);
    if (buffer == buffers.end()) {
      rest.push_back(exec::to_tensor(each));
    } else {
      exec::copy_into(each, *buffer->second, where);
    }
  }
  return rest;
}

}  // namespace autodist::job
