// What an exchange means for everybody who does not perform it: its bytes, messages and work, and
// what copies of a variable hold. From sizes and counts, without a Program, so that the arithmetic
// score of a search can ask in less than a microsecond; program/slice_size.h reads the sizes off a
// Program.
//
// Simulator, bounds, memory, score, reports and the bytes of the executor ask here, and name no
// alternative of Exchange themselves (tests/exchange_names_test.cc).

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "autodist/base/dtype.h"
#include "autodist/base/units.h"
#include "autodist/program/exchange.h"

namespace autodist::program {

// A block of rows is one slice: few messages per step. A whole one travels in pieces.
inline constexpr std::int64_t kRowBlockBytes = 128 << 20;
// Of the two forms of listed rows (docs/formats/wire.md): the number of a row in a list, and the
// mask of a block of `rows` rows.
inline constexpr std::int64_t kRowNumberBytes = 8;
constexpr std::int64_t row_mask_bytes(std::int64_t rows) { return (rows + 63) / 64 * 8; }

// How much there is to exchange in one slice, or in a whole variable.
struct SliceSize {
  std::int64_t elements = 0;
  DType dtype = DType::kFloat32;
  std::int64_t members = 0;          // ranks that contribute
  std::int64_t row_elements = 1;     // of one row, where rows travel
  std::int64_t touched_rows = 0;     // by one member in a step, where rows travel
  std::int64_t factor_elements = 0;  // of one member's two matrices, where factors travel

  [[nodiscard]] Bytes bytes() const {
    return Bytes(elements * static_cast<std::int64_t>(autodist::size_of(dtype)));
  }
};

// Of one step. Bytes of a message are its payload: no header, no acknowledgement.
struct Loads {
  Bytes contribution;  // from a member to whoever sums
  Bytes result;        // from whoever sums to a member; 0 where nothing comes back
  Bytes asked;         // from a member to the owner: which rows it wants
  Bytes fetched;       // from the owner to a member: those rows
  // Work of whoever sums.
  Bytes summed;               // of each contribution; 0 where products are (sums_products())
  Bytes decoded;              // of each contribution, as much as its sender encodes
  Bytes encoded;              // of the result
  Bytes updated;              // 0 where every rank updates
  std::int64_t together = 1;  // contributions in one piece of work
};
// Nothing of what no slice carries.
Loads loads_of(const Exchange& exchange, const SliceSize& size);

// How the bytes of a message are laid out.
enum class Layout : std::uint8_t {
  kNothing,   // no bytes
  kElements,  // in the order of the slice, encoded where there is a codec
  kRows,      // numbers of rows, and their elements
  kMatrices,  // two, whose product is the gradient
};
struct MessageForm {
  Layout layout = Layout::kNothing;
  Compression codec = {};
};
MessageForm contribution_form(const Exchange& exchange);
// Of what whoever sums makes; it is sent to the other members unless contributions go to all.
MessageForm result_form(const Exchange& exchange);

// Whether it is cut into slices, each with an owner; else a library carries it, or nobody does.
bool goes_in_slices(const Exchange& exchange);
// Whether a step sums all elements of the gradient; else those that its batch touches.
bool sums_all_elements(const Exchange& exchange);
// Whether contributions are two matrices each, and their products are what is summed.
bool sums_products(const Exchange& exchange);
// The largest slice, where one of all elements may have `limit`.
Bytes largest_slice(const Exchange& exchange, Bytes limit);
// Whether parts of several variables may travel as one slice.
bool may_be_fused(const Exchange& exchange);
// Whether each contribution goes to every member, which makes the result for itself.
bool goes_to_all(const Exchange& exchange);
// Whether who sums also updates, so that results are parameters; else they are averaged gradients.
bool makes_parameters(const Exchange& exchange);
// Over which links; kDirect of what no slice carries.
Route route_of(const Exchange& exchange);
// Whether members pass on what others send.
bool is_passed_on(const Exchange& exchange);
// Whether the members of a node meet at one of them, so that its card carries one contribution.
bool meets_on_nodes(const Exchange& exchange);
// Steps whose contributions may be on their way at once.
std::uint32_t open_steps(const Exchange& exchange);

// Whether each contribution is applied by itself, as it comes, and makes no version with others.
bool updates_on_arrival(const Exchange& exchange);
// Steps by which a gate may lag behind; nothing: without bound.
std::optional<std::uint32_t> lag_of(const Exchange& exchange);
// Whether a contribution is the gradient with each element cast to fewer bits, and nothing of what
// that loses is kept. Then the device that has the gradient casts it, and its host does not.
bool is_cast(const Exchange& exchange, DType dtype);
// Whether all elements of the gradient are summed, as exact as they are.
bool is_lossless(const Exchange& exchange);
// Whether a member's copy has all elements between steps; else it holds what it asked for.
bool keeps_whole_copies(const Exchange& exchange);
// Whether it then has the newest version of all of them: of what is updated on arrival the owner
// alone has that, and a copy is as new as its rank's last contribution.
bool keeps_newest_copies(const Exchange& exchange);

// What a library's all-reduce carries of one variable, in elements.
struct LibraryLoads {
  std::int64_t first = 0;     // of the gradient, or of one factor
  std::int64_t second = 0;    // of the other factor, in a second round
  std::int64_t factored = 0;  // of a gradient that leaves as two factors
  std::int64_t kept = 0;      // from step to step: a factor to go on from, and what is owed
};
// `shape`: of the variable.
LibraryLoads loads_of(const Library& exchange, const std::vector<std::int64_t>& shape);

}  // namespace autodist::program
