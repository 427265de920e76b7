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
#include "autodist/exec/buffer_pool.h"
#include "autodist/exec/safetensors.h"
#include "autodist/exec/state_bytes.h"
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
program::PieceLayout alone(program::PieceLayout piece) {
  for (program::ElementRun& run : piece.runs) run.slice_begin -= piece.slice_begin;
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

// The full tensor of a state, made when its first piece comes. Of what is owed zeros stay where
// this rank owes nothing; of the rest the pages of other ranks' elements are never touched.
torch::Tensor& full_tensor(const ir::Graph& graph, ir::VariableId variable,
                           const std::string& state, DType dtype, Tensors& tensors) {
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

Topic topic_of(program::State owed) {
  return owed == program::State::kOwed ? Topic::kOwedGradients : Topic::kOwedAverages;
}

// `data` has the elements of the piece.
void put(const ir::Graph& graph, const program::PieceLayout& piece, const std::string& state,
         DType dtype, const void* data, Tensors& tensors) {
  const torch::Tensor& full = full_tensor(graph, piece.variable, state, dtype, tensors);
  unpack(alone(piece), size_of(dtype), static_cast<const std::byte*>(data), data_of(full));
}

void put(const ir::Graph& graph, const program::PieceLayout& piece, const UpdateState& state,
         Tensors& tensors) {
  for (std::size_t i = 0; i < state.names().size(); ++i) {
    put(graph, piece, state.names()[i], state.dtype(), state.data(i), tensors);
  }
}

void take_state(const ir::Graph& graph, const program::PieceLayout& piece, const Tensors& tensors,
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
    case Topic::kMove:
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
      // The chief has every variable's newest version, so all its slices are merged, and none is
      // again before the chief contributes.
      return jobs_.push(step, Seconds{}, [this, step, from] {
        send(gathering(program_, program::State::kRule, from), Topic::kStates, step);
      });
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

std::vector<std::string> Gathering::arrays_of(program::State state, ir::VariableId variable) const {
  return exec::arrays_of(state, program_.graph->variable(variable), options_.user_rules);
}

DType Gathering::dtype_of_state(program::State state, ir::VariableId variable) const {
  return exec::dtype_of_state(state, dtype_of(slices_.variables.tensor(variable).scalar_type()));
}

std::vector<Gathering::Piece> Gathering::pieces_of(program::State state, ir::VariableId variable) {
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
    const std::size_t width = size_of(dtype_of_state(state, variable));
    pieces.push_back({alone(layout), {slice + layout.slice_begin * width}, std::move(keep)});
  };
  const program::Exchange exchange = program_.exchange(variable);
  if (state == program::State::kParameters && keeps_whole_copies(exchange) && lag_of(exchange)) {
    const torch::Tensor whole = slices_.variables.dense(variable);
    const std::int64_t count = whole.numel();
    add_part({variable, 0, count, {{0, 0, count}}}, data_of(whole),
             std::make_shared<const torch::Tensor>(whole));
    return pieces;
  }
  for (const program::SliceId id : program_.plan(variable).slices) {
    const program::Slice& slice = program_.slice(id);
    if (!combines(slice, self_)) continue;
    const std::vector<program::PieceLayout> layouts = layout_of(program_, slice);
    const auto is_of_it = [&](std::size_t i) { return layouts[i].variable == variable; };
    const std::vector<UpdateState>& rules = slices_.owner.states(id);  // none where ranks update
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      if (!is_of_it(i)) continue;
      if (state == program::State::kRule && !rules.empty()) add_state(layouts[i], rules[i]);
      if (state == program::State::kParameters && !rules.empty()) {
        const comm::Payload parameters = slices_.owner.parameters(id);
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

comm::Payload Gathering::packed(const program::Move& move) {
  const std::vector<Piece> pieces = pieces_of(move.state, move.variable);
  const std::vector<PieceRun> runs = runs_of(pieces);
  const std::size_t width = size_of(dtype_of_state(move.state, move.variable));
  const std::size_t arrays = arrays_of(move.state, move.variable).size();
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
  const std::byte* data = bytes.get();
  return {data, size, std::move(bytes)};
}

void Gathering::put(const program::Move& move, const comm::Payload& payload,
                    Tensors& tensors) const {
  const DType dtype = dtype_of_state(move.state, move.variable);
  const std::size_t width = size_of(dtype);
  const std::vector<std::string> arrays = arrays_of(move.state, move.variable);
  AD_CHECK(payload.size == static_cast<std::size_t>(element_count(move)) * width * arrays.size())
      << payload.size << " bytes of " << name_of(move.state) << " of variable " << move.variable;
  const std::byte* next = payload.data;
  for (const std::string& array : arrays) {
    const torch::Tensor& full = full_tensor(*program_.graph, move.variable, array, dtype, tensors);
    for (const program::Stretch& stretch : move.stretches) {
      const std::size_t size = (stretch.end - stretch.begin) * width;
      std::memcpy(data_of(full) + stretch.begin * width, next, size);
      next += size;
    }
  }
}

// Ids count the moves between two ranks. What several ranks get alike is packed once.
void Gathering::send(const program::Transition& transition, Topic topic, std::uint64_t step) {
  std::map<program::Rank, comm::MessageId> ids;
  const program::Move* last = nullptr;
  comm::Payload payload;
  for (const program::Move& move : transition.moves) {
    if (move.from != self_) continue;
    const bool alike = last != nullptr && last->state == move.state &&
                       last->variable == move.variable && last->stretches == move.stretches;
    if (!alike) payload = packed(move);
    last = &move;
    link_.post(move.to, {topic, ids[move.to]++}, step, payload);
  }
}

std::map<Gathering::Key, const program::Move*> Gathering::expected_of(
    const program::Transition& transition, Topic topic, program::Rank to) {
  std::map<Key, const program::Move*> expected;
  std::map<program::Rank, comm::MessageId> ids;
  for (const program::Move& move : transition.moves) {
    if (move.to == to) expected[{move.from, Subject(topic, ids[move.from]++)}] = &move;
  }
  return expected;
}

void Gathering::ask(Topic topic, std::uint64_t step, const std::vector<Key>& expected) {
  std::set<program::Rank> asked;
  for (const Key& key : expected) {
    if (asked.insert(key.first).second) link_.post(key.first, topic, step, comm::Payload{});
  }
}

std::vector<Gathering::Key> Gathering::keys_of(
    const std::map<Key, const program::Move*>& expected) {
  std::vector<Key> keys;
  for (const auto& [key, move] : expected) keys.push_back(key);
  return keys;
}

std::map<Gathering::Key, comm::Payload> Gathering::collect(const std::vector<Key>& expected,
                                                           const char* what) {
  const MutexLock lock(signal_);
  // The limit is for silence: it begins anew when a piece comes.
  for (std::size_t before = 0, there = 0; before < expected.size(); before = there) {
    signal_.wait(
        options_.wait_limit,
        [&]() AD_REQUIRES(signal_) {
          there = static_cast<std::size_t>(std::count_if(
              expected.begin(), expected.end(),
              [&](const Key& key) AD_REQUIRES(signal_) { return gathered_.count(key) != 0; }));
          return there > before;
        },
        [&] {
          return fmt::format("{} of {} pieces of {} came in.", there, expected.size(), what);
        });
  }
  std::map<Key, comm::Payload> notes;
  for (const Key& key : expected) notes.insert(gathered_.extract(key));
  return notes;
}

void Gathering::add_own_rules(Tensors& tensors) {
  for (const program::SliceId slice : slices_.owner.slices()) {
    const std::vector<program::PieceLayout> pieces = layout_of(program_, program_.slice(slice));
    const std::vector<UpdateState>& states = slices_.owner.states(slice);
    for (std::size_t i = 0; i < states.size(); ++i) {
      autodist::exec::put(*program_.graph, pieces[i], states[i], tensors);
    }
  }
  for (std::size_t i = 0; i < program_.variables.size(); ++i) {
    for_each_local_state(program_, slices_.variables, ir::VariableId(i),
                         [&](const program::PieceLayout& piece, const UpdateState& state) {
                           autodist::exec::put(*program_.graph, piece, state, tensors);
                         });
  }
}

std::vector<NamedTensor> Gathering::gather_state(std::uint64_t step) {
  AD_CHECK(self_ == kChiefRank) << "rank " << self_ << " is not the chief";
  const program::Transition all = gathering(program_, program::State::kRule, self_);
  const auto expected = expected_of(all, Topic::kStates, self_);
  ask(Topic::kStatesWanted, step, keys_of(expected));
  Tensors tensors;
  add_own_rules(tensors);
  for (const auto& [key, packed] : collect(keys_of(expected), "optimizer state")) {
    put(*expected.at(key), packed, tensors);
  }
  return named(tensors);
}

RankState Gathering::hand_over(const program::Transition& transition, std::uint64_t step) {
  send(transition, Topic::kMove, step);
  Tensors rules;
  add_own_rules(rules);
  Tensors owed;
  add_own_owed(owed);
  Tensors parameters;
  const auto expected = expected_of(transition, Topic::kMove, self_);
  for (const auto& [key, packed] : collect(keys_of(expected), "the job's state")) {
    const program::Move& move = *expected.at(key);
    Tensors* const to = move.state == program::State::kParameters ? &parameters
                        : move.state == program::State::kRule     ? &rules
                                                                  : &owed;
    put(move, packed, *to);
  }
  put_parameters(parameters, transition);
  return {named(rules), named(owed), {}};
}

// What came goes into this rank's copies, and what is this owner's alone.
void Gathering::put_parameters(const Tensors& tensors, const program::Transition& transition) {
  const ir::Graph& graph = *program_.graph;
  for (const program::SliceId slice : slices_.owner.slices()) {
    const program::Exchange exchange = program_.slice(slice).exchange;
    if (keeps_whole_copies(exchange) && lag_of(exchange)) continue;
    slices_.variables.overwrite(slice, slices_.owner.parameters(slice));
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

void Gathering::load_state(const std::vector<NamedTensor>& state) {
  Tensors tensors;
  for (const NamedTensor& each : state) tensors.emplace(each.name, each.tensor.to(torch::kCPU));
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
  std::vector<Key> expected;
  for (std::size_t i = 0; i < program_.slices.size(); ++i) {
    const program::Slice& slice = program_.slices[i];
    if (!wanted(slice) || slice.owner == self_) continue;
    expected.emplace_back(slice.owner, Subject(Topic::kParameters, program::SliceId(i)));
  }
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
    for (const program::State state : {program::State::kOwed, program::State::kOwedAverage}) {
      const std::vector<program::Rank> holders = holders_of(program_.slices[i], state);
      if (std::binary_search(holders.begin(), holders.end(), rank)) {
        visit(program::SliceId(i), state);
      }
    }
  }
}

std::byte* Gathering::residual(program::SliceId slice, program::State state) {
  return state == program::State::kOwed ? slices_.contributor.residual(slice)
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
    for_each_owed(self_, [&](program::SliceId slice, program::State state) {
      const auto size = static_cast<std::size_t>(bytes_of(program_.slice(slice)).value);
      std::shared_ptr<std::byte> copy = allocate_aligned(size);  // the next step changes it
      std::memcpy(copy.get(), residual(slice, state), size);
      link_.post(kChiefRank, {topic_of(state), slice}, step, {copy.get(), size, copy});
    });
    return {};
  }
  std::vector<Key> expected;
  for (std::size_t i = 0; i < program_.ranks.size(); ++i) {
    const program::Rank rank(i);
    if (rank == self_) continue;
    for_each_owed(rank, [&](program::SliceId slice, program::State state) {
      expected.emplace_back(rank, Subject(topic_of(state), slice));
    });
  }
  const std::map<Key, comm::Payload> notes = collect(expected, "what compression owes");
  std::map<std::uint32_t, std::vector<NamedTensor>> owed;
  for (std::size_t i = 0; i < program_.ranks.size(); ++i) {
    const program::Rank rank(i);
    Tensors tensors;
    for_each_owed(rank, [&](program::SliceId id, program::State state) {
      const program::Slice& slice = program_.slice(id);
      const std::byte* values = nullptr;
      if (rank == self_) {
        values = residual(id, state);
      } else {
        const comm::Payload& note = notes.at({rank, {topic_of(state), id}});
        AD_CHECK(note.size == static_cast<std::size_t>(bytes_of(slice).value)) << note.size;
        values = note.data;
      }
      for (const program::PieceLayout& piece : layout_of(program_, slice)) {
        torch::Tensor& full =
            full_tensor(*program_.graph, piece.variable, name_of(state), slice.dtype, tensors);
        unpack(piece, size_of(slice.dtype), values, data_of(full));
      }
    });
    if (!tensors.empty()) owed[rank.value] = named(tensors);
  }
  return owed;
}

void Gathering::add_own_owed(Tensors& tensors) {
  for (const LibraryAllReduce& each : all_reduces_) {
    for (NamedTensor& tensor : each.state()) tensors[tensor.name] = std::move(tensor.tensor);
  }
  for_each_owed(self_, [&](program::SliceId id, program::State state) {
    const program::Slice& slice = program_.slice(id);
    for (const program::PieceLayout& piece : layout_of(program_, slice)) {
      torch::Tensor& full =
          full_tensor(*program_.graph, piece.variable, name_of(state), slice.dtype, tensors);
      unpack(piece, size_of(slice.dtype), residual(id, state), data_of(full));
    }
  });
}

void Gathering::load_owed(const std::vector<NamedTensor>& owed) {
  for (LibraryAllReduce& each : all_reduces_) each.load(owed);
  Tensors tensors;
  for (const NamedTensor& each : owed) tensors.emplace(each.name, each.tensor.to(torch::kCPU));
  for_each_owed(self_, [&](program::SliceId id, program::State state) {
    const program::Slice& slice = program_.slice(id);
    for (const program::PieceLayout& piece : layout_of(program_, slice)) {
      const ir::Variable& variable = program_.graph->variable(piece.variable);
      const auto found = tensors.find(name_of_state(variable, name_of(state)));
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
