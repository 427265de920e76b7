// What a checkpoint needs beside the model, as full tensors: the state of the update rules,
// gathered from the owners, and what compression still owes, gathered from all; and how each gets
// it back.

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/codec.h"
#include "autodist/exec/safetensors.h"
#include "autodist/exec/synchroniser.h"
#include "autodist/exec/tensor_data.h"
#include "autodist/exec/wanted_slices.h"
#include "autodist/ir/history.h"

namespace autodist::exec {
namespace {

std::string name_of_state(const ir::Variable& variable, const std::string& state) {
  return variable.name + "." + state;
}

// Calls visit(piece, its own place in a slice of state, UpdateState&) for each piece of a variable
// whose rule runs at this rank.
template <typename Visit>
void for_each_local_state(const program::Program& program, LocalVariables& variables,
                          ir::VariableId variable, Visit visit) {
  std::vector<UpdateState>& states = variables.states(variable);
  if (states.empty()) return;
  const auto& slices = program.plan(variable).slices;
  if (slices.empty()) {
    const std::int64_t count = variables.tensor(variable).numel();
    visit(PieceLayout{variable, 0, count, {{0, 0, count}}}, states.front());
    return;
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < program.slices.size(); ++i) {
    for (const PieceLayout& piece : layout_of(program, program.slices[i])) {
      if (piece.variable == variable) visit(piece, states[next++]);
    }
  }
}

// Of the graph's buffers, those that this rank's ops write.
std::vector<bool> buffers_written_at(const program::Program& program, program::Rank rank) {
  const ir::Graph& graph = *program.graph;
  std::set<ir::StorageId> written;
  for (const program::Stream& stream : role_of(program, rank).streams) {
    for (const program::Instruction& instruction : stream.instructions) {
      const auto* compute = std::get_if<program::Compute>(&instruction);
      if (compute == nullptr || compute->micro_batch != 0) continue;
      for (const ir::StorageId each : written_storages(graph, graph.op(compute->op))) {
        written.insert(each);
      }
    }
  }
  std::vector<bool> buffers;
  for (const ir::Buffer& buffer : graph.buffers) {
    buffers.push_back(written.count(graph.value(buffer.value).storage) > 0);
  }
  return buffers;
}

// A piece whose elements begin at 0: state is kept per piece, not per slice.
PieceLayout alone(PieceLayout piece) {
  for (ElementRun& run : piece.runs) run.slice_begin -= piece.slice_begin;
  piece.slice_begin = 0;
  return piece;
}

std::byte* bytes_of(const torch::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

using Tensors = std::map<std::string, torch::Tensor>;

std::vector<NamedTensor> named(const Tensors& tensors) {
  std::vector<NamedTensor> list;
  for (const auto& [name, tensor] : tensors) list.push_back({name, tensor});
  return list;
}

// The full tensor of a state, made when its first piece comes.
torch::Tensor& full_tensor(const ir::Graph& graph, ir::VariableId variable,
                           const std::string& state, DType dtype, Tensors& tensors) {
  torch::Tensor& tensor = tensors[name_of_state(graph.variable(variable), state)];
  if (!tensor.defined()) {
    tensor = torch::zeros(shape_of(graph, variable), scalar_type_of(dtype));
  }
  return tensor;
}

void put(const ir::Graph& graph, const PieceLayout& piece, const UpdateState& state,
         Tensors& tensors) {
  for (std::size_t i = 0; i < state.names().size(); ++i) {
    torch::Tensor& full =
        full_tensor(graph, piece.variable, state.names()[i], state.dtype(), tensors);
    unpack(alone(piece), size_of(state.dtype()), static_cast<const std::byte*>(state.data(i)),
           bytes_of(full));
  }
}

void take(const ir::Graph& graph, const PieceLayout& piece, const Tensors& tensors,
          UpdateState& state) {
  for (std::size_t i = 0; i < state.names().size(); ++i) {
    const std::string name = name_of_state(graph.variable(piece.variable), state.names()[i]);
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      fail(ErrorCode::kCheckpoint, "checkpoint: optimizer state '{}' is missing among {}.", name,
           tensors.size());
    }
    const std::vector<std::int64_t> shape = shape_of(graph, piece.variable);
    const torch::Tensor& full = found->second;
    if (full.sizes() != torch::IntArrayRef(shape) ||
        dtype_of(full.scalar_type()) != state.dtype()) {
      fail(ErrorCode::kCheckpoint, "checkpoint: optimizer state '{}' is {}, expected {} [{}].",
           name, describe(full), autodist::name_of(state.dtype()), fmt::join(shape, ", "));
    }
    pack(alone(piece), size_of(state.dtype()), bytes_of(full.contiguous()),
         static_cast<std::byte*>(state.data(i)));
  }
}

}  // namespace

// On the wire: per piece its states, one after the other.
comm::Payload Synchroniser::packed_states(program::SliceId slice) {
  std::size_t size = 0;
  for (const UpdateState& state : owner_->states(slice)) {
    size += state.names().size() * state.bytes_per_state();
  }
  std::shared_ptr<std::byte> packed = allocate_aligned(size);
  std::size_t at = 0;
  for (const UpdateState& state : owner_->states(slice)) {
    for (std::size_t i = 0; i < state.names().size(); ++i) {
      std::memcpy(packed.get() + at, state.data(i), state.bytes_per_state());
      at += state.bytes_per_state();
    }
  }
  const std::byte* data = packed.get();
  return {data, size, std::move(packed)};
}

// The chief has every variable's newest version, so all its slices are merged, and none is again
// before the chief contributes.
void Synchroniser::send_states(std::uint64_t step) {
  for (const program::SliceId slice : owner_->slices()) {
    if (program::combines(program_.slice(slice), program::Rank(0)))
      continue;  // the chief has them itself
    if (program_.slice(slice).owner != self_) continue;
    post_note(0, {Topic::kStates, slice}, step, packed_states(slice));
  }
}

std::map<Synchroniser::NoteKey, comm::Payload> Synchroniser::collect(
    const std::vector<NoteKey>& expected, const char* what) {
  const MutexLock lock(signal_);
  std::size_t there = 0;
  signal_.wait(
      options_.wait_limit,
      [&]() AD_REQUIRES(signal_) {
        there = static_cast<std::size_t>(std::count_if(
            expected.begin(), expected.end(),
            [&](const NoteKey& key) AD_REQUIRES(signal_) { return gathered_.count(key) != 0; }));
        return there == expected.size();
      },
      [&] {
        return fmt::format("checkpoint: {} of {} slices of {} came in.", there, expected.size(),
                           what);
      });
  std::map<NoteKey, comm::Payload> notes;
  for (const NoteKey& key : expected) notes.insert(gathered_.extract(key));
  return notes;
}

void Synchroniser::put_states(program::SliceId id, const std::byte* packed,
                              Tensors& tensors) const {
  const ir::Graph& graph = *program_.graph;
  for (const PieceLayout& piece : layout_of(program_, program_.slice(id))) {
    UpdateState state(graph.variable(piece.variable).update, piece.count, program_.slice(id).dtype,
                      options_.user_rules);
    for (std::size_t i = 0; i < state.names().size(); ++i) {
      std::memcpy(state.data(i), packed, state.bytes_per_state());
      packed += state.bytes_per_state();
    }
    put(graph, piece, state, tensors);
  }
}

std::vector<NamedTensor> Synchroniser::gather_state(std::uint64_t step) {
  AD_CHECK(self_.value == 0) << "rank " << self_ << " is not the chief";
  std::vector<bool> asked(program_.ranks.size());
  std::vector<NoteKey> expected;
  for (std::size_t i = 0; i < program_.slices.size(); ++i) {
    const program::Slice& slice = program_.slices[i];
    if (program::combines(slice, self_) || slice.update_at != program::UpdateAt::kOwner) continue;
    expected.emplace_back(slice.owner.value, Subject(Topic::kStates, program::SliceId(i)));
    if (asked[slice.owner.value]) continue;
    asked[slice.owner.value] = true;
    post_note(slice.owner.value, Topic::kStatesWanted, step, {});
  }
  Tensors tensors;
  for (const auto& [key, packed] : collect(expected, "optimizer state")) {
    put_states(program::SliceId(key.second.id), packed.data, tensors);
  }
  for (const program::SliceId slice : owner_->slices()) {
    if (program_.slice(slice).update_at != program::UpdateAt::kOwner) continue;
    put_states(slice, packed_states(slice).data, tensors);
  }
  for (std::size_t i = 0; i < program_.variables.size(); ++i) {
    for_each_local_state(program_, *variables_, ir::VariableId(i),
                         [&](const PieceLayout& piece, const UpdateState& state) {
                           put(*program_.graph, piece, state, tensors);
                         });
  }
  return named(tensors);
}

void Synchroniser::load_state(const std::vector<NamedTensor>& state) {
  Tensors tensors;
  for (const NamedTensor& each : state) tensors.emplace(each.name, each.tensor.to(torch::kCPU));
  for (const program::SliceId slice : owner_->slices()) {
    const std::vector<PieceLayout> pieces = layout_of(program_, program_.slice(slice));
    std::vector<UpdateState>& states = owner_->states(slice);
    for (std::size_t i = 0; i < states.size(); ++i) {
      take(*program_.graph, pieces[i], tensors, states[i]);
    }
  }
  for (std::size_t i = 0; i < program_.variables.size(); ++i) {
    for_each_local_state(program_, *variables_, ir::VariableId(i),
                         [&](const PieceLayout& piece, UpdateState& own) {
                           take(*program_.graph, piece, tensors, own);
                         });
  }
}

// Whoever has met the others knows that all their contributions were answered, and so applied; and
// until all part nobody contributes again.
void Synchroniser::pull(std::uint64_t step) {
  notes_.meet(Topic::kMet, step);
  pull_parameters(Topic::kParametersWanted, step,
                  [](const program::Slice& slice) { return !slice.synchronous; });
  notes_.meet(Topic::kParted, step);
}

void Synchroniser::pull_alone(std::uint64_t step) {
  if (program_.is_placed()) {
    return pull_parameters(Topic::kStagesWanted, step, elsewhere_than(self_));
  }
  pull_parameters(Topic::kParametersWanted, step,
                  [](const program::Slice& slice) { return !slice.synchronous; });
}

// The owner has this step's version, for it said so; and no later one before this rank contributes.
void Synchroniser::pull_rows(std::uint64_t step) {
  pull_parameters(Topic::kRowsWanted, step, fetched_in_step);
}

template <typename Wanted>
void Synchroniser::pull_parameters(Topic topic, std::uint64_t step, Wanted wanted) {
  std::vector<bool> asked(program_.ranks.size());
  std::vector<NoteKey> expected;
  for (std::size_t i = 0; i < program_.slices.size(); ++i) {
    const program::Slice& slice = program_.slices[i];
    if (!wanted(slice)) continue;
    if (slice.owner == self_) {
      variables_->overwrite(program::SliceId(i), owner_->parameters(program::SliceId(i)));
      continue;
    }
    expected.emplace_back(slice.owner.value, Subject(Topic::kParameters, program::SliceId(i)));
    if (asked[slice.owner.value]) continue;
    asked[slice.owner.value] = true;
    post_note(slice.owner.value, topic, step, {});
  }
  for (const auto& [key, parameters] : collect(expected, "parameters")) {
    variables_->overwrite(program::SliceId(key.second.id), parameters);
  }
}

void Synchroniser::pull_stages(std::uint64_t step) {
  notes_.meet(Topic::kMet, step);
  pull_parameters(Topic::kStagesWanted, step, elsewhere_than(self_));
  pull_buffers(step);
  notes_.meet(Topic::kParted, step);
}

// The stage that writes a buffer knows it; of several replicas each keeps its own.
void Synchroniser::pull_buffers(std::uint64_t step) {
  const ir::Graph& graph = *program_.graph;
  const auto any = std::any_of(graph.buffers.begin(), graph.buffers.end(),
                               [](const ir::Buffer& buffer) { return buffer.mutated; });
  if (!any) return;
  const std::vector<bool> own = buffers_written_at(program_, self_);
  Safetensors bytes;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i]) bytes.tensors.push_back(to_data({graph.buffers[i].name, buffers_[i]}));
  }
  for (const auto& [rank, theirs] :
       notes_.exchange(Topic::kBuffers, step, write_safetensors(bytes))) {
    const bool mate = program_.batch_part(program::Rank(rank)) == program_.batch_part(self_);
    if (!mate || rank == self_.value) continue;
    const std::string where = fmt::format("the buffers of rank {}", rank);
    for (const TensorData& each : read_safetensors(theirs, where).tensors) {
      for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
        if (graph.buffers[i].name != each.name) continue;
        copy_into(each, {each.name, buffers_[i]}, where);
      }
    }
  }
}

