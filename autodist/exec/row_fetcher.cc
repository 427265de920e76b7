#include "autodist/exec/row_fetcher.h"

#include <fmt/format.h>

#include <algorithm>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/sort_unique.h"
#include "autodist/exec/buffer_pool.h"
#include "autodist/program/loads.h"

namespace autodist::exec {
namespace {

std::vector<std::int64_t> each_once(const std::vector<torch::Tensor>& tensors) {
  std::vector<std::int64_t> numbers;
  for (const torch::Tensor& tensor : tensors) {
    const torch::Tensor flat = tensor.to(torch::kInt64).contiguous();
    const auto* begin = flat.data_ptr<std::int64_t>();
    numbers.insert(numbers.end(), begin, begin + flat.numel());
  }
  sort_unique(numbers);
  return numbers;
}

}  // namespace

RowFetcher::RowFetcher(const program::Program& program, Signal& signal)
    : program_(program),
      signal_(signal),
      blocks_(program.slices.size()),
      last_(program.variables.size()),
      asked_(program.slices.size()) {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const program::Slice& slice = program.slices[i];
    if (!keeps_whole_copies(slice.exchange)) blocks_[i] = block_of(program, slice);
  }
}

std::vector<RowFetcher::Wanted> RowFetcher::want(ir::VariableId variable,
                                                 const std::vector<torch::Tensor>& numbers,
                                                 std::uint64_t step) {
  std::vector<Wanted> wanted;
  const bool whole = is_whole(variable);
  std::vector<std::int64_t> rows = whole ? std::vector<std::int64_t>{0} : each_once(numbers);
  std::optional<Wish>& last = last_[variable.value];
  if (last && last->step == step && last->rows == rows) return wanted;
  const std::int64_t table = whole ? 1 : shape_of(*program_.graph, variable)[0];
  if (!rows.empty() && (rows.front() < 0 || rows.back() >= table)) {
    fail(ErrorCode::kUsage,
         "step {}: '{}' has {} rows, the batch asks for row {}. Rows count from 0: mend the data, "
         "or make the table larger.",
         step, program_.graph->variable(variable).name, table,
         rows.front() < 0 ? rows.front() : rows.back());
  }
  for (const program::SliceId id : program_.plan(variable).slices) {
    const RowBlock& block = blocks_[id.value];
    const auto begin = std::lower_bound(rows.begin(), rows.end(), block.first);
    const auto end = std::lower_bound(begin, rows.end(), block.first + block.rows);
    if (begin == end) continue;
    std::vector<std::int64_t> in_slice;
    for (auto row = begin; row != end; ++row) in_slice.push_back(*row - block.first);
    wanted.push_back({id, aligned_copy(in_slice.data(), in_slice.size() * sizeof(std::int64_t))});
    const MutexLock lock(signal_);
    asked_[id.value] = {step, std::move(in_slice), false, {}};
  }
  last = Wish{step, std::move(rows)};
  return wanted;
}

void RowFetcher::take(program::SliceId slice, std::uint64_t step, comm::Payload rows) {
  const MutexLock lock(signal_);
  Asked& asked = asked_.at(slice.value);
  AD_CHECK(!asked.numbers.empty() && asked.step == step && !asked.answered &&
           rows.size == asked.numbers.size() * blocks_[slice.value].row_bytes())
      << "the owner of slice " << slice << " sent " << rows.size << " bytes of rows of step "
      << step << " for " << asked.numbers.size() << " rows of step " << asked.step;
  asked.rows = std::move(rows);
  asked.answered = true;
}

RowFetcher::Answers RowFetcher::take_answers(ir::VariableId variable) {
  Answers answers;
  const bool whole = is_whole(variable);
  for (const program::SliceId id : program_.plan(variable).slices) {
    const MutexLock lock(signal_);
    Asked& asked = asked_[id.value];
    if (asked.numbers.empty()) continue;
    AD_CHECK(asked.answered) << "rows of slice " << id << " are not here";
    const comm::Payload came = std::exchange(asked.rows, {});
    std::vector<std::int64_t> numbers = std::exchange(asked.numbers, {});
    if (whole) {
      answers.slices.emplace_back(id, came);
      continue;
    }
    for (std::int64_t& row : numbers) row += blocks_[id.value].first;
    answers.rows.push_back({std::move(numbers), came.data, came.keep});
  }
  return answers;
}

bool RowFetcher::is_whole(ir::VariableId variable) const {
  return sums_all_elements(program_.exchange(variable));
}

std::string RowFetcher::missing_rows(ir::VariableId variable) const {
  signal_.assert_held();
  for (const program::SliceId id : program_.plan(variable).slices) {
    const Asked& asked = asked_[id.value];
    if (asked.numbers.empty() || asked.answered) continue;
    const program::Rank owner = program_.slice(id).owner;
    const std::string what = is_whole(variable) ? fmt::format("slice {}", id)
                                                : fmt::format("{} rows", asked.numbers.size());
    return fmt::format("{} of rank {} ({}) {} missing", what, owner,
                       program_.ranks[owner.value].node, is_whole(variable) ? "is" : "are");
  }
  return "";
}

}  // namespace autodist::exec
