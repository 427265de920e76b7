#include "autodist/exec/held_state.h"

#include <cstring>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/buffer_pool.h"
#include "autodist/exec/state_bytes.h"
#include "autodist/exec/tensor_data.h"
#include "autodist/program/loads.h"

namespace autodist::exec {
namespace {

// Calls visit(piece, its own place in a slice of state, UpdateState&) for each piece of a variable
// whose rule runs at this rank.
template <typename Visit>
void for_each_local_state(const program::Program& program, LocalVariables& variables,
                          ir::VariableId variable, Visit visit) {
  std::vector<UpdateState>& states = variables.states(variable);
  if (states.empty()) return;
  if (variables.has_whole_state(variable)) {
    const std::int64_t count = variables.tensor(variable).numel();
    visit(program::PieceLayout{variable, 0, count, {{0, 0, count}}}, states.front());
    return;
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < program.slices.size(); ++i) {
    for (const program::PieceLayout& piece : layout_of(program, program.slices[i])) {
      if (piece.variable == variable) visit(piece, states[next++]);
    }
  }
}

// A piece whose elements begin at 0: state is kept per piece, not per slice.
program::PieceLayout alone(program::PieceLayout piece) {
  for (program::ElementRun& run : piece.runs) run.slice_begin -= piece.slice_begin;
  piece.slice_begin = 0;
  return piece;
}

// The full tensor of a state, made when its first piece comes. Of what is owed zeros stay where
// this rank owes nothing; of the rest the pages of other ranks' elements are never touched.
torch::Tensor& full_tensor(const ir::Graph& graph, ir::VariableId variable,
                           const std::string& state, DType dtype, StateTensors& tensors) {
  torch::Tensor& tensor = tensors[name_of_state(graph.variable(variable), state)];
  if (!tensor.defined()) {
    const bool is_owed =
        state == name_of(program::State::kOwed) || state == name_of(program::State::kOwedAverage);
    tensor = is_owed ? torch::zeros(shape_of(graph, variable), scalar_type_of(dtype))
                     : torch::empty(shape_of(graph, variable), scalar_type_of(dtype));
  }
  return tensor;
}

// Elements of a variable that lie in a row in one of its pieces.
struct PieceRun {
  std::int64_t begin = 0;  // of the variable
  std::int64_t count = 0;
  std::size_t piece = 0;
  std::int64_t at = 0;  // in it
};

// Of all pieces, by their place in the variable.
template <typename Pieces>
std::vector<PieceRun> runs_of(const Pieces& pieces) {
  std::vector<PieceRun> runs;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    for (const program::ElementRun& run : pieces[i].layout.runs) {
      runs.push_back({run.variable_begin, run.count, i, run.slice_begin});
    }
  }
  std::sort(runs.begin(), runs.end(),
            [](const PieceRun& a, const PieceRun& b) { return a.begin < b.begin; });
  return runs;
}

void put_state(const ir::Graph& graph, const program::PieceLayout& piece, const UpdateState& state,
               StateTensors& tensors) {
  for (std::size_t i = 0; i < state.names().size(); ++i) {
    const torch::Tensor& full =
        full_tensor(graph, piece.variable, state.names()[i], state.dtype(), tensors);
    unpack(alone(piece), size_of(state.dtype()), static_cast<const std::byte*>(state.data(i)),
           memory_of(full));
  }
}

void take_state(const ir::Graph& graph, const program::PieceLayout& piece,
                const StateTensors& tensors, UpdateState& state) {
  for (std::size_t i = 0; i < state.names().size(); ++i) {
    const std::string name = name_of_state(graph.variable(piece.variable), state.names()[i]);
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      fail(ErrorCode::kCheckpoint,
           "checkpoint: optimizer state '{}' is missing among {}. Give the optimizer that wrote "
           "it, or begin with its parameters alone: --init (in a program: initial_weights).",
           name, tensors.size());
    }
    const std::vector<std::int64_t> shape = shape_of(graph, piece.variable);
    const torch::Tensor& full = found->second;
    if (full.sizes() != torch::IntArrayRef(shape) ||
        dtype_of(full.scalar_type()) != state.dtype()) {
      fail(ErrorCode::kCheckpoint,
           "checkpoint: optimizer state '{}' is {}, expected {} [{}]. Take a checkpoint of this "
           "model, or begin with its parameters alone: --init (in a program: initial_weights).",
           name, describe(full), autodist::name_of(state.dtype()), fmt::join(shape, ", "));
    }
    pack(alone(piece), size_of(state.dtype()), memory_of(full.contiguous()),
         static_cast<std::byte*>(state.data(i)));
  }
}