template <typename Visit>
void Synchroniser::for_each_owed(std::uint32_t rank, Visit visit) {
  for (std::size_t i = 0; i < program_.slices.size(); ++i) {
    const program::SliceId id(i);
    const program::Slice& slice = program_.slices[i];
    if (!feeds_back(slice)) continue;
    const bool here = rank == self_.value;
    if (std::binary_search(slice.members.begin(), slice.members.end(), program::Rank(rank))) {
      visit(id, "owed", here ? contributor_->residual(id) : nullptr);
    }
    if (slice.owner.value == rank && loses_averages(slice)) {
      visit(id, "owed_average", here ? owner_->residual(id) : nullptr);
    }
  }
}

std::map<std::uint32_t, std::vector<NamedTensor>> Synchroniser::gather_tensors(
    Topic topic, std::uint64_t step, const std::vector<NamedTensor>& own) {
  Safetensors bytes;
  for (const NamedTensor& each : own) bytes.tensors.push_back(to_data(each));
  std::map<std::uint32_t, std::vector<NamedTensor>> all;
  for (const auto& [rank, theirs] : notes_.gather_at_chief(topic, step, write_safetensors(bytes))) {
    const std::string from = fmt::format("the tensors of rank {}", rank);
    for (const TensorData& each : read_safetensors(theirs, from).tensors) {
      all[rank].push_back(to_tensor(each));
    }
  }
  return all;
}

