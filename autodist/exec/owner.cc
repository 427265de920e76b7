#include "autodist/exec/owner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/exec/codec.h"
#include "autodist/exec/factors.h"
#include "autodist/exec/rider.h"
#include "autodist/exec/row_update.h"
#include "autodist/exec/wanted_slices.h"
#include "autodist/program/route.h"
#include "autodist/program/state.h"

namespace autodist::exec {
namespace {

// A payload whose elements can be read in place: decoded, and aligned, for frames of a socket may
// lie anywhere.
comm::Payload readable(const program::Slice& slice, std::int64_t elements, comm::Payload payload) {
  if (payload.size == 0) return payload;
  const program::MessageForm form = contribution_form(slice.exchange);
  payload = decoded(form.codec, slice.dtype, elements, std::move(payload));
  const bool by_rows = form.layout == program::Layout::kRows;
  const std::size_t alignment = by_rows ? sizeof(std::int64_t) : size_of(slice.dtype);
  const auto address = reinterpret_cast<std::uintptr_t>(payload.data);  // NOLINT
  if (address % alignment == 0) return payload;
  return aligned_copy(payload.data, payload.size);
}

}  // namespace

Owner::Owner(const RankContext& rank, const protocol::Job& job,
             const std::vector<const std::byte*>& variables, const NormPlan& plan,
             const Norms& norms, const LossScaler& scaler)
    : program_(rank.program),
      job_(job),
      plan_(plan),
      norms_(norms),
      scaler_(scaler),
      user_rules_(rank.options.user_rules),
      signal_(rank.signal),
      position_(rank.program.slices.size(), -1) {
  for (std::size_t i = 0; i < program_.slices.size(); ++i) {
    const program::Slice& slice = program_.slices[i];
    program::RouteStop stop = program::stop_of(program_, slice, rank.self);
    if (stop.combines.empty()) continue;
    position_[i] = static_cast<std::int64_t>(owned_.size());
    Owned owned;
    owned.id = program::SliceId(i);
    owned.index = owned_.size();
    Waiting waiting;
    owned.from = std::move(stop.combines);
    owned.relays = stop.onward.has_value();
    AD_CHECK(owned.from.size() == job.awaited(job.slices[i], rank.self))
        << "slice " << i << ": " << owned.from.size() << " contributions meet here";
    owned.pieces = layout_of(program_, slice);
    for (const program::PieceLayout& piece : owned.pieces) owned.rules.push_back(declared(piece));
    owned.elements = element_count(slice);
    waiting.step = rank.options.first_step;
    if (program::updates_on_arrival(slice.exchange)) {
      owned.updates = static_cast<std::int64_t>(waiting.step * owned.from.size());
      waiting.next_step.assign(owned.from.size(), waiting.step);
    }
    waiting.contributions.assign(open_steps(slice.exchange) + 1,
                                 std::vector<Contribution>(owned.from.size()));
    const std::size_t element_bytes = size_of(slice.dtype);
    if (!sums_all_elements(slice.exchange) || !keeps_whole_copies(slice.exchange)) {
      owned.block = block_of(program_, slice);
    }
    if (sums_products(slice.exchange)) {
      owned.matrix = program::matrix_of(shape_of(*program_.graph, owned.pieces.front().variable));
    }
    owned.buffers = std::make_unique<BufferPool>(owned.elements * element_bytes);
    if (loses_averages(slice)) owned.residual = allocate_zeros(owned.buffers->bytes());
    if (makes_parameters(slice.exchange) && !owned.relays) {
      owned.master = owned.buffers->take();
      for (const program::PieceLayout& piece : owned.pieces) {
        pack(piece, element_bytes, variables[piece.variable.value], owned.master->data());
        owned.states.emplace_back(declared(piece), piece.count, slice.dtype, user_rules_);
      }
    }
    owned_.push_back(std::move(owned));
    waiting_.push_back(std::move(waiting));
  }
}

Owner::Owned& Owner::owned(program::SliceId slice) {
  AD_CHECK(slice.value < position_.size() && position_[slice.value] >= 0)
      << "slice " << slice << " is not owned here";
  return owned_[position_[slice.value]];
}

void Owner::keep(program::SliceId id, std::uint64_t step, program::Rank from, std::int64_t samples,
                 comm::Payload payload, std::string rider) {
  Owned& slice = owned(id);
  const auto member = std::lower_bound(slice.from.begin(), slice.from.end(), from);
  AD_CHECK(member != slice.from.end() && *member == from)
      << "rank " << from << " does not contribute to slice " << id << " here";
  const program::Slice& plan = in_program(slice);
  const program::MessageForm form = contribution_form(plan.exchange);
  std::size_t expected = payload.size;  // unpack_rows() and multiply() check theirs
  if (form.layout == program::Layout::kElements) {
    expected = static_cast<std::size_t>(
        program::contribution_bytes(form.codec, plan.dtype, slice.elements));
  }
  if (samples == 0) expected = 0;
  AD_CHECK(samples >= 0 && payload.size == expected)
      << "slice " << id << " from rank " << from << ": " << payload.size << " bytes for " << samples
      << " samples, expected " << expected;
  payload = readable(plan, slice.elements, std::move(payload));

  const MutexLock lock(signal_);
  Waiting& waiting = waiting_[slice.index];
  if (updates_on_arrival(slice)) {
    std::uint64_t& next = waiting.next_step[member - slice.from.begin()];
    AD_CHECK(step == next) << "slice " << id << " from rank " << from << " is of step " << step
                           << " after " << next;
    ++next;
    waiting.queue.push_back({from, step, {true, samples, std::move(payload), std::move(rider)}});
    return;
  }
  AD_CHECK(waiting.step <= step && step < waiting.step + waiting.contributions.size())
      << "slice " << id << " from rank " << from << " is of step " << step << " while step "
      << waiting.step << " is open";
  Contribution& contribution = waiting.of(step)[member - slice.from.begin()];
  AD_CHECK(!contribution.present) << "slice " << id << " from rank " << from << " of step " << step
                                  << " came twice";
  contribution = {true, samples, std::move(payload), std::move(rider)};
}

CombinedSlice Owner::merge(program::SliceId id, std::uint64_t step, program::Rank from) {
  Owned& slice = owned(id);
  if (updates_on_arrival(slice)) return apply_one(slice, step, from);
  average(slice, step);
  if (slice.relays) return averaged(slice);
  encode_average(slice);
  std::vector<SquaredSums> sums;
  if (!job_.slice(id).clip_norms.empty()) sums = clip_sums(slice);
  CombinedSlice combined;
  if (!job_.slice(id).at_owner) {
    combined = averaged(slice);
  } else if (job_.updates_at_once(job_.slice(id))) {
    apply_rule(slice, step, scaler_.updates_before(step));
    combined = updated(slice);
  }
  combined.sums = std::move(sums);
  return combined;
}

// The averaged gradient, which goes on as it is.
CombinedSlice Owner::averaged(Owned& slice) {
  CombinedSlice combined;
  combined.samples = slice.samples;
  combined.payload =
      slice.encoded.keep ? std::exchange(slice.encoded, {}) : lent(slice, slice.averaged);
  combined.rider = std::exchange(slice.rider, {});
  averages(slice).give_back(std::move(slice.averaged));
  next_step(slice);
  return combined;
}

void Owner::next_step(Owned& slice) {
  const MutexLock lock(signal_);
  if (!updates_on_arrival(slice)) ++waiting_[slice.index].step;
}

CombinedSlice Owner::updated(Owned& slice) {
  if (slice.averaged) averages(slice).give_back(std::move(slice.averaged));
  CombinedSlice combined;
  combined.samples = slice.samples;
  combined.payload = result_of(slice);
  combined.rider = std::exchange(slice.rider, {});
  slice.row_sum = {};
  slice.before_reload = {};
  next_step(slice);
  return combined;
}

CombinedSlice Owner::apply_one(Owned& slice, std::uint64_t step, program::Rank from) {
  Queued next;
  {
    const MutexLock lock(signal_);
    std::deque<Queued>& queue = waiting_[slice.index].queue;
    const auto found = std::find_if(queue.begin(), queue.end(), [&](const Queued& each) {
      return each.from == from && each.step == step;
    });
    AD_CHECK(found != queue.end())
        << "slice " << slice.id << " has no contribution of rank " << from << " to step " << step;
    next = std::move(*found);
    queue.erase(found);
  }
  slice.samples = next.contribution.samples;
  if (slice.samples != 0) {
    follow(slice, decode_rider(next.contribution.rider).news);
    if (by_rows(slice)) {
      average_rows(slice, {next.contribution}, {1.0});
    } else {
      slice.averaged = averages(slice).take();
      weighted_sum({{next.contribution.payload.data, 1.0}}, in_program(slice).dtype, slice.elements,
                   slice.averaged->data());
    }
    apply_rule(slice, next.step, scaler_.updates_before(static_cast<std::uint64_t>(slice.updates)));
    ++slice.updates;
  }
  return updated(slice);
}

std::vector<SquaredSums> Owner::measure(program::SliceId id, std::uint64_t step) {
  Owned& slice = owned(id);
  clip(slice, step);
  slice.clipped = true;
  const DType dtype = in_program(slice).dtype;
  std::vector<SquaredSums> sums(slice.pieces.size());
  for (std::size_t i = 0; i < slice.pieces.size(); ++i) {
    const auto& part = plan_.lamb[id.value][i];
    if (!part) continue;
    const program::PieceLayout& piece = slice.pieces[i];
    const std::size_t offset = piece.slice_begin * size_of(dtype);
    sums[i] = sum_lamb_norms(
        {slice.rules[i], 1, scaler_.updates_before(step)},
        {slice.master->data() + offset, slice.averaged->data() + offset, piece.count, dtype},
        slice.states[i]);
  }
  return sums;
}

CombinedSlice Owner::update(program::SliceId id, std::uint64_t step) {
  Owned& slice = owned(id);
  if (scaler_.skips(step)) {
    slice.samples = 0;
  } else if (!std::exchange(slice.clipped, false)) {
    clip(slice, step);
  }
  apply_rule(slice, step, scaler_.updates_before(step));
  return updated(slice);
}

BufferPool& Owner::averages(Owned& slice) {
  if (!job_.slice(slice.id).at_owner) return *slice.buffers;
  constexpr std::size_t kSizes = 16 << 10;  // slices differ by an element or so
  const std::size_t bytes = (slice.buffers->bytes() + kSizes - 1) / kSizes * kSizes;
  return scratch_.try_emplace(bytes, bytes).first->second;
}

// Takes the step's contributions out under the lock and adds them outside of it.
void Owner::average(Owned& slice, std::uint64_t step) {
  std::vector<Contribution> contributions(slice.from.size());
  {
    const MutexLock lock(signal_);
    contributions.swap(waiting_[slice.index].of(step));
  }
  combine_riders(slice, step, contributions);
  slice.samples = 0;
  for (const Contribution& each : contributions) slice.samples += each.samples;
  const bool add_up = program_.graph->reduction == ir::Reduction::kSum;
  std::vector<double> weights;
  for (const Contribution& each : contributions) {
    const double share = static_cast<double>(each.samples) / static_cast<double>(slice.samples);
    weights.push_back(add_up ? 1.0 : share);
  }
  if (by_rows(slice)) return average_rows(slice, contributions, weights);
  slice.averaged = averages(slice).take();
  std::vector<Term> terms;
  std::vector<WeightedFactors> factors;
  for (std::size_t i = 0; i < contributions.size(); ++i) {
    if (contributions[i].samples == 0) continue;
    terms.push_back({contributions[i].payload.data, weights[i]});
    factors.push_back({contributions[i].payload, weights[i]});
  }
  const program::Slice& plan = in_program(slice);
  if (sums_products(plan.exchange)) {
    multiply_factors(factors, slice.matrix, plan.dtype, slice.averaged->data());
  } else {
    weighted_sum(terms, plan.dtype, slice.elements, slice.averaged->data());
  }
}

// Contributors that contradict each other are found before anything is updated.
void Owner::combine_riders(Owned& slice, std::uint64_t step,
                           const std::vector<Contribution>& contributions) {
  slice.rider.clear();
  const bool silent = std::all_of(contributions.begin(), contributions.end(),
                                  [](const Contribution& each) { return each.rider.empty(); });
  if (silent) return follow(slice, "");
  std::vector<Rider> riders;
  for (const Contribution& each : contributions) riders.push_back(decode_rider(each.rider));
  std::vector<Said> said;
  Rider whole;
  for (std::size_t i = 0; i < riders.size(); ++i) {
    said.push_back({slice.from[i], &riders[i].news});
    whole.sums.resize(std::max(whole.sums.size(), riders[i].sums.size()));
    for (std::size_t j = 0; j < riders[i].sums.size(); ++j) whole.sums[j] += riders[i].sums[j];
    if (!riders[i].values.empty()) whole.values = std::move(riders[i].values);
  }
  check_agreement(*program_.graph, step, said);
  whole.news = std::move(riders.front().news);
  follow(slice, whole.news);
  if (!slice.relays) {
    if (!whole.values.empty()) put_values(slice, std::exchange(whole.values, {}));
    // Only ranks that update by themselves need to hear how: here the owner updates.
    if (job_.slice(slice.id).at_owner) whole.news.clear();
  }
  slice.rider = encode(whole);
}

void Owner::follow(Owned& slice, const std::string& news) {
  if (news == slice.news) return;
  News each = decode_news(*program_.graph, news);
  for (std::size_t i = 0; i < slice.pieces.size(); ++i) {
    slice.rules[i] = rule_by(declared(slice.pieces[i]), each[slice.pieces[i].variable]);
  }
  slice.news = news;
}

// Of the pieces whose variables the news calls changed, in their order.
void Owner::put_values(Owned& slice, const std::string& values) {
  AD_CHECK(slice.master) << "values for slice " << slice.id << ", which is not updated here";
  make_master_writable(slice);
  const News news = decode_news(*program_.graph, slice.news);
  const std::size_t width = size_of(in_program(slice).dtype);
  std::size_t at = 0;
  for (const program::PieceLayout& piece : slice.pieces) {
    const auto found = news.find(piece.variable);
    if (found == news.end() || !found->second.values) continue;
    const std::size_t size = piece.count * width;
    AD_CHECK(at + size <= values.size()) << values.size() << " bytes of values";
    std::memcpy(slice.master->data() + piece.slice_begin * width, values.data() + at, size);
    at += size;
  }
}

void Owner::average_rows(Owned& slice, const std::vector<Contribution>& contributions,
                         const std::vector<double>& weights) {
  std::vector<Rows> rows(contributions.size());
  std::vector<RowTerm> terms;
  for (std::size_t i = 0; i < contributions.size(); ++i) {
    if (contributions[i].samples == 0) continue;
    rows[i] = unpack_rows(slice.block, contributions[i].payload);
    terms.push_back({&rows[i], weights[i]});
  }
  slice.row_sum = sum_rows(slice.block, terms);
}

// Compresses the average and puts in its place what every rank will decode, so that the owner's
// update and the norm of a clip see the same values.
void Owner::encode_average(Owned& slice) {
  const program::Slice& plan = in_program(slice);
  const program::Compression codec = result_form(plan.exchange).codec;
  if (!encodes(codec, plan.dtype)) return;
  std::byte* average = slice.averaged->data();
  // Without samples nobody updates: what was lost before waits for the next step.
  std::byte* residual = slice.samples == 0 ? nullptr : slice.residual.get();
  slice.encoded = encode_sum(codec, plan.dtype, slice.elements, average, residual);
  decode(codec, plan.dtype, slice.elements, slice.encoded, average);
}

Owner::PieceGradient Owner::gradient_of(const Owned& slice, std::size_t piece) const {
  if (by_rows(slice)) {
    return {const_cast<std::byte*>(slice.row_sum.values),  // NOLINT: this slice alone holds them
            static_cast<std::int64_t>(slice.row_sum.numbers.size()) * slice.block.width};
  }
  const program::PieceLayout& layout = slice.pieces[piece];
  const std::size_t offset = layout.slice_begin * size_of(in_program(slice).dtype);
  return {slice.averaged->data() + offset, layout.count};
}

std::vector<SquaredSums> Owner::clip_sums(const Owned& slice) const {
  std::vector<SquaredSums> sums(slice.pieces.size());
  for (std::size_t i = 0; i < slice.pieces.size(); ++i) {
    if (!plan_.clipped[slice.id.value][i]) continue;
    const auto [data, count] = gradient_of(slice, i);
    sums[i].first = sum_of_squares(data, in_program(slice).dtype, count);
  }
  return sums;
}

void Owner::clip(Owned& slice, std::uint64_t step) {
  for (std::size_t i = 0; i < slice.pieces.size(); ++i) {
    const auto& part = plan_.clipped[slice.id.value][i];
    if (!part) continue;
    const double factor = clip_factor(program_.graph->clips[part->norm.value].max_norm,
                                      norms_.total(step, part->norm).first);
    const auto [data, count] = gradient_of(slice, i);
    scale(factor, in_program(slice).dtype, count, data);
  }
}

void Owner::apply_rule(Owned& slice, std::uint64_t step, std::int64_t updates_before) {
  if (slice.samples == 0) return;
  make_master_writable(slice);
  const DType dtype = in_program(slice).dtype;
  const double lr_factor = ir::factor_at(program_.graph->schedule, static_cast<std::int64_t>(step));
  if (by_rows(slice)) {
    return apply_rows({slice.rules.front(), lr_factor, updates_before}, slice.block, slice.row_sum,
                      slice.master->data(), slice.states.front());
  }
  for (std::size_t i = 0; i < slice.pieces.size(); ++i) {
    const program::PieceLayout& piece = slice.pieces[i];
    const std::size_t offset = piece.slice_begin * size_of(dtype);
    const UpdateStep update{slice.rules[i], lr_factor, updates_before, user_rules_};
    const ParameterRun run{slice.master->data() + offset, slice.averaged->data() + offset,
                           piece.count, dtype};
    if (const auto& part = plan_.lamb[slice.id.value][i]) {
      apply_lamb(update, run, slice.states[i], norms_.total(step, part->norm));
    } else {
      apply(update, run, slice.states[i]);
    }
  }
}

// The master was sent without a copy; where somebody still reads it, the next version goes to
// another buffer.
void Owner::make_master_writable(Owned& slice) {
  if (!slice.master->is_lent()) return;
  std::shared_ptr<Buffer> next = slice.buffers->take();
  std::memcpy(next->data(), slice.master->data(), slice.buffers->bytes());
  slice.buffers->give_back(std::exchange(slice.master, std::move(next)));
}

comm::Payload Owner::lent(const Owned& slice, const std::shared_ptr<Buffer>& buffer) {
  return {buffer->data(), slice.buffers->bytes(), Buffer::lend(buffer)};
}

// Where members ask for the parameters, the result is without bytes: it says that there is a new
// version.
comm::Payload Owner::result_of(const Owned& slice) const {
  switch (result_form(in_program(slice).exchange).layout) {
    case program::Layout::kElements:
      return lent(slice, slice.master);
    case program::Layout::kNothing:
    case program::Layout::kMatrices:
      return {};
    case program::Layout::kRows:
      return pack_rows(slice.block,
                       rows_of(slice.block, slice.row_sum.numbers, slice.master->data()));
  }
  return {};
}

void Owner::keep_ask(program::SliceId id, program::Rank from, std::uint64_t step,
                     comm::Payload numbers) {
  Owned& slice = owned(id);
  AD_CHECK(!keeps_whole_copies(in_program(slice).exchange))
      << "slice " << id << " is not fetched by rows";
  const MutexLock lock(signal_);
  waiting_[slice.index].asked.push_back({from, step, std::move(numbers)});
}

comm::Payload Owner::give_rows(program::SliceId id, program::Rank to, std::uint64_t step) {
  Owned& slice = owned(id);
  comm::Payload packed;
  {
    const MutexLock lock(signal_);
    std::vector<Asked>& all = waiting_[slice.index].asked;
    const auto asked = std::find_if(all.begin(), all.end(), [&](const Asked& each) {
      return each.from == to && each.step == step;
    });
    AD_CHECK(asked != all.end()) << "rank " << to << " has not asked for rows of slice " << id
                                 << " in step " << step;
    packed = std::move(asked->numbers);
    all.erase(asked);
  }
  std::vector<std::int64_t> numbers(packed.size / sizeof(std::int64_t));
  std::memcpy(numbers.data(), packed.data, numbers.size() * sizeof(std::int64_t));
  for (const std::int64_t row : numbers) {
    AD_CHECK(0 <= row && row < slice.block.rows)
        << "row " << row << " of " << slice.block.rows << ", asked for by rank " << to;
  }
  const Rows rows = rows_of(slice.block, std::move(numbers), slice.master->data());
  return {rows.values, rows.numbers.size() * slice.block.row_bytes(), rows.keep};
}

std::vector<program::SliceId> Owner::slices() const {
  std::vector<program::SliceId> ids;
  for (const Owned& slice : owned_) {
    if (!slice.relays) ids.push_back(slice.id);
  }
  return ids;
}

comm::Payload Owner::parameters(program::SliceId id) {
  const Owned& slice = owned(id);
  return slice.before_reload.keep ? slice.before_reload : lent(slice, slice.master);
}

comm::Payload Owner::reloaded_parameters(program::SliceId id) {
  const Owned& slice = owned(id);
  return lent(slice, slice.master);
}

bool Owner::updates_any_of(ir::VariableId variable) const {
  return std::any_of(owned_.begin(), owned_.end(), [&](const Owned& slice) {
    return slice.master && std::any_of(slice.pieces.begin(), slice.pieces.end(),
                                       [&](const program::PieceLayout& piece) {
                                         return piece.variable == variable;
                                       });
  });
}

void Owner::reload(ir::VariableId variable, const std::byte* values) {
  for (Owned& slice : owned_) {
    for (const program::PieceLayout& piece : slice.pieces) {
      if (piece.variable != variable || !slice.master) continue;
      if (fetched_in_step(in_program(slice)) && !slice.before_reload.keep) {
        slice.before_reload = lent(slice, slice.master);
      }
      make_master_writable(slice);
      pack(piece, size_of(in_program(slice).dtype), values, slice.master->data());
    }
  }
}

std::vector<UpdateState>& Owner::states(program::SliceId slice) { return owned(slice).states; }

}  // namespace autodist::exec
