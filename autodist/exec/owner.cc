#include "autodist/exec/owner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/exec/codec.h"
#include "autodist/exec/factors.h"
#include "autodist/exec/rider.h"
#include "autodist/exec/row_update.h"
#include "autodist/ir/route.h"

namespace autodist::exec {
namespace {

// A payload whose elements can be read in place: decoded, and aligned, for frames of a socket may
// lie anywhere.
comm::Payload readable(const ir::Slice& slice, std::int64_t elements, comm::Payload payload) {
  const std::size_t element_bytes =
      slice.rows == ir::RowTransfer::kNone ? size_of(slice.dtype) : sizeof(std::int64_t);
  if (payload.size != 0 && encodes(slice.compression, slice.dtype)) {
    const std::size_t size = elements * element_bytes;
    std::shared_ptr<std::byte> decoded = allocate_aligned(size);
    decode(slice.compression, slice.dtype, elements, payload, decoded.get());
    return {decoded.get(), size, decoded};
  }
  if (reinterpret_cast<std::uintptr_t>(payload.data) % element_bytes == 0)
    return payload;  // NOLINT
  std::shared_ptr<std::byte> copy = allocate_aligned(payload.size);
  std::memcpy(copy.get(), payload.data, payload.size);
  return {copy.get(), payload.size, copy};
}

}  // namespace

Owner::Owner(const ir::Program& program, ir::Rank self, std::uint64_t first_step,
             const std::vector<const std::byte*>& variables, const NormPlan& plan,
             const Norms& norms, const LossScaler& scaler, const UserRules* user_rules,
             OwnerSink sink)
    : program_(program),
      plan_(plan),
      norms_(norms),
      scaler_(scaler),
      user_rules_(user_rules),
      sink_(std::move(sink)),
      position_(program.slices.size(), -1) {
  for (std::size_t i = 0; i < program.slices.size(); ++i) {
    const ir::Slice& slice = program.slices[i];
    ir::Way way = ir::way_of(program, slice, self);
    if (way.combines.empty()) continue;
    position_[i] = static_cast<std::int64_t>(owned_.size());
    Owned owned;
    owned.id = ir::SliceId(i);
    owned.from = std::move(way.combines);
    owned.relays = way.onward.has_value();
    owned.pieces = layout_of(program, slice);
    for (const PieceLayout& piece : owned.pieces) owned.rules.push_back(declared(piece));
    owned.elements = element_count(slice);
    owned.step = first_step;
    if (!slice.synchronous) {
      owned.step *= owned.from.size();
      owned.next_step.assign(owned.from.size(), first_step);
    }
    owned.gatherings.resize(slice.staleness + 2);
    for (Gathering& each : owned.gatherings) each.from.resize(owned.from.size());
    const std::size_t element_bytes = size_of(slice.dtype);
    if (slice.rows != ir::RowTransfer::kNone) owned.block = block_of(program, slice);
    if (slice.sufficient_factors) {
      owned.matrix = ir::matrix_of(shape_of(*program.graph, owned.pieces.front().variable));
    }
    owned.buffers = std::make_unique<BufferPool>(owned.elements * element_bytes);
    if (loses_averages(slice)) owned.residual = allocate_zeros(owned.buffers->bytes());
    if (slice.update_at == ir::UpdateAt::kOwner && !owned.relays) {
      owned.master = owned.buffers->take();
      for (const PieceLayout& piece : owned.pieces) {
        pack(piece, element_bytes, variables[piece.variable.value], owned.master->data());
        owned.states.emplace_back(declared(piece), piece.count, slice.dtype, user_rules);
      }
    }
    owned_.push_back(std::move(owned));
  }
}

Owner::Owned& Owner::owned(ir::SliceId slice) {
  AD_CHECK(slice.value < position_.size() && position_[slice.value] >= 0)
      << "slice " << slice << " is not owned here";
  return owned_[position_[slice.value]];
}

bool Owner::add(ir::SliceId id, std::uint64_t step, ir::Rank from, std::int64_t samples,
                comm::Payload payload, std::string rider) {
  Owned& slice = owned(id);
  const auto member = std::lower_bound(slice.from.begin(), slice.from.end(), from);
  AD_CHECK(member != slice.from.end() && *member == from)
      << "rank " << from << " does not contribute to slice " << id << " here";
  const bool any_size = by_rows(slice) || in_program(slice).sufficient_factors;
  const auto expected = samples == 0 ? std::size_t{0}
                        : any_size
                            ? payload.size  // unpack_rows() and multiply() check it
                            : static_cast<std::size_t>(contribution_bytes(in_program(slice)).value);
  AD_CHECK(samples >= 0 && payload.size == expected)
      << "slice " << id << " from rank " << from << ": " << payload.size << " bytes for " << samples
      << " samples, expected " << expected;
  payload = readable(in_program(slice), slice.elements, std::move(payload));

  const std::lock_guard<std::mutex> lock(mutex_);
  if (!in_program(slice).synchronous) {
    std::uint64_t& next = slice.next_step[member - slice.from.begin()];
    AD_CHECK(step == next) << "slice " << id << " from rank " << from << " is of step " << step
                           << " after " << next;
    ++next;
    slice.queue.push_back({from, step, {true, samples, std::move(payload), std::move(rider)}});
    return slice.queue.size() == 1;
  }
  AD_CHECK(slice.step <= step && step < slice.step + slice.gatherings.size())
      << "slice " << id << " from rank " << from << " is of step " << step << " while step "
      << slice.step << " is open";
  Gathering& open = gathering(slice, step);
  Contribution& contribution = open.from[member - slice.from.begin()];
  AD_CHECK(!contribution.present) << "slice " << id << " from rank " << from << " of step " << step
                                  << " came twice";
  contribution = {true, samples, std::move(payload), std::move(rider)};
  return ++open.present == slice.from.size() && step == slice.step;
}

bool Owner::merge(ir::SliceId id) {
  Owned& slice = owned(id);
  if (!in_program(slice).synchronous) return apply_next(slice);
  average(slice);
  if (slice.relays) return hand_on(slice);
  encode_average(slice);
  slice.waits_for = WaitsFor::kClip;
  await(slice, plan_.clipped[id.value]);
  if (!slice.awaited.empty()) report_clip_sums(slice);
  if (plan_.flags) slice.awaited.push_back(*plan_.flags);
  if (in_program(slice).update_at == ir::UpdateAt::kOwner) return go_on(slice);
  slice.awaited.clear();
  return hand_on(slice);
}

bool Owner::hand_on(Owned& slice) {
  const bool next_is_complete = finish(
      slice, slice.encoded.keep ? std::exchange(slice.encoded, {}) : lent(slice, slice.averaged));
  averages(slice).give_back(std::move(slice.averaged));
  return next_is_complete;
}

bool Owner::apply_next(Owned& slice) {
  Queued next;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    next = slice.queue.front();  // stays in the queue while it is being applied: see add()
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
    update(slice, next.step);
    if (slice.averaged) averages(slice).give_back(std::move(slice.averaged));
    ++slice.step;
  }
  sink_.answer(slice.id, next.from, next.step, slice.samples, result_of(slice));
  slice.row_sum = {};
  const std::lock_guard<std::mutex> lock(mutex_);
  slice.queue.pop_front();
  return !slice.queue.empty();
}

