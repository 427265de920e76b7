#include "autodist/exec/row_update.h"

#include <cmath>
#include <cstring>

#include "autodist/exec/half_float.h"
#include "autodist/exec/update_formulas.h"

namespace autodist::exec {
namespace {

// torch.optim.SparseAdam: unlike Adam it adds eps before the second moment's bias is corrected.
template <typename P>
void sparse_adam(const UpdateScalars& run, std::int64_t elements, P* parameters, const P* gradient,
                 UpdateState& state) {
  using T = decltype(widen(P{}));
  const auto step_size = static_cast<T>(run.lr * std::sqrt(run.bias_correction("beta2")) /
                                        run.bias_correction("beta1"));
  const auto eps = static_cast<T>(run.get("eps"));
  const auto rest1 = static_cast<T>(1 - run.get("beta1"));
  const auto rest2 = static_cast<T>(1 - run.get("beta2"));
  auto* mean = static_cast<T*>(state.data(0));
  auto* square = static_cast<T*>(state.data(1));
  for (std::int64_t i = 0; i < elements; ++i) {
    const auto g = static_cast<T>(widen(gradient[i]));
    mean[i] += (g - mean[i]) * rest1;
    square[i] += (g * g - square[i]) * rest2;
    const T value = widen(parameters[i]) - step_size * (mean[i] / (std::sqrt(square[i]) + eps));
    parameters[i] = narrow<P>(value);
  }
}

}  // namespace

// The rows and their state are copied together, updated as one run and copied back: rules know runs
// of elements alone.
void apply_rows(const UpdateStep& update, const RowBlock& block, const Rows& gradient,
                std::byte* parameters, UpdateState& state) {
  const ir::UpdateRule& rule = update.rule;
  const std::int64_t elements = static_cast<std::int64_t>(gradient.numbers.size()) * block.width;
  if (elements == 0) return;
  Rows rows = rows_of(block, gradient.numbers, parameters);
  UpdateState rows_state(rule, elements, block.dtype);
  const RowBlock states{block.first, block.rows, block.width, state.dtype()};
  for (std::size_t i = 0; i < state.names().size(); ++i) {
    const Rows of_state =
        rows_of(states, gradient.numbers, static_cast<const std::byte*>(state.data(i)));
    std::memcpy(rows_state.data(i), of_state.values, elements * size_of(state.dtype()));
  }
  auto* updated = const_cast<std::byte*>(rows.values);  // NOLINT: made here, read by nobody else
  if (rule.rule == ir::Rule::kAdam) {
    with_element_type(block.dtype, [&](auto element) {
      using P = decltype(element);
      sparse_adam(scalars_of(update), elements, elements_at<P>(updated),
                  elements_at<P>(gradient.values), rows_state);
    });
  } else {
    apply(update, {updated, gradient.values, elements, block.dtype}, rows_state);
  }
  put_rows(block, rows, parameters);
  for (std::size_t i = 0; i < state.names().size(); ++i) {
    const Rows of_state{gradient.numbers, static_cast<const std::byte*>(rows_state.data(i)),
                        nullptr};
    put_rows(states, of_state, static_cast<std::byte*>(state.data(i)));
  }
}

}  // namespace autodist::exec
