#include "autodist/program/loads.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace autodist::program {
namespace {

std::int64_t width_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

bool has_codec(const Compression& compression) { return compression.codec != Codec::kNone; }

// The payload or the order of slices, where it is this one; else null.
template <typename Payload>
const Payload* payload(const Exchange& exchange) {
  const auto* slices = std::get_if<Slices>(&exchange);
  return slices == nullptr ? nullptr : std::get_if<Payload>(&slices->payload);
}
template <typename Order>
const Order* order(const Exchange& exchange) {
  const auto* slices = std::get_if<Slices>(&exchange);
  return slices == nullptr ? nullptr : std::get_if<Order>(&slices->order);
}

// A top-k average has places of its own: at most as many as all members sent.
Bytes averaged_bytes(const Compression& down, const SliceSize& size) {
  const Bytes one(contribution_bytes(down, size.dtype, size.elements));
  if (down.codec != Codec::kTopK) return one;
  return std::min(size.bytes(), one * size.members);
}

bool is_asked(const Dense* dense) {
  return dense != nullptr && dense->delivery == Delivery::kAsked;
}

Loads loads_of(const Dense& dense, bool makes_parameters, const SliceSize& size) {
  const Bytes whole = size.bytes();
  Loads loads;
  loads.contribution = Bytes(contribution_bytes(dense.up, size.dtype, size.elements));
  loads.result = makes_parameters ? whole : averaged_bytes(dense.down, size);
  loads.summed = whole;
  if (has_codec(dense.up)) loads.decoded = whole;
  if (has_codec(dense.down)) loads.encoded = whole;
  if (is_asked(&dense)) {
    loads.asked = Bytes(kRowNumberBytes);  // the slice is one row
    loads.fetched = std::exchange(loads.result, Bytes{});
  }
  return loads;
}

Loads loads_of(const Rows& rows, const SliceSize& size) {
  const std::int64_t row = size.row_elements * width_of(size.dtype);
  const std::int64_t all = size.elements / std::max<std::int64_t>(1, size.row_elements);
  const std::int64_t longest = row_mask_bytes(all) + all * row;  // a bit per row, and all of them
  const auto listed = [&](std::int64_t count) {
    return Bytes(std::min(count * (row + kRowNumberBytes), longest));
  };
  Loads loads;
  loads.contribution = listed(size.touched_rows);
  loads.summed = loads.contribution;
  switch (rows.transfer) {
    case RowTransfer::kFetch:
      loads.asked = Bytes(size.touched_rows * kRowNumberBytes);
      loads.fetched = Bytes(size.touched_rows * row);
      break;
    case RowTransfer::kReturn:
      loads.result = listed(std::min(all, size.touched_rows * size.members));
      break;
    case RowTransfer::kGather:
      break;
  }
  return loads;
}

Loads loads_of(const Factors& /*factors*/, const SliceSize& size) {
  Loads loads;
  loads.contribution = Bytes(size.factor_elements * width_of(size.dtype));
  return loads;
}

}  // namespace

Loads loads_of(const Exchange& exchange, const SliceSize& size) {
  Loads loads;
  const bool at_owner = makes_parameters(exchange);
  if (const auto* dense = payload<Dense>(exchange)) loads = loads_of(*dense, at_owner, size);
  if (const auto* rows = payload<Rows>(exchange)) loads = loads_of(*rows, size);
  if (const auto* factors = payload<Factors>(exchange)) loads = loads_of(*factors, size);
  loads.together = updates_on_arrival(exchange) ? 1 : size.members;
  if (at_owner) loads.updated = loads.summed;
  return loads;
}

MessageForm contribution_form(const Exchange& exchange) {
  if (const auto* dense = payload<Dense>(exchange)) return {Layout::kElements, dense->up};
  if (payload<Rows>(exchange) != nullptr) return {Layout::kRows};
  return {payload<Factors>(exchange) != nullptr ? Layout::kMatrices : Layout::kNothing};
}

