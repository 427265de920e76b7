#include "autodist/exec/gathering.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>

#include "autodist/base/background.h"
#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/exec/buffer_pool.h"
#include "autodist/exec/safetensors.h"
#include "autodist/exec/tensor_data.h"
#include "autodist/exec/wanted_slices.h"
#include "autodist/ir/history.h"

namespace autodist::exec {
namespace {

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

Topic topic_of(program::State owed) {
  return owed == program::State::kOwed ? Topic::kOwedGradients : Topic::kOwedAverages;
}

constexpr program::Rank kChiefRank(kChief);

// Behind all other messages of the step, and before the owner's messages of later steps.
constexpr Seconds kLeastUrgent{1e9};

constexpr std::uint32_t kMostGatherings = 16;  // between two steps

// Throws Error(kUsage) where there are too many.
std::uint32_t next_gathering(StepCounter& gatherings, std::uint64_t step) {
  const std::uint32_t number = gatherings.next(step);
  if (number >= kMostGatherings) {
    fail(ErrorCode::kUsage,
         "step {}: the state was gathered {} times; no more before the next step", step,
         kMostGatherings);
  }
  return number;
}

// Of the gathering with this number the message about `which`.
comm::MessageId numbered(std::uint32_t which, std::uint32_t number) {
  return which * kMostGatherings + number;
}

}  // namespace

Gathering::Gathering(const RankContext& rank, std::vector<torch::Tensor> buffers,
                     RankSlices& slices, HeldState& held, SmallCollectives& small_collectives,
                     Link& link, JobQueue& jobs)
    : program_(rank.program),
      self_(rank.self),
      options_(rank.options),
      buffers_(std::move(buffers)),
      slices_(slices),
      held_(held),
      small_collectives_(small_collectives),
      link_(link),
      jobs_(jobs),
      signal_(rank.signal) {}

void Gathering::take(const comm::Frame& frame) {
  const std::uint64_t step = frame.header.step;
  const program::Rank from(frame.header.from);
  const auto send_wanted = [&](auto wanted) {
    jobs_.push(step, Seconds{},
               [this, step, from, wanted] { send_parameters(from, step, wanted); });
  };
  switch (topic_of(frame.header)) {
    case Topic::kStatesWanted:
      return jobs_.push(step, Seconds{}, [this, step, from, number = frame.header.id] {
        send_states(from, step, number);
      });
    case Topic::kParametersWanted:
      return send_wanted(updated_on_arrival);
    case Topic::kRowsWanted:
      return send_wanted(fetched_in_step);
    case Topic::kStagesWanted:
      return send_wanted(elsewhere_than(from));
    default: {
      {
        const MutexLock lock(signal_);
        if (topic_of(frame.header) == Topic::kStates &&
            wanted_ != std::pair(step, frame.header.id % kMostGatherings)) {
          return;
        }
        gathered_[{from, step, {topic_of(frame.header), frame.header.id}}] = frame;
      }
      signal_.notify();
    }
  }
}

// When the chief asks, it has every variable's newest version, so all slices are merged; and the
// next merge needs the chief's contribution, which it sends after its question. A connection that
// broke may bring the question later than the contribution, though: then the state is another
// step's, and the answer says so.
void Gathering::send_states(program::Rank to, std::uint64_t step, std::uint32_t number) {
  const std::vector<program::SliceId> own = slices_.owner.slices();
  const bool too_late =
      owners_wait_for_the_chief() && std::any_of(own.begin(), own.end(), [&](program::SliceId id) {
        return slices_.owner.open_step(id) != step;
      });
  if (!too_late) {
    return send(gathering(program_, program::State::kRule, to), Topic::kStates, step, number,
                kLeastUrgent);
  }
  link_.post(to, {Topic::kStates, numbered(0, number)}, step, {}, {},
             fmt::format("rank {} was asked for the optimizer's state of step {} when it had "
                         "updated it again: a connection broke, and the wish came too late",
                         self_, step));
}

// Ids count the moves between two ranks. What several ranks get alike is packed once.
void Gathering::send(const program::Transition& transition, Topic topic, std::uint64_t step,
                     std::uint32_t number, Seconds needed) {
  std::map<program::Rank, comm::MessageId> ids;
  const program::Move* last = nullptr;
  comm::Payload payload;
  for (const program::Move& move : transition.moves) {
    if (move.from != self_) continue;
    const bool alike = last != nullptr && last->state == move.state &&
                       last->variable == move.variable && last->stretches == move.stretches;
    if (!alike) payload = held_.packed(move);
    last = &move;
    link_.post(move.to, {topic, numbered(ids[move.to]++, number)}, step, payload, needed);
  }
}

std::map<Gathering::Key, const program::Move*> Gathering::expected_of(
    const program::Transition& transition, Topic topic, std::uint64_t step, std::uint32_t number,
    program::Rank to) {
  std::map<Key, const program::Move*> expected;
  std::map<program::Rank, comm::MessageId> ids;
  for (const program::Move& move : transition.moves) {
    if (move.to != to) continue;
    const comm::MessageId id = numbered(ids[move.from]++, number);
    expected[{move.from, step, Subject(topic, id)}] = &move;
  }
  return expected;
}

template <typename About>
void Gathering::ask(Subject subject, std::uint64_t step, const std::map<Key, About>& expected) {
  std::set<program::Rank> asked;
  for (const auto& [key, about] : expected) {
    const program::Rank rank = std::get<program::Rank>(key);
    if (asked.insert(rank).second) link_.post(rank, subject, step, comm::Payload{});
  }
}

template <typename About, typename Visit>
void Gathering::collect(const std::map<Key, About>& expected, const char* what, Visit visit) {
  std::vector<Key> missing;
  for (const auto& [key, about] : expected) missing.push_back(key);
  while (!missing.empty()) {
    std::map<Key, comm::Frame> came;
    {
      const MutexLock lock(signal_);
      auto rest = missing.end();
      // The limit is for silence: it begins anew when a piece comes.
      signal_.wait(
          options_.wait_limit,
          [&]() AD_REQUIRES(signal_) {
            rest = std::partition(missing.begin(), missing.end(),
                                  [&](const Key& key)
                                      AD_REQUIRES(signal_) { return gathered_.count(key) == 0; });
            return rest != missing.end();
          },
          [&] {
            return fmt::format("{} of {} pieces of {} came in.", expected.size() - missing.size(),
                               expected.size(), what);
          });
      for (auto each = rest; each != missing.end(); ++each) came.insert(gathered_.extract(*each));
      missing.erase(rest, missing.end());
    }
    for (const auto& [key, frame] : came) visit(expected.at(key), frame);
  }
}

// Whether no owner updates between two contributions of the chief.
bool Gathering::owners_wait_for_the_chief() const {
  return program_.lag() && !program_.is_placed() &&
         std::all_of(program_.slices.begin(), program_.slices.end(), [](const auto& slice) {
           return std::binary_search(slice.members.begin(), slice.members.end(), kChiefRank);
         });
}

// The next step need not wait for this: owners are asked before they hear anything of that step,
// and their merging threads copy state before they change it.
LaterTensors Gathering::gather_state(std::uint64_t step) {
  AD_CHECK(self_ == kChiefRank) << "rank " << self_ << " is not the chief";
  await_state();
  const auto rules = std::make_shared<Rules>();
  rules->step = step;
  LaterTensors later = rules->state.get_future().share();
  try {
    begin(rules);
  } catch (const std::exception&) {  // no memory or no thread for it is no reason to end the job
    end_collecting();
    rules->state.set_exception(std::current_exception());
    return later;
  }
  if (!owners_wait_for_the_chief()) await_state();
  return later;
}

void Gathering::begin(const std::shared_ptr<Rules>& rules) {
  rules->number = next_gathering(states_, rules->step);
  const std::pair<std::uint64_t, std::uint32_t> which(rules->step, rules->number);
  rules->moves = gathering(program_, program::State::kRule, self_);
  held_.add_other_rules(rules->tensors);
  {
    const MutexLock lock(signal_);
    wanted_ = which;
    own_copied_ = false;
    own_failure_ = nullptr;
  }
  ask({Topic::kStatesWanted, rules->number}, rules->step,
      expected_of(rules->moves, Topic::kStates, rules->step, rules->number, self_));
  jobs_.push(rules->step, Seconds{}, [this, rules, which] {
    std::exception_ptr failure;
    StateTensors merged;
    try {
      held_.add_merged_rules(merged);
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    {
      const MutexLock lock(signal_);
      if (wanted_ != which) return;
      rules->tensors.merge(merged);
      own_failure_ = failure;
      own_copied_ = true;
    }
    signal_.notify();
  });
  // A future keeps its function: the tensors go with `own`.
  auto work = [this, rules = rules]() mutable {
    const std::shared_ptr<Rules> own = std::move(rules);
    try {
      std::vector<NamedTensor> state = named(collected(*own));
      end_collecting();
      own->state.set_value(std::move(state));
    } catch (const std::exception&) {
      end_collecting();
      own->state.set_exception(std::current_exception());
    }
  };
  const BackgroundThreads from_here;
  collecting_ = std::async(std::launch::async, std::move(work));
}

StateTensors Gathering::collected(Rules& rules) {
  {
    const MutexLock lock(signal_);
    signal_.wait(
        options_.wait_limit, [&]() AD_REQUIRES(signal_) { return own_copied_; },
        [] { return std::string("run: the merging thread does not come to copy."); });
    if (own_failure_) std::rethrow_exception(own_failure_);
  }
  const auto expected = expected_of(rules.moves, Topic::kStates, rules.step, rules.number, self_);
  collect(expected, "optimizer state", [&](const program::Move* move, const comm::Frame& frame) {
    if (!frame.rider.empty()) throw Error(ErrorCode::kCheckpoint, frame.rider);
    held_.put(*move, frame.payload, rules.tensors);
  });
  return std::move(rules.tensors);
}

void Gathering::end_collecting() {
  const MutexLock lock(signal_);
  wanted_.reset();
  for (auto each = gathered_.begin(); each != gathered_.end();) {
    const bool is_state = std::get<Subject>(each->first).topic == Topic::kStates;
    each = is_state ? gathered_.erase(each) : std::next(each);
  }
}

void Gathering::await_state() {
  if (collecting_.valid()) collecting_.wait();
}

void Gathering::await_state_shortly() {
  constexpr std::chrono::seconds kLongest{5};
  if (collecting_.valid()) collecting_.wait_for(kLongest);
}

RankState Gathering::hand_over(const program::Transition& transition, std::uint64_t step) {
  await_state();
  send(transition, Topic::kMove, step);
  StateTensors rules;
  held_.add_merged_rules(rules);
  held_.add_other_rules(rules);
  StateTensors owed;
  held_.add_owed(owed);
  StateTensors parameters;
  const auto expected = expected_of(transition, Topic::kMove, step, 0, self_);
  collect(expected, "the job's state", [&](const program::Move* move, const comm::Frame& frame) {
    StateTensors* const to = move->state == program::State::kParameters ? &parameters
                             : move->state == program::State::kRule     ? &rules
                                                                        : &owed;
    held_.put(*move, frame.payload, *to);
  });
  held_.put_parameters(parameters, transition);
  return {named(rules), named(owed), {}};
}

// When all have met, every contribution was answered, and so applied; and nobody contributes again
// before all part.
void Gathering::pull(std::uint64_t step) {
  small_collectives_.meet(Topic::kMet, step);
  pull_parameters(Topic::kParametersWanted, step, updated_on_arrival);
  small_collectives_.meet(Topic::kParted, step);
}

void Gathering::pull_alone(std::uint64_t step) {
  if (program_.is_placed()) {
    return pull_parameters(Topic::kStagesWanted, step, elsewhere_than(self_));
  }
  pull_parameters(Topic::kParametersWanted, step, updated_on_arrival);
}

// The owner has this step's version, as it has said, and makes no later one before this rank
// contributes.
void Gathering::pull_rows(std::uint64_t step) {
  pull_parameters(Topic::kRowsWanted, step, fetched_in_step);
}

template <typename Wanted>
void Gathering::pull_parameters(Topic topic, std::uint64_t step, Wanted wanted) {
  std::map<Key, program::SliceId> expected;
  for (std::size_t i = 0; i < program_.slices.size(); ++i) {
    const program::SliceId id(i);
    const program::Slice& slice = program_.slice(id);
    if (!wanted(slice) || slice.owner == self_) continue;
    expected[{slice.owner, step, Subject(Topic::kParameters, id)}] = id;
  }
  ask(topic, step, expected);
  // Behind all that has come in so far: others may have contributed to asynchronous slices
  // meanwhile.
  const auto put_own = [this, wanted] {
    for (const program::SliceId slice : slices_.owner.slices()) {
      if (!wanted(program_.slice(slice)) || program_.slice(slice).owner != self_) continue;
      slices_.variables.overwrite(slice, slices_.owner.parameters(slice));
    }
  };
  jobs_.run(signal_, options_.wait_limit, step, kLeastUrgent, put_own,
            "run: the merging thread does not come to copy parameters.");
  collect(expected, "parameters", [&](program::SliceId slice, const comm::Frame& frame) {
    slices_.variables.overwrite(slice, frame.payload);
  });
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
  std::vector<TensorData> written;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i]) written.push_back(to_data({graph.buffers[i].name, buffers_[i]}));
  }
  for (const auto& [rank, theirs] :
       small_collectives_.exchange(Topic::kBuffers, step, write_safetensors({written, {}}))) {
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

std::map<std::uint32_t, std::vector<NamedTensor>> Gathering::gather_tensors(
    Topic topic, std::uint64_t step, const std::vector<NamedTensor>& own) {
  std::map<std::uint32_t, std::vector<NamedTensor>> all;
  for (const auto& [rank, theirs] :
       small_collectives_.gather_at_chief({topic, next_gathering(tensors_[topic], step)}, step,
                                          write_safetensors({to_data(own), {}}))) {
    const std::string from = fmt::format("the tensors of rank {}", rank);
    for (const TensorData& each : read_safetensors(theirs, from).tensors) {
      all[rank].push_back(to_tensor(each));
    }
  }
  return all;
}

std::map<std::uint32_t, std::vector<NamedTensor>> Gathering::gather_owed(std::uint64_t step) {
  std::map<std::uint32_t, std::vector<NamedTensor>> owed = gather_owed_of_slices(step);
  for (auto& [rank, tensors] : gather_tensors(Topic::kOwed, step, held_.owed_by_libraries())) {
    std::move(tensors.begin(), tensors.end(), std::back_inserter(owed[rank]));
  }
  return owed;
}

std::map<std::uint32_t, std::vector<NamedTensor>> Gathering::gather_owed_of_slices(
    std::uint64_t step) {
  const std::uint32_t number = next_gathering(owed_, step);
  const auto subject_of = [&](program::SliceId slice, program::State state) {
    return Subject(topic_of(state), numbered(static_cast<std::uint32_t>(slice.value), number));
  };
  if (self_ != kChiefRank) {
    held_.for_each_owed(self_, [&](program::SliceId slice, program::State state) {
      const auto size = static_cast<std::size_t>(bytes_of(program_.slice(slice)).value);
      link_.post(kChiefRank, subject_of(slice, state), step,
                 aligned_copy(held_.residual(slice, state), size));  // the next step changes it
    });
    return {};
  }
  std::map<program::Rank, StateTensors> tensors;
  std::map<Key, std::tuple<program::Rank, program::SliceId, program::State>> expected;
  for (std::size_t i = 0; i < program_.ranks.size(); ++i) {
    const program::Rank rank(i);
    held_.for_each_owed(rank, [&](program::SliceId slice, program::State state) {
      if (rank == self_) {
        held_.add_owed(slice, state, held_.residual(slice, state), tensors[rank]);
      } else {
        expected[{rank, step, subject_of(slice, state)}] = {rank, slice, state};
      }
    });
  }
  collect(expected, "what compression owes", [&](const auto& about, const comm::Frame& frame) {
    const auto& [rank, slice, state] = about;
    const comm::Payload& values = frame.payload;
    AD_CHECK(values.size == static_cast<std::size_t>(bytes_of(program_.slice(slice)).value))
        << values.size;
    held_.add_owed(slice, state, values.data, tensors[rank]);
  });
  std::map<std::uint32_t, std::vector<NamedTensor>> owed;
  for (const auto& [rank, of_rank] : tensors) owed[rank.value] = named(of_rank);
  return owed;
}

}  // namespace autodist::exec
