#include "autodist/exec/gathering.h"

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
#include "autodist/exec/tensor_data.h"
#include "autodist/exec/wanted_slices.h"
#include "autodist/ir/history.h"
#include "autodist/program/loads.h"

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
  if (variables.has_whole_state(variable)) {
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

std::byte* data_of(const torch::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

using Tensors = std::map<std::string, torch::Tensor>;

constexpr program::Rank kChiefRank(kChief);

std::vector<NamedTensor> named(const Tensors& tensors) {
  std::vector<NamedTensor> list;
  for (const auto& [name, tensor] : tensors) list.push_back({name, tensor});
  return list;
}

// The full tensor of a state, made when its first piece comes. Zeros stay where this rank owes
// nothing.
torch::Tensor& full_tensor(const ir::Graph& graph, ir::VariableId variable,
                           const std::string& state, DType dtype, Tensors& tensors) {
  torch::Tensor& tensor = tensors[name_of_state(graph.variable(variable), state)];
  if (!tensor.defined()) {
    tensor = torch::zeros(shape_of(graph, variable), scalar_type_of(dtype));
  }
  return tensor;
}

// `data` has the elements of the piece.
void put(const ir::Graph& graph, const PieceLayout& piece, const std::string& state, DType dtype,
         const void* data, Tensors& tensors) {
  const torch::Tensor& full = full_tensor(graph, piece.variable, state, dtype, tensors);
  unpack(alone(piece), size_of(dtype), static_cast<const std::byte*>(data), data_of(full));
}

void put(const ir::Graph& graph, const PieceLayout& piece, const UpdateState& state,
         Tensors& tensors) {
  for (std::size_t i = 0; i < state.names().size(); ++i) {
    put(graph, piece, state.names()[i], state.dtype(), state.data(i), tensors);
  }
}

void take_state(const ir::Graph& graph, const PieceLayout& piece, const Tensors& tensors,
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
    pack(alone(piece), size_of(state.dtype()), data_of(full.contiguous()),
         static_cast<std::byte*>(state.data(i)));
  }
}

}  // namespace

Gathering::Gathering(const RankContext& rank, std::vector<torch::Tensor> buffers,
                     RankSlices& slices, std::vector<LibraryAllReduce>& all_reduces,
                     SmallCollectives& small_collectives, Link& link, JobQueue& jobs)
    : program_(rank.program),
      self_(rank.self),
      options_(rank.options),
      buffers_(std::move(buffers)),
      slices_(slices),
      all_reduces_(all_reduces),
      small_collectives_(small_collectives),
      link_(link),
      jobs_(jobs),
      signal_(rank.signal) {}

bool Gathering::takes(Topic topic) {
  switch (topic) {
    case Topic::kStatesWanted:
    case Topic::kStates:
    case Topic::kOwedGradients:
    case Topic::kOwedAverages:
    case Topic::kParametersWanted:
    case Topic::kRowsWanted:
    case Topic::kStagesWanted:
    case Topic::kParameters:
      return true;
    default:
      return false;
  }
}

void Gathering::take(const comm::Frame& frame) {
  const std::uint64_t step = frame.header.step;
  const program::Rank from(frame.header.from);
  const auto send_wanted = [&](auto wanted) {
    jobs_.push(step, Seconds{},
               [this, step, from, wanted] { send_parameters(from, step, wanted); });
  };
  switch (topic_of(frame.header)) {
    case Topic::kStatesWanted:
      return jobs_.push(step, Seconds{}, [this, step] { send_states(step); });
    case Topic::kParametersWanted:
      return send_wanted([](const program::Slice& each) { return !lag_of(each.exchange); });
    case Topic::kRowsWanted:
      return send_wanted(fetched_in_step);
    case Topic::kStagesWanted:
      return send_wanted(elsewhere_than(from));
    default: {
      {
        const MutexLock lock(signal_);
        gathered_[{from, {topic_of(frame.header), frame.header.id}}] = frame.payload;
      }
      signal_.notify();
    }
  }
}