StateTensors by_name(const std::vector<NamedTensor>& tensors) {
  StateTensors all;
  for (const NamedTensor& each : tensors) all.emplace(each.name, each.tensor.to(torch::kCPU));
  return all;
}

}  // namespace

std::vector<NamedTensor> named(const StateTensors& tensors) {
  std::vector<NamedTensor> list;
  for (const auto& [name, tensor] : tensors) list.push_back({name, tensor});
  return list;
}

HeldState::HeldState(const RankContext& rank, RankSlices& slices,
                     std::vector<LibraryAllReduce>& all_reduces)
    : program_(rank.program),
      self_(rank.self),
      options_(rank.options),
      slices_(slices),
      all_reduces_(all_reduces) {}

std::vector<HeldState::Piece> HeldState::pieces_of(program::State state, ir::VariableId variable) {
  std::vector<Piece> pieces;
  const auto add_state = [&](const program::PieceLayout& layout, const UpdateState& rule) {
    Piece piece{alone(layout), {}, nullptr};
    for (std::size_t i = 0; i < rule.names().size(); ++i) {
      piece.arrays.push_back(static_cast<const std::byte*>(rule.data(i)));
    }
    pieces.push_back(std::move(piece));
  };
  const auto add_part = [&](const program::PieceLayout& layout, const std::byte* slice,
                            std::shared_ptr<const void> keep) {
    const std::size_t width = size_of(dtype_of_state(state, variable, *program_.graph));
    pieces.push_back({alone(layout), {slice + layout.slice_begin * width}, std::move(keep)});
  };
  if (state == program::State::kParameters && keeps_newest_copies(program_.exchange(variable))) {
    const torch::Tensor whole = slices_.variables.dense(variable);
    const std::int64_t count = whole.numel();
    add_part({variable, 0, count, {{0, 0, count}}}, memory_of(whole),
             std::make_shared<const torch::Tensor>(whole));
    return pieces;
  }
  for (const program::SliceId id : program_.plan(variable).slices) {
    const program::Slice& slice = program_.slice(id);
    if (!combines(slice, self_)) continue;
    const std::vector<program::PieceLayout> layouts = layout_of(program_, slice);
    const std::vector<UpdateState>& rules = slices_.owner.states(id);  // none where ranks update
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      if (layouts[i].variable != variable) continue;
      if (state == program::State::kRule && !rules.empty()) add_state(layouts[i], rules[i]);
      if (state == program::State::kParameters && !rules.empty()) {
        const comm::Payload parameters = slices_.owner.reloaded_parameters(id);
        add_part(layouts[i], parameters.data, parameters.keep);
      }
      if (state == program::State::kOwedAverage && slices_.owner.residual(id) != nullptr) {
        add_part(layouts[i], slices_.owner.residual(id), nullptr);
      }
    }
  }
  if (state == program::State::kRule) {
    for_each_local_state(program_, slices_.variables, variable, add_state);
  }
  return pieces;
}

