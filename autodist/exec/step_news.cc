#include "autodist/exec/step_news.h"

#include <algorithm>

#include "autodist/exec/tensor_data.h"
#include "autodist/program/loads.h"
#include "autodist/program/slice_layout.h"

namespace autodist::exec {
namespace {

// How far a rank may be before the slowest, where the sums of steps travel as notes.
constexpr std::uint64_t kMostStepsAhead = 32;

// A slice that all replicas contribute to and get back. None for a placed graph, some of whose
// stages contribute before the loss is known.
std::optional<program::SliceId> slice_of_sums(const program::Program& program) {
  if (program.is_placed() || !program.lag()) return std::nullopt;
  for (std::size_t i = 0; i < program.slices.size(); ++i) {
    if (program.slices[i].members.size() == program.batch_parts()) return program::SliceId(i);
  }
  return std::nullopt;
}

}  // namespace

StepNews::StepNews(const RankContext& rank, const LocalVariables& variables,
                   SmallCollectives& small_collectives, Link& link)
    : program_(rank.program),
      self_(rank.self),
      variables_(variables),
      small_collectives_(small_collectives),
      link_(link),
      limit_(rank.options.wait_limit),
      sums_slice_(slice_of_sums(rank.program)),
      job_sums_(rank.signal) {}

void StepNews::set_options(ir::VariableId variable, const std::map<std::string, double>& options) {
  news_[variable].options = options;
  if (news_[variable].empty()) news_.erase(variable);
}

void StepNews::change(const std::map<ir::VariableId, std::uint64_t>& digests) {
  for (const auto& [variable, digest] : digests) news_[variable].values = digest;
}

void StepNews::agree_on_changes(const std::map<ir::VariableId, std::uint64_t>& digests,
                                std::uint64_t step) {
  News own;
  for (const auto& [variable, digest] : digests) own[variable].values = digest;
  const auto all =
      small_collectives_.exchange(Topic::kChanges, step, encode_news(*program_.graph, own));
  std::vector<Said> said;
  for (const auto& [rank, news] : all) said.push_back({program::Rank(rank), &news});
  check_agreement(*program_.graph, step, said);
}

void StepNews::add_sums(std::vector<double> sums, std::int64_t samples) {
  const std::vector<double> numbers = std::exchange(next_numbers_, {});
  sums_ = std::move(sums);
  if (samples == 0) return;
  sums_.insert(sums_.begin(), static_cast<double>(samples));
  sums_.insert(sums_.end(), numbers.begin(), numbers.end());
}

// Forgets what concerns this step alone; where no slice carries its sums, they go out as notes.
void StepNews::end_step(std::uint64_t step) {
  std::vector<double> sums = std::exchange(sums_, {});
  const bool alone = program_.batch_parts() == 1 || !program_.lag();
  if (!sums_slice_ && alone) {
    job_sums_.put(step, std::move(sums));
  } else if (!sums_slice_) {
    // Ranks that train nothing, and so wait for nobody, stay within what the exchange has room for.
    job_sums_.await_all_before(step - std::min(step, kMostStepsAhead), limit_);
    // The stages of a replica have the same samples and the same loss: one of them tells.
    if (program_.stage(self_) != 0) sums.clear();
    const std::string note = encode({news_of_whole(), std::move(sums), ""});
    for (std::uint32_t i = 0; i < program_.ranks.size(); ++i) {
      const program::Rank rank(i);
      if (rank == self_ || !program_.computes(rank)) continue;
      link_.post(rank, Topic::kStepSums, step, comm::Payload::copy_of(note));
    }
    take_note(self_, step, note);
  }
  for (auto each = news_.begin(); each != news_.end();) {
    each->second.values.reset();
    each = each->second.empty() ? news_.erase(each) : std::next(each);
  }
}

void StepNews::take_sums(program::SliceId slice, std::uint64_t step, std::vector<double> sums) {
  if (slice == sums_slice_) job_sums_.put(step, std::move(sums));
}

void StepNews::take_note(program::Rank from, std::uint64_t step, std::string note) {
  const auto all = job_sums_.take_note(step, from.value, program_.replica_count(), std::move(note));
  if (!all) return;
  std::vector<double> sums;
  std::map<std::uint32_t, Rider> riders;
  std::vector<Said> said;
  for (const auto& [rank, bytes] : *all) {
    Rider& rider = riders[rank] = decode_rider(bytes);
    sums.resize(std::max(sums.size(), rider.sums.size()));
    for (std::size_t i = 0; i < rider.sums.size(); ++i) sums[i] += rider.sums[i];
    said.push_back({program::Rank(rank), &rider.news});
  }
  check_agreement(*program_.graph, step, said);
  job_sums_.put(step, std::move(sums));
}

std::string StepNews::news_of(ir::VariableId variable) const {
  const auto said = news_.find(variable);
  return said == news_.end() ? "" : encode_news(*program_.graph, {*said});
}

// Of variables that no slice carries, and so no contribution.
std::string StepNews::news_of_whole() const {
  News whole;
  for (const auto& [variable, news] : news_) {
    if (program_.plan(variable).slices.empty()) whole[variable] = news;
  }
  return encode_news(*program_.graph, whole);
}

std::string StepNews::rider_of(program::SliceId id) const {
  const bool sums = id == sums_slice_;
  if (news_.empty() && !sums) return "";
  const program::Slice& slice = program_.slice(id);
  Rider rider;
  if (!news_.empty()) {
    News own;
    for (const ir::VariableId variable : variables_of(program_, slice)) {
      const auto found = news_.find(variable);
      if (found != news_.end()) own.insert(*found);
    }
    rider.news = encode_news(*program_.graph, own);
    rider.values = values_of(slice);
  }
  if (sums) {
    // The slice that carries the sums also carries the news of variables without slices.
    rider.news += news_of_whole();
    rider.sums = sums_;
  }
  return encode(rider);
}

// An owner that is no member has no tensor that somebody could have changed.
std::string StepNews::values_of(const program::Slice& slice) const {
  const std::vector<program::Rank>& members = slice.members;
  if (!makes_parameters(slice.exchange) || members.front() != self_ ||
      std::binary_search(members.begin(), members.end(), slice.owner)) {
    return "";
  }
  std::string values;
  const std::size_t width = size_of(slice.dtype);
  for (const program::PieceLayout& piece : layout_of(program_, slice)) {
    const auto found = news_.find(piece.variable);
    if (found == news_.end() || !found->second.values) continue;
    std::vector<std::byte> packed((piece.slice_begin + piece.count) * width);
    const torch::Tensor dense = variables_.dense(piece.variable);
    pack(piece, width, memory_of(dense), packed.data());
    values.append(reinterpret_cast<const char*>(packed.data()) + piece.slice_begin * width,
                  piece.count * width);
  }
  return values;
}

}  // namespace autodist::exec