MessageForm result_form(const Exchange& exchange) {
  const auto* dense = payload<Dense>(exchange);
  if (is_asked(dense)) return {Layout::kNothing};
  if (dense != nullptr) return {Layout::kElements, dense->down};
  if (payload<Factors>(exchange) != nullptr) return {Layout::kElements};
  const auto* rows = payload<Rows>(exchange);
  const bool fetched = rows != nullptr && rows->transfer == RowTransfer::kFetch;
  return {rows == nullptr || fetched ? Layout::kNothing : Layout::kRows};
}

bool goes_in_slices(const Exchange& exchange) { return std::holds_alternative<Slices>(exchange); }

bool sums_all_elements(const Exchange& exchange) { return payload<Rows>(exchange) == nullptr; }

bool sums_products(const Exchange& exchange) { return payload<Factors>(exchange) != nullptr; }

Bytes largest_slice(const Exchange& exchange, Bytes limit) {
  return sums_all_elements(exchange) ? limit : Bytes(kRowBlockBytes);
}

bool may_be_fused(const Exchange& exchange) {
  const auto* dense = payload<Dense>(exchange);
  return dense != nullptr && !is_asked(dense);
}

bool goes_to_all(const Exchange& exchange) {
  const auto* rows = payload<Rows>(exchange);
  return payload<Factors>(exchange) != nullptr ||
         (rows != nullptr && rows->transfer == RowTransfer::kGather);
}

bool makes_parameters(const Exchange& exchange) {
  const auto* versions = order<Versions>(exchange);
  return updates_on_arrival(exchange) ||
         (versions != nullptr && versions->update_at == UpdateAt::kOwner);
}

bool keeps_whole_copies(const Exchange& exchange) {
  const auto* rows = payload<Rows>(exchange);
  const bool fetched = rows != nullptr && rows->transfer == RowTransfer::kFetch;
  return !fetched && !is_asked(payload<Dense>(exchange));
}

bool keeps_newest_copies(const Exchange& exchange) {
  return keeps_whole_copies(exchange) && !updates_on_arrival(exchange);
}

bool updates_on_arrival(const Exchange& exchange) {
  return order<Asynchronous>(exchange) != nullptr;
}

std::optional<std::uint32_t> lag_of(const Exchange& exchange) {
  if (updates_on_arrival(exchange)) return std::nullopt;
  const auto* versions = order<Versions>(exchange);
  return versions == nullptr ? 0 : versions->staleness;
}

std::uint32_t open_steps(const Exchange& exchange) { return lag_of(exchange).value_or(0) + 1; }

bool is_cast(const Exchange& exchange, DType dtype) {
  const Compression codec = contribution_form(exchange).codec;
  return encodes(codec, dtype) && traits_of(codec.codec).unit == EncodedUnit::kElement &&
         !codec.error_feedback;
}

bool is_lossless(const Exchange& exchange) {
  if (const auto* library = std::get_if<Library>(&exchange)) return !has_codec(library->codec);
  return sums_all_elements(exchange) && !has_codec(contribution_form(exchange).codec);
}

Route route_of(const Exchange& exchange) {
  const auto* dense = payload<Dense>(exchange);
  return dense == nullptr ? Route::kDirect : dense->route;
}

bool is_passed_on(const Exchange& exchange) { return route_of(exchange) != Route::kDirect; }

bool meets_on_nodes(const Exchange& exchange) { return route_of(exchange) == Route::kNodes; }

LibraryLoads loads_of(const Library& exchange, const std::vector<std::int64_t>& shape) {
  LibraryLoads loads;
  const MatrixShape matrix = matrix_of(shape);
  const auto rank = factor_rank(exchange.codec, matrix);
  if (!rank) {
    loads.first = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    return loads;
  }
  loads.first = matrix.rows * *rank;
  loads.second = matrix.columns * *rank;
  loads.factored = matrix.rows * matrix.columns;
  loads.kept = loads.second + (exchange.codec.error_feedback ? loads.factored : 0);
  return loads;
}

}  // namespace autodist::program