comm::Payload HeldState::packed(const program::Move& move) {
  const std::vector<Piece> pieces = pieces_of(move.state, move.variable);
  const std::vector<PieceRun> runs = runs_of(pieces);
  const ir::Graph& graph = *program_.graph;
  const std::size_t width = size_of(dtype_of_state(move.state, move.variable, graph));
  const std::size_t arrays =
      arrays_of(move.state, move.variable, graph, options_.user_rules).size();
  const std::size_t size = static_cast<std::size_t>(element_count(move)) * width * arrays;
  std::shared_ptr<std::byte> bytes = allocate_aligned(size);
  std::byte* next = bytes.get();
  for (std::size_t array = 0; array < arrays; ++array) {
    auto run = runs.begin();
    for (const program::Stretch& stretch : move.stretches) {
      for (std::int64_t at = stretch.begin; at < stretch.end;) {
        while (run != runs.end() && run->begin + run->count <= at) ++run;
        AD_CHECK(run != runs.end() && run->begin <= at)
            << name_of(move.state) << " of variable " << move.variable << ": element " << at
            << " is not at rank " << self_;
        const std::int64_t count = std::min(stretch.end, run->begin + run->count) - at;
        std::memcpy(next, pieces[run->piece].arrays[array] + (run->at + at - run->begin) * width,
                    count * width);
        next += count * width;
        at += count;
      }
    }
  }
  return {bytes.get(), size, bytes};
}

void HeldState::put(const program::Move& move, const comm::Payload& payload,
                    StateTensors& tensors) const {
  const ir::Graph& graph = *program_.graph;
  const DType dtype = dtype_of_state(move.state, move.variable, graph);
  const std::size_t width = size_of(dtype);
  const std::vector<std::string> arrays =
      arrays_of(move.state, move.variable, graph, options_.user_rules);
  AD_CHECK(payload.size == static_cast<std::size_t>(element_count(move)) * width * arrays.size())
      << payload.size << " bytes of " << name_of(move.state) << " of variable " << move.variable;
  const std::byte* next = payload.data;
  for (const std::string& array : arrays) {
    const torch::Tensor& full = full_tensor(graph, move.variable, array, dtype, tensors);
    for (const program::Stretch& stretch : move.stretches) {
      const std::size_t size = (stretch.end - stretch.begin) * width;
      std::memcpy(memory_of(full) + stretch.begin * width, next, size);
      next += size;
    }
  }
}

void HeldState::add_merged_rules(StateTensors& tensors) {
  for (const program::SliceId slice : slices_.owner.slices()) {
    const std::vector<program::PieceLayout> pieces = layout_of(program_, program_.slice(slice));
    const std::vector<UpdateState>& states = slices_.owner.states(slice);
    for (std::size_t i = 0; i < states.size(); ++i) {
      put_state(*program_.graph, pieces[i], states[i], tensors);
    }
  }
  add_local_rules(/*merged=*/true, tensors);
}

void HeldState::add_other_rules(StateTensors& tensors) {
  add_local_rules(/*merged=*/false, tensors);
}

void HeldState::add_local_rules(bool merged, StateTensors& tensors) {
  for (std::size_t i = 0; i < program_.variables.size(); ++i) {
    const ir::VariableId variable(i);
    if (merged == slices_.variables.has_whole_state(variable)) continue;
    for_each_local_state(program_, slices_.variables, variable,
                         [&](const program::PieceLayout& piece, const UpdateState& state) {
                           put_state(*program_.graph, piece, state, tensors);
                         });
  }
}

void HeldState::load_rules(const std::vector<NamedTensor>& states) {
  const StateTensors tensors = by_name(states);
  for (const program::SliceId slice : slices_.owner.slices()) {
    const std::vector<program::PieceLayout> pieces = layout_of(program_, program_.slice(slice));
    std::vector<UpdateState>& states = slices_.owner.states(slice);
    for (std::size_t i = 0; i < states.size(); ++i) {
      take_state(*program_.graph, pieces[i], tensors, states[i]);
    }
  }
  for (std::size_t i = 0; i < program_.variables.size(); ++i) {
    for_each_local_state(program_, slices_.variables, ir::VariableId(i),
                         [&](const program::PieceLayout& piece, UpdateState& own) {
                           take_state(*program_.graph, piece, tensors, own);
                         });
    slices_.variables.put_states(ir::VariableId(i));
  }
}