void Owner::await(Owned& slice, const std::vector<std::optional<NormPart>>& parts) {
  slice.awaited.clear();
  for (const auto& part : parts) {
    if (part) slice.awaited.push_back(part->norm);
  }
}

BufferPool& Owner::averages(Owned& slice) {
  if (in_program(slice).update_at == ir::UpdateAt::kEveryRank) return *slice.buffers;
  constexpr std::size_t kSizes = 16 << 10;  // slices differ by an element or so
  const std::size_t bytes = (slice.buffers->bytes() + kSizes - 1) / kSizes * kSizes;
  return scratch_.try_emplace(bytes, bytes).first->second;
}

// Takes the step's contributions out under the lock and adds them outside of it.
void Owner::average(Owned& slice) {
  std::vector<Contribution> contributions;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Gathering& complete = gathering(slice, slice.step);
    contributions.resize(complete.from.size());
    contributions.swap(complete.from);
    complete.present = 0;
  }
  combine_riders(slice, contributions);
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
  const ir::Slice& plan = in_program(slice);
  if (plan.sufficient_factors) {
    multiply_factors(factors, slice.matrix, plan.dtype, slice.averaged->data());
  } else {
    weighted_sum(terms, plan.dtype, slice.elements, slice.averaged->data());
  }
}