std::map<std::uint32_t, std::vector<NamedTensor>> Synchroniser::gather_owed(std::uint64_t step) {
  std::vector<NamedTensor> by_libraries;
  for (const LibraryAllReduce& each : all_reduces_) {
    for (NamedTensor& tensor : each.state()) by_libraries.push_back(std::move(tensor));
  }
  std::map<std::uint32_t, std::vector<NamedTensor>> owed = gather_owed_of_slices(step);
  for (auto& [rank, tensors] : gather_tensors(Topic::kOwed, step, by_libraries)) {
    std::move(tensors.begin(), tensors.end(), std::back_inserter(owed[rank]));
  }
  return owed;
}

std::map<std::uint32_t, std::vector<NamedTensor>> Synchroniser::gather_owed_of_slices(
    std::uint64_t step) {
  const auto subject_of = [](program::SliceId slice, const std::string& name) {
    return Subject(name == "owed" ? Topic::kOwedGradients : Topic::kOwedAverages, slice);
  };
  if (self_.value != 0) {
    for_each_owed(self_.value, [&](program::SliceId slice, const char* name, std::byte* residual) {
      const auto size = static_cast<std::size_t>(bytes_of(program_.slice(slice)).value);
      std::shared_ptr<std::byte> copy = allocate_aligned(size);  // the next step changes it
      std::memcpy(copy.get(), residual, size);
      post_note(0, subject_of(slice, name), step, {copy.get(), size, copy});
    });
    return {};
  }
  std::vector<NoteKey> expected;
  for (std::uint32_t rank = 1; rank < program_.ranks.size(); ++rank) {
    for_each_owed(rank, [&](program::SliceId slice, const char* name, std::byte*) {
      expected.emplace_back(rank, subject_of(slice, name));
    });
  }
  const std::map<NoteKey, comm::Payload> notes = collect(expected, "what compression owes");
  std::map<std::uint32_t, std::vector<NamedTensor>> owed;
  for (std::uint32_t rank = 0; rank < program_.ranks.size(); ++rank) {
    Tensors tensors;
    for_each_owed(rank, [&](program::SliceId id, const char* name, const std::byte* residual) {
      const program::Slice& slice = program_.slice(id);
      if (rank != 0) {
        const comm::Payload& note = notes.at({rank, subject_of(id, name)});
        AD_CHECK(note.size == static_cast<std::size_t>(bytes_of(slice).value)) << note.size;
        residual = note.data;
      }
      for (const PieceLayout& piece : layout_of(program_, slice)) {
        torch::Tensor& full =
            full_tensor(*program_.graph, piece.variable, name, slice.dtype, tensors);
        unpack(piece, size_of(slice.dtype), residual, bytes_of(full));
      }
    });
    if (!tensors.empty()) owed[rank] = named(tensors);
  }
  return owed;
}

void Synchroniser::load_owed(const std::vector<NamedTensor>& owed) {
  for (LibraryAllReduce& each : all_reduces_) each.load(owed);
  Tensors tensors;
  for (const NamedTensor& each : owed) tensors.emplace(each.name, each.tensor.to(torch::kCPU));
  for_each_owed(self_.value, [&](program::SliceId id, const char* name, std::byte* residual) {
    const program::Slice& slice = program_.slice(id);
    for (const PieceLayout& piece : layout_of(program_, slice)) {
      const ir::Variable& variable = program_.graph->variable(piece.variable);
      const auto found = tensors.find(name_of_state(variable, name));
      if (found == tensors.end()) continue;
      const std::vector<std::int64_t> shape = shape_of(*program_.graph, piece.variable);
      const torch::Tensor full = found->second.to(scalar_type_of(slice.dtype)).contiguous();
      if (full.sizes() != torch::IntArrayRef(shape)) {
        fail(ErrorCode::kCheckpoint, "checkpoint: '{}' is {}, expected [{}].", found->first,
             describe(full), fmt::join(shape, ", "));
      }
      pack(piece, size_of(slice.dtype), bytes_of(full), residual);
    }
  });
}

}  // namespace autodist::exec