std::byte* HeldState::residual(program::SliceId slice, program::State state) {
  return state == program::State::kOwed ? slices_.contributor.residual(slice)
                                        : slices_.owner.residual(slice);
}

void HeldState::add_owed(program::SliceId id, program::State state, const std::byte* values,
                         StateTensors& tensors) const {
  const program::Slice& slice = program_.slice(id);
  for (const program::PieceLayout& piece : layout_of(program_, slice)) {
    torch::Tensor& full =
        full_tensor(*program_.graph, piece.variable, name_of(state), slice.dtype, tensors);
    unpack(piece, size_of(slice.dtype), values, memory_of(full));
  }
}

std::vector<NamedTensor> HeldState::owed_by_libraries() const {
  std::vector<NamedTensor> owed;
  for (const LibraryAllReduce& each : all_reduces_) {
    for (NamedTensor& tensor : each.state()) owed.push_back(std::move(tensor));
  }
  return owed;
}

void HeldState::add_owed(StateTensors& tensors) {
  for (NamedTensor& each : owed_by_libraries()) tensors[each.name] = std::move(each.tensor);
  for_each_owed(self_, [&](program::SliceId slice, program::State state) {
    add_owed(slice, state, residual(slice, state), tensors);
  });
}

void HeldState::load_owed(const std::vector<NamedTensor>& owed) {
  for (LibraryAllReduce& each : all_reduces_) each.load(owed);
  const StateTensors tensors = by_name(owed);
  for_each_owed(self_, [&](program::SliceId id, program::State state) {
    const program::Slice& slice = program_.slice(id);
    for (const program::PieceLayout& piece : layout_of(program_, slice)) {
      const ir::Variable& variable = program_.graph->variable(piece.variable);
      const auto found = tensors.find(name_of_state(variable, name_of(state)));
      if (found == tensors.end()) continue;
      const std::vector<std::int64_t> shape = shape_of(*program_.graph, piece.variable);
      const torch::Tensor full = found->second.to(scalar_type_of(slice.dtype)).contiguous();
      if (full.sizes() != torch::IntArrayRef(shape)) {
        fail(ErrorCode::kCheckpoint,
             "checkpoint: '{}' is {}, expected [{}]. Take a checkpoint of this model.",
             found->first, describe(full), fmt::join(shape, ", "));
      }
      pack(piece, size_of(slice.dtype), memory_of(full), residual(id, state));
    }
  });
}

void HeldState::put_parameters(const StateTensors& tensors, const program::Transition& transition) {
  const ir::Graph& graph = *program_.graph;
  for (const program::SliceId slice : slices_.owner.slices()) {
    if (keeps_newest_copies(program_.slice(slice).exchange)) continue;
    slices_.variables.overwrite(slice, slices_.owner.reloaded_parameters(slice));
  }
  std::map<ir::VariableId, torch::Tensor> copies;  // on the host
  for (const program::Move& move : transition.moves) {
    if (move.to != self_ || move.state != program::State::kParameters) continue;
    torch::Tensor& copy = copies[move.variable];
    if (!copy.defined()) copy = slices_.variables.dense(move.variable).clone();
    const torch::Tensor& came = tensors.at(
        name_of_state(graph.variable(move.variable), name_of(program::State::kParameters)));
    for (const program::Stretch& each : move.stretches) {
      copy.view({-1})
          .slice(0, each.begin, each.end)
          .copy_(came.view({-1}).slice(0, each.begin, each.end));
    }
  }
  for (const auto& [variable, copy] : copies) {
    torch::Tensor own = slices_.variables.tensor(variable);
    own.copy_(copy);
  }
}

}  // namespace autodist::exec