// Whatever is wrong with what they say is found before anything is updated.
void Owner::combine_riders(Owned& slice, const std::vector<Contribution>& contributions) {
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
  check_agreement(*program_.graph, slice.step, said);
  whole.news = std::move(riders.front().news);
  follow(slice, whole.news);
  if (!slice.relays) {
    if (!whole.values.empty()) put_values(slice, std::exchange(whole.values, {}));
    // Whoever updates by itself goes by what the contributors said.
    if (in_program(slice).update_at == ir::UpdateAt::kOwner) whole.news.clear();
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
  for (const PieceLayout& piece : slice.pieces) {
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

// Whoever goes on with the average, the norm of a clip too, sees what every rank will decode.
void Owner::encode_average(Owned& slice) {
  const ir::Slice& plan = in_program(slice);
  if (plan.update_at != ir::UpdateAt::kEveryRank || !encodes(plan.compression, plan.dtype)) return;
  std::byte* average = slice.averaged->data();
  // Without samples nobody updates: what was lost before waits for the next step.
  std::byte* residual = slice.samples == 0 ? nullptr : slice.residual.get();
  slice.encoded = encode_sum(plan.compression, plan.dtype, slice.elements, average, residual);
  decode(plan.compression, plan.dtype, slice.elements, slice.encoded, average);
}

void Owner::report_clip_sums(Owned& slice) {
  const DType dtype = in_program(slice).dtype;
  const auto& clipped = plan_.clipped[slice.id.value];
  std::vector<SquaredSums> sums(slice.pieces.size());
  for (std::size_t i = 0; i < slice.pieces.size(); ++i) {
    if (!clipped[i]) continue;
    if (by_rows(slice)) {
      sums[i].first = sum_of_squares(slice.row_values(), dtype, slice.row_elements());
      continue;
    }
    const PieceLayout& piece = slice.pieces[i];
    sums[i].first = sum_of_squares(slice.averaged->data() + piece.slice_begin * size_of(dtype),
                                   dtype, piece.count);
  }
  sink_.sums(slice.id, slice.step, /*lamb=*/false, std::move(sums));
}

void Owner::clip(Owned& slice) {
  const DType dtype = in_program(slice).dtype;
  for (std::size_t i = 0; i < slice.pieces.size(); ++i) {
    const auto& part = plan_.clipped[slice.id.value][i];
    if (!part) continue;
    const PieceLayout& piece = slice.pieces[i];
    const double factor = clip_factor(program_.graph->clips[part->norm.value].max_norm,
                                      norms_.total(slice.step, part->norm)->first);
    std::byte* gradient = by_rows(slice)
                              ? slice.row_values()
                              : slice.averaged->data() + piece.slice_begin * size_of(dtype);
    scale(factor, dtype, by_rows(slice) ? slice.row_elements() : piece.count, gradient);
  }
}

void Owner::start_lamb(Owned& slice) {
  const DType dtype = in_program(slice).dtype;
  std::vector<SquaredSums> sums(slice.pieces.size());
  for (std::size_t i = 0; i < slice.pieces.size(); ++i) {
    const auto& part = plan_.lamb[slice.id.value][i];
    if (!part) continue;
    const PieceLayout& piece = slice.pieces[i];
    const std::size_t offset = piece.slice_begin * size_of(dtype);
    const LambNorms norms = sum_lamb_norms(
        slice.rules[i], scaler_.updates_before(slice.step), slice.master->data() + offset,
        slice.averaged->data() + offset, piece.count, dtype, slice.states[i]);
    sums[i] = {norms.parameters_squared, norms.update_squared};
  }
  sink_.sums(slice.id, slice.step, /*lamb=*/true, std::move(sums));
}

bool Owner::is_known(std::uint64_t step, NormId norm) const {
  return norm == plan_.flags ? scaler_.is_decided(step) : norms_.total(step, norm).has_value();
}

// From one wait to the next: the clip's norm and the flags, then LAMB's norms, then the update.
bool Owner::go_on(Owned& slice) {
  while (std::all_of(slice.awaited.begin(), slice.awaited.end(),
                     [&](NormId norm) { return is_known(slice.step, norm); })) {
    if (slice.waits_for == WaitsFor::kClip) {
      slice.waits_for = WaitsFor::kLamb;
      slice.awaited.clear();
      if (scaler_.skips(slice.step)) {
        slice.samples = 0;  // nothing is updated, nor is LAMB's first phase done
        continue;
      }
      clip(slice);
      await(slice, plan_.lamb[slice.id.value]);
      if (!slice.awaited.empty()) start_lamb(slice);
    } else {
      slice.waits_for = WaitsFor::kContributions;
      update(slice, slice.step);
      if (slice.averaged) averages(slice).give_back(std::move(slice.averaged));
      comm::Payload result = result_of(slice);
      slice.row_sum = {};
      return finish(slice, std::move(result));
    }
  }
  return false;
}

void Owner::update(Owned& slice, std::uint64_t schedule_step) {
  if (slice.samples == 0) return;
  make_master_writable(slice);
  const DType dtype = in_program(slice).dtype;
  const std::int64_t step = scaler_.updates_before(slice.step);
  const double lr_factor =
      ir::factor_at(program_.graph->schedule, static_cast<std::int64_t>(schedule_step));
  if (by_rows(slice)) {
    return apply_rows(slice.rules.front(), lr_factor, step, slice.block, slice.row_sum,
                      slice.master->data(), slice.states.front());
  }
  for (std::size_t i = 0; i < slice.pieces.size(); ++i) {
    const PieceLayout& piece = slice.pieces[i];
    const std::size_t offset = piece.slice_begin * size_of(dtype);
    std::byte* parameters = slice.master->data() + offset;
    if (const auto& part = plan_.lamb[slice.id.value][i]) {
      const SquaredSums total = *norms_.total(slice.step, part->norm);
      apply_lamb(slice.rules[i], lr_factor, step, parameters, piece.count, dtype, slice.states[i],
                 {total.first, total.second});
    } else {
      apply(slice.rules[i], lr_factor, step, parameters, slice.averaged->data() + offset,
            piece.count, dtype, slice.states[i], user_rules_);
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

// Where rows are fetched nothing but the new version's number goes out.
comm::Payload Owner::result_of(const Owned& slice) const {
  switch (in_program(slice).rows) {
    case ir::RowTransfer::kNone:
      return lent(slice, slice.master);
    case ir::RowTransfer::kFetch:
      return {};
    case ir::RowTransfer::kReturn:
    case ir::RowTransfer::kGather:
      return pack_rows(slice.block,
                       rows_of(slice.block, slice.row_sum.numbers, slice.master->data()));
  }
  return {};
}

bool Owner::finish(Owned& slice, comm::Payload result) {
  sink_.result(slice.id, slice.step, slice.samples, std::move(result),
               std::exchange(slice.rider, {}));
  std::unique_lock<std::mutex> lock(mutex_);
  ++slice.step;
  lock.unlock();
  const auto answerable = [&](const Asked& asked) {
    return asked.step <= slice.step + in_program(slice).staleness;
  };
  for (const Asked& asked : slice.asked) {
    if (answerable(asked)) give_rows(slice, asked);
  }
  slice.asked.erase(std::remove_if(slice.asked.begin(), slice.asked.end(), answerable),
                    slice.asked.end());
  lock.lock();
  return gathering(slice, slice.step).present == slice.from.size();
}

void Owner::fetch(ir::SliceId id, ir::Rank from, std::uint64_t step, comm::Payload numbers) {
  Owned& slice = owned(id);
  const ir::Slice& plan = in_program(slice);
  AD_CHECK(plan.rows == ir::RowTransfer::kFetch) << "slice " << id << " is not fetched by rows";
  Asked asked{from, step, std::move(numbers)};
  // An asynchronous slice counts updates, not steps, and any version will do.
  if (!plan.synchronous || step <= slice.step + plan.staleness) return give_rows(slice, asked);
  slice.asked.push_back(std::move(asked));
}

void Owner::give_rows(const Owned& slice, const Asked& asked) {
  std::vector<std::int64_t> numbers(asked.numbers.size / sizeof(std::int64_t));
  std::memcpy(numbers.data(), asked.numbers.data, numbers.size() * sizeof(std::int64_t));
  for (const std::int64_t row : numbers) {
    AD_CHECK(0 <= row && row < slice.block.rows)
        << "row " << row << " of " << slice.block.rows << ", asked for by rank " << asked.from;
  }
  const Rows rows = rows_of(slice.block, std::move(numbers), slice.master->data());
  sink_.rows(slice.id, asked.from, asked.step,
             {rows.values, rows.numbers.size() * slice.block.row_bytes(), rows.keep});
}

std::vector<ir::SliceId> Owner::norm_known(std::uint64_t step, NormId norm) {
  std::vector<ir::SliceId> complete;
  for (Owned& slice : owned_) {
    const auto& awaited = slice.awaited;
    if (slice.waits_for == WaitsFor::kContributions || slice.step != step ||
        std::find(awaited.begin(), awaited.end(), norm) == awaited.end()) {
      continue;
    }
    if (go_on(slice)) complete.push_back(slice.id);
  }
  return complete;
}

std::vector<ir::SliceId> Owner::slices() const {
  std::vector<ir::SliceId> ids;
  for (const Owned& slice : owned_) {
    if (!slice.relays) ids.push_back(slice.id);
  }
  return ids;
}

comm::Payload Owner::parameters(ir::SliceId id) {
  const Owned& slice = owned(id);
  return lent(slice, slice.master);
}

void Owner::reload(ir::VariableId variable, const std::byte* values) {
  for (Owned& slice : owned_) {
    for (const PieceLayout& piece : slice.pieces) {
      if (piece.variable != variable || !slice.master) continue;
      make_master_writable(slice);
      pack(piece, size_of(in_program(slice).dtype), values, slice.master->data());
    }
  }
}

std::vector<UpdateState>& Owner::states(ir::SliceId slice) { return owned(slice).states; }

}  // namespace autodist::exec