// On the wire: per piece its states, one after the other.
comm::Payload Gathering::packed_states(program::SliceId slice) {
  std::size_t size = 0;
  for (const UpdateState& state : slices_.owner.states(slice)) {
    size += state.names().size() * state.bytes_per_state();
  }
  std::shared_ptr<std::byte> packed = allocate_aligned(size);
  std::size_t at = 0;
  for (const UpdateState& state : slices_.owner.states(slice)) {
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
void Gathering::send_states(std::uint64_t step) {
  for (const program::SliceId slice : slices_.owner.slices()) {
    if (holders_of(program_.slice(slice), SliceState::kRule).empty()) continue;
    link_.post(kChiefRank, {Topic::kStates, slice}, step, packed_states(slice));
  }
}

template <typename Wanted>
std::vector<Gathering::Key> Gathering::keys_of(SliceState state, Wanted wanted) const {
  std::vector<Key> keys;
  for (std::size_t i = 0; i < program_.slices.size(); ++i) {
    if (!wanted(program_.slices[i])) continue;
    for (const program::Rank holder : holders_of(program_.slices[i], state)) {
      if (holder != self_) keys.emplace_back(holder, Subject(topic_of(state), program::SliceId(i)));
    }
  }
  return keys;
}

void Gathering::ask(Topic topic, std::uint64_t step, const std::vector<Key>& expected) {
  std::set<program::Rank> asked;
  for (const Key& key : expected) {
    if (asked.insert(key.first).second) link_.post(key.first, topic, step, comm::Payload{});
  }
}

std::map<Gathering::Key, comm::Payload> Gathering::collect(const std::vector<Key>& expected,
                                                           const char* what) {
  const MutexLock lock(signal_);
  std::size_t there = 0;
  signal_.wait(
      options_.wait_limit,
      [&]() AD_REQUIRES(signal_) {
        there = static_cast<std::size_t>(std::count_if(
            expected.begin(), expected.end(),
            [&](const Key& key) AD_REQUIRES(signal_) { return gathered_.count(key) != 0; }));
        return there == expected.size();
      },
      [&] {
        return fmt::format("checkpoint: {} of {} slices of {} came in.", there, expected.size(),
                           what);
      });
  std::map<Key, comm::Payload> notes;
  for (const Key& key : expected) notes.insert(gathered_.extract(key));
  return notes;
}

void Gathering::put_states(program::SliceId id, const std::byte* packed, Tensors& tensors) const {
  const ir::Graph& graph = *program_.graph;
  for (const PieceLayout& piece : layout_of(program_, program_.slice(id))) {
    const UpdateState none(graph.variable(piece.variable).update, 0, program_.slice(id).dtype,
                           options_.user_rules);  // says what there is of each element
    for (const std::string& state : none.names()) {
      put(graph, piece, state, none.dtype(), packed, tensors);
      packed += piece.count * size_of(none.dtype());
    }
  }
}

std::vector<NamedTensor> Gathering::gather_state(std::uint64_t step) {
  AD_CHECK(self_ == kChiefRank) << "rank " << self_ << " is not the chief";
  const std::vector<Key> expected =
      keys_of(SliceState::kRule, [](const program::Slice&) { return true; });
  ask(Topic::kStatesWanted, step, expected);
  Tensors tensors;
  for (const auto& [key, packed] : collect(expected, "optimizer state")) {
    put_states(program::SliceId(key.second.id), packed.data, tensors);
  }
  for (const program::SliceId slice : slices_.owner.slices()) {
    if (holders_of(program_.slice(slice), SliceState::kRule).empty()) continue;
    const std::vector<PieceLayout> pieces = layout_of(program_, program_.slice(slice));
    const std::vector<UpdateState>& states = slices_.owner.states(slice);
    for (std::size_t i = 0; i < states.size(); ++i) {
      put(*program_.graph, pieces[i], states[i], tensors);
    }
  }
  for (std::size_t i = 0; i < program_.variables.size(); ++i) {
    for_each_local_state(program_, slices_.variables, ir::VariableId(i),
                         [&](const PieceLayout& piece, const UpdateState& state) {
                           put(*program_.graph, piece, state, tensors);
                         });
  }
  return named(tensors);
}

void Gathering::load_state(const std::vector<NamedTensor>& state) {
  Tensors tensors;
  for (const NamedTensor& each : state) tensors.emplace(each.name, each.tensor.to(torch::kCPU));
  for (const program::SliceId slice : slices_.owner.slices()) {
    const std::vector<PieceLayout> pieces = layout_of(program_, program_.slice(slice));
    std::vector<UpdateState>& states = slices_.owner.states(slice);
    for (std::size_t i = 0; i < states.size(); ++i) {
      take_state(*program_.graph, pieces[i], tensors, states[i]);
    }
  }
  for (std::size_t i = 0; i < program_.variables.size(); ++i) {
    for_each_local_state(program_, slices_.variables, ir::VariableId(i),
                         [&](const PieceLayout& piece, UpdateState& own) {
                           take_state(*program_.graph, piece, tensors, own);
                         });
    slices_.variables.put_states(ir::VariableId(i));
  }
}

// Whoever has met the others knows that all their contributions were answered, and so applied; and
// until all part nobody contributes again.
void Gathering::pull(std::uint64_t step) {
  small_collectives_.meet(Topic::kMet, step);
  pull_parameters(Topic::kParametersWanted, step,
                  [](const program::Slice& slice) { return !lag_of(slice.exchange); });
  small_collectives_.meet(Topic::kParted, step);
}

void Gathering::pull_alone(std::uint64_t step) {
  if (program_.is_placed()) {
    return pull_parameters(Topic::kStagesWanted, step, elsewhere_than(self_));
  }
  pull_parameters(Topic::kParametersWanted, step,
                  [](const program::Slice& slice) { return !lag_of(slice.exchange); });
}

// The owner has this step's version, for it said so; and no later one before this rank contributes.
void Gathering::pull_rows(std::uint64_t step) {
  pull_parameters(Topic::kRowsWanted, step, fetched_in_step);
}

template <typename Wanted>
void Gathering::pull_parameters(Topic topic, std::uint64_t step, Wanted wanted) {
  const std::vector<Key> expected = keys_of(SliceState::kParameters, wanted);
  ask(topic, step, expected);
  for (const program::SliceId slice : slices_.owner.slices()) {
    if (!wanted(program_.slice(slice)) || program_.slice(slice).owner != self_) continue;
    slices_.variables.overwrite(slice, slices_.owner.parameters(slice));
  }
  for (const auto& [key, parameters] : collect(expected, "parameters")) {
    slices_.variables.overwrite(program::SliceId(key.second.id), parameters);
  }
}

template <typename Wanted>
void Gathering::send_parameters(program::Rank to, std::uint64_t step, Wanted wanted) {
  for (const program::SliceId slice : slices_.owner.slices()) {
    if (!wanted(program_.slice(slice))) continue;
    link_.post(to, {Topic::kParameters, slice}, step, slices_.owner.parameters(slice));
  }
}

void Gathering::pull_stages(std::uint64_t step) {
  small_collectives_.meet(Topic::kMet, step);
  pull_parameters(Topic::kStagesWanted, step, elsewhere_than(self_));
  pull_buffers(step);
  small_collectives_.meet(Topic::kParted, step);
}

// The stage that writes a buffer knows it; of several replicas each keeps its own.
void Gathering::pull_buffers(std::uint64_t step) {
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
       small_collectives_.exchange(Topic::kBuffers, step, write_safetensors(bytes))) {
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
void Gathering::for_each_owed(program::Rank rank, Visit visit) const {
  for (std::size_t i = 0; i < program_.slices.size(); ++i) {
    for (const SliceState state : {SliceState::kOwed, SliceState::kOwedAverage}) {
      const std::vector<program::Rank> holders = holders_of(program_.slices[i], state);
      if (std::binary_search(holders.begin(), holders.end(), rank)) {
        visit(program::SliceId(i), state);
      }
    }
  }
}

std::byte* Gathering::residual(program::SliceId slice, SliceState state) {
  return state == SliceState::kOwed ? slices_.contributor.residual(slice)
                                    : slices_.owner.residual(slice);
}

std::map<std::uint32_t, std::vector<NamedTensor>> Gathering::gather_tensors(
    Topic topic, std::uint64_t step, const std::vector<NamedTensor>& own) {
  Safetensors bytes;
  for (const NamedTensor& each : own) bytes.tensors.push_back(to_data(each));
  std::map<std::uint32_t, std::vector<NamedTensor>> all;
  for (const auto& [rank, theirs] :
       small_collectives_.gather_at_chief(topic, step, write_safetensors(bytes))) {
    const std::string from = fmt::format("the tensors of rank {}", rank);
    for (const TensorData& each : read_safetensors(theirs, from).tensors) {
      all[rank].push_back(to_tensor(each));
    }
  }
  return all;
}

std::map<std::uint32_t, std::vector<NamedTensor>> Gathering::gather_owed(std::uint64_t step) {
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

std::map<std::uint32_t, std::vector<NamedTensor>> Gathering::gather_owed_of_slices(
    std::uint64_t step) {
  if (self_ != kChiefRank) {
    for_each_owed(self_, [&](program::SliceId slice, SliceState state) {
      const auto size = static_cast<std::size_t>(bytes_of(program_.slice(slice)).value);
      std::shared_ptr<std::byte> copy = allocate_aligned(size);  // the next step changes it
      std::memcpy(copy.get(), residual(slice, state), size);
      link_.post(kChiefRank, {topic_of(state), slice}, step, {copy.get(), size, copy});
    });
    return {};
  }
  const auto all = [](const program::Slice&) { return true; };
  std::vector<Key> expected = keys_of(SliceState::kOwed, all);
  for (const Key& key : keys_of(SliceState::kOwedAverage, all)) expected.push_back(key);
  const std::map<Key, comm::Payload> notes = collect(expected, "what compression owes");
  std::map<std::uint32_t, std::vector<NamedTensor>> owed;
  for (std::size_t i = 0; i < program_.ranks.size(); ++i) {
    const program::Rank rank(i);
    Tensors tensors;
    for_each_owed(rank, [&](program::SliceId id, SliceState state) {
      const program::Slice& slice = program_.slice(id);
      const std::byte* values = nullptr;
      if (rank == self_) {
        values = residual(id, state);
      } else {
        const comm::Payload& note = notes.at({rank, {topic_of(state), id}});
        AD_CHECK(note.size == static_cast<std::size_t>(bytes_of(slice).value)) << note.size;
        values = note.data;
      }
      for (const PieceLayout& piece : layout_of(program_, slice)) {
        torch::Tensor& full =
            full_tensor(*program_.graph, piece.variable, suffix_of(state), slice.dtype, tensors);
        unpack(piece, size_of(slice.dtype), values, data_of(full));
      }
    });
    if (!tensors.empty()) owed[rank.value] = named(tensors);
  }
  return owed;
}

void Gathering::load_owed(const std::vector<NamedTensor>& owed) {
  for (LibraryAllReduce& each : all_reduces_) each.load(owed);
  Tensors tensors;
  for (const NamedTensor& each : owed) tensors.emplace(each.name, each.tensor.to(torch::kCPU));
  for_each_owed(self_, [&](program::SliceId id, SliceState state) {
    const program::Slice& slice = program_.slice(id);
    for (const PieceLayout& piece : layout_of(program_, slice)) {
      const ir::Variable& variable = program_.graph->variable(piece.variable);
      const auto found = tensors.find(name_of_state(variable, suffix_of(state)));
      if (found == tensors.end()) continue;
      const std::vector<std::int64_t> shape = shape_of(*program_.graph, piece.variable);
      const torch::Tensor full = found->second.to(scalar_type_of(slice.dtype)).contiguous();
      if (full.sizes() != torch::IntArrayRef(shape)) {
        fail(ErrorCode::kCheckpoint, "checkpoint: '{}' is {}, expected [{}].", found->first,
             describe(full), fmt::join(shape, ", "));
      }
      pack(piece, size_of(slice.dtype), data_of(full), residual(id, state));
    }
  });
}

}  // namespace autodist::exec
