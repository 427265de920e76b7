#include "autodist/exec/local_variables.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/capture/op_call.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/codec.h"
#include "autodist/exec/contributor.h"
#include "autodist/exec/device/tensor_update.h"
#include "autodist/exec/rider.h"
#include "autodist/exec/row_update.h"
#include "autodist/exec/tensor_data.h"
#include "autodist/exec/weighted_sum.h"
#include "autodist/ir/rows.h"
#include "autodist/program/loads.h"

namespace autodist::exec {
namespace {

bool is_dense_on_host(const torch::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous();
}

}  // namespace

LocalVariables::LocalVariables(const program::Program& program, const Norms& norms,
                               const LossScaler& scaler, const UserRules* user_rules,
                               const capture::Bindings& bindings, Staging& staging, Signal& signal)
    : program_(program),
      norms_(norms),
      scaler_(scaler),
      user_rules_(user_rules),
      staging_(staging),
      signal_(signal),
      copies_(Queue::for_copies(staging.device())),
      watch_(bindings),
      locals_(program.variables.size()),
      results_(program.slices.size()),
      uninstalled_(program.slices.size()),
      pieces_(program.slices.size()) {
  for (std::size_t i = 0; i < program.slices.size(); ++i) {
    results_[i].resize(open_steps(program.slices[i].exchange));
    uninstalled_[i].resize(results_[i].size());
    variable_counts_.push_back(
        static_cast<std::uint32_t>(variables_of(program, program.slices[i]).size()));
    for (program::PieceLayout& piece : layout_of(program, program.slices[i])) {
      Local& local = locals_[piece.variable.value];
      local.gets_parameters = makes_parameters(program.slices[i].exchange);
      local.gets_rows = result_form(program.slices[i].exchange).layout == program::Layout::kRows;
      local.sources.push_back({program::SliceId(i), std::move(piece)});
    }
  }
  for (const Local& local : locals_) {
    for (const Source& source : local.sources) {
      pieces_[source.slice.value].push_back(&source.piece);
    }
  }
  for (std::size_t i = 0; i < locals_.size(); ++i) {
    Local& local = locals_[i];
    const program::VariablePlan& variable = program.variables[i];
    local.tensor = bindings.variables[i];
    local.dtype = dtype_of(local.tensor.scalar_type());
    local.last_read = Queue::current(local.tensor.device()).record();
    if (variable.clip) local.clip = NormPlan::of(*variable.clip);
    const ir::Variable& declared = program.graph->variables[i];
    local.rule = declared.update;
    const bool updates =
        local.sources.empty() ? declared.gradient.has_value() : !local.gets_parameters;
    local.updated_on_device = updates && !local.tensor.is_cpu() && updates_tensors(local.rule) &&
                              !ir::trained_by_rows(declared);
    const bool comes_whole = keeps_whole_copies(program.exchange(ir::VariableId(i)));
    if (!is_dense_on_host(local.tensor) && !local.updated_on_device && comes_whole) {
      local.shadow = staging.take(local.tensor.sizes(), local.tensor.scalar_type());
      local.shadow.copy_(local.tensor);
    }
    if (!updates) continue;
    if (has_whole_state(ir::VariableId(i))) {
      local.states.emplace_back(local.rule, local.tensor.numel(), local.dtype, user_rules);
    } else {
      for (const Source& source : local.sources) {
        local.states.emplace_back(local.rule, source.piece.count, local.dtype, user_rules);
      }
    }
    put_states(ir::VariableId(i));
  }
}

LocalVariables::~LocalVariables() {
  if (!signal_.failure()) await_device();
}

void LocalVariables::await_device() const {
  for (const Local& local : locals_) local.installed.block_host(WaitSite::kVariablesSettle);
}

std::vector<UpdateState>& LocalVariables::states(ir::VariableId variable) {
  Local& local = locals_[variable.value];
  if (local.updated_on_device && local.states.empty()) {
    local.installed.block_host(WaitSite::kStateRead);
    local.states.emplace_back(program_.graph->variable(variable).update, local.tensor.numel(),
                              local.dtype, user_rules_);
    copy_to_host(local.device_states, local.states.front());
  }
  return local.states;
}

void LocalVariables::put_states(ir::VariableId variable) {
  Local& local = locals_[variable.value];
  if (!local.updated_on_device) return;
  local.device_states =
      tensors_of(local.states.front(), local.tensor.sizes(), local.tensor.device());
  local.states.clear();
}

Bytes LocalVariables::device_state_bytes() const {
  Bytes bytes;
  for (const Local& local : locals_) {
    for (const torch::Tensor& state : local.device_states) {
      bytes += Bytes(static_cast<std::int64_t>(state.nbytes()));
    }
  }
  return bytes;
}

torch::Tensor LocalVariables::dense(ir::VariableId variable) const {
  const Local& local = locals_[variable.value];
  // Rows that are asked for go into the tensor alone.
  const bool current = keeps_whole_copies(program_.exchange(variable));
  if (shadows_version(local) && current) return local.shadow;
  local.installed.block_host(WaitSite::kDenseRead);
  return local.tensor.to(torch::kCPU).contiguous();
}

std::string LocalVariables::missing_results(ir::VariableId variable, std::uint64_t step) const {
  signal_.assert_held();
  const std::vector<program::SliceId>& slices = program_.plan(variable).slices;
  std::string missing;
  std::size_t count = 0;
  for (const program::SliceId slice : slices) {
    if (of_step(uninstalled_[slice.value], step) != 0) continue;
    if (++count > 3) continue;
    const program::Rank owner = program_.slice(slice).owner;
    missing += fmt::format("{} slice {} of rank {} ({})", count == 1 ? ":" : ",", slice, owner,
                           program_.ranks[owner.value].node);
  }
  return fmt::format("{} of {} slices are missing{}{}", count, slices.size(), missing,
                     count > 3 ? ", …" : "");
}

void LocalVariables::take(program::SliceId slice, std::uint64_t step, std::int64_t samples,
                          comm::Payload payload, std::string news, bool goes_in) {
  AD_CHECK(slice.value < results_.size()) << "slice " << slice << " of " << results_.size();
  Result& result = this->result(slice, step);
  const program::Slice& plan = program_.slice(slice);
  const program::MessageForm form = result_form(plan.exchange);
  payload = decoded(form.codec, plan.dtype, element_count(plan), std::move(payload));
  const bool elements = form.layout == program::Layout::kElements;
  const auto expected = elements ? static_cast<std::size_t>(bytes_of(plan).value) : std::size_t{0};
  AD_CHECK(form.layout == program::Layout::kRows || payload.size == expected)
      << "the result of slice " << slice << " has " << payload.size << " bytes, expected "
      << expected;
  {
    const MutexLock lock(signal_);
    AD_CHECK(of_step(uninstalled_[slice.value], step) == 0)
        << "slice " << slice << " came back twice";
  }
  goes_in = goes_in && elements;
  if (goes_in) {
    const std::size_t element_bytes = size_of(plan.dtype);
    for (const program::PieceLayout* piece : pieces_[slice.value]) {
      check_untouched(piece->variable);
      watch_.writes(piece->variable);
      unpack(*piece, element_bytes, payload.data, bytes(locals_[piece->variable.value]));
    }
    payload = {};
  }
  const MutexLock lock(signal_);
  result.is_in = goes_in;
  result.samples = samples;
  result.payload = std::move(payload);
  result.news = std::move(news);
  of_step(uninstalled_[slice.value], step) = variable_counts_[slice.value];
}

std::byte* LocalVariables::bytes(Local& local) const {
  local.installed.block_host(WaitSite::kShadowRead);
  if (local.updated_on_device && !local.shadow.defined()) {
    local.shadow = staging_.take(local.tensor.sizes(), local.tensor.scalar_type());
  }
  return memory_of(local.shadow.defined() ? local.shadow : local.tensor);
}

double LocalVariables::clip_factor_of(const Local& local, std::uint64_t step) const {
  if (!local.clip) return 1;
  return clip_factor(program_.graph->clips[local.clip->value].max_norm,
                     norms_.total(step, *local.clip).first);
}

UpdateStep LocalVariables::update_of(const Local& local, std::uint64_t step) const {
  return {local.rule, ir::factor_at(program_.graph->schedule, static_cast<std::int64_t>(step)),
          scaler_.updates_before(step), user_rules_};
}

std::vector<Rows> LocalVariables::copy_results(Local& local, std::uint64_t step) {
  std::vector<Rows> rows;
  for (const Source& source : local.sources) {
    const Result& came = result(source.slice, step);
    if (came.is_in) continue;
    const program::Layout layout = result_form(program_.slice(source.slice).exchange).layout;
    if (layout == program::Layout::kRows) {
      rows.push_back(copy_rows(local, source.slice, came.payload));
    }
    // Rows that are fetched come by another way, when a batch asks for them.
    if (layout != program::Layout::kElements) continue;
    unpack(source.piece, size_of(local.dtype), came.payload.data, bytes(local));
  }
  return rows;
}

Rows LocalVariables::copy_rows(Local& local, program::SliceId id,
                               const comm::Payload& payload) const {
  const RowBlock block = block_of(program_, program_.slice(id));
  Rows rows = unpack_rows(block, payload);
  put_rows(block, rows, bytes(local) + block.first * block.row_bytes());
  for (std::int64_t& row : rows.numbers) row += block.first;
  return rows;
}

void LocalVariables::check_untouched(ir::VariableId variable) const {
  if (!watch_.is_touched(variable)) return;
  fail(
      ErrorCode::kUsage,
      "step: somebody has written to '{}' while its next version was on its way. Between two steps "
      "call synchronize() before you write to a tensor that you kept; what is reached through the "
      "module is synchronized.",
      program_.graph->variable(variable).name);
}

// How the rule is set from now on.
void LocalVariables::follow(ir::VariableId variable, const std::string& news) {
  Local& local = locals_[variable.value];
  if (news == local.news) return;
  local.rule = rule_by(program_.graph->variable(variable).update,
                       decode_news(*program_.graph, news)[variable]);
  local.news = news;
}

Rows LocalVariables::update_rows(Local& local, std::uint64_t step, const torch::Tensor& gradient) {
  const std::int64_t rows = local.tensor.size(0);
  const RowBlock block{0, rows, rows == 0 ? 0 : local.tensor.numel() / rows, local.dtype};
  const Rows named = GradientRows(gradient, local.tensor.scalar_type()).in(block);
  std::byte* const parameters = bytes(local);
  apply_rows(update_of(local, step), block, named, parameters, local.states.front());
  return local.shadow.defined() ? rows_of(block, named.numbers, parameters) : Rows{};
}

// Pieces are packed, updated and unpacked again, unless they lie in one stretch already.
void LocalVariables::update_pieces(Local& local, std::uint64_t step) {
  const DType dtype = local.dtype;
  const std::size_t width = size_of(dtype);
  const UpdateStep update = update_of(local, step);
  const double factor = clip_factor_of(local, step);
  SquaredSums norms;
  // Calls visit(run, state) per piece; what it does to the parameters stays.
  const auto for_each_piece = [&](auto visit) {
    std::vector<std::byte> gradient;
    std::vector<std::byte> packed;
    for (std::size_t i = 0; i < local.sources.size(); ++i) {
      const program::PieceLayout& piece = local.sources[i].piece;
      const std::byte* averaged =
          result(local.sources[i].slice, step).payload.data + piece.slice_begin * width;
      if (factor != 1) {  // the payload is not ours to scale
        gradient.resize(piece.count * width);
        weighted_sum({{averaged, factor}}, dtype, piece.count, gradient.data());
        averaged = gradient.data();
      }
      if (piece.runs.size() == 1) {
        visit(ParameterRun{bytes(local) + piece.runs.front().variable_begin * width, averaged,
                           piece.count, dtype},
              local.states[i]);
        continue;
      }
      packed.resize((piece.slice_begin + piece.count) * width);
      pack(piece, width, bytes(local), packed.data());
      visit(ParameterRun{packed.data() + piece.slice_begin * width, averaged, piece.count, dtype},
            local.states[i]);
      unpack(piece, width, packed.data(), bytes(local));
    }
  };
  if (local.rule.rule != ir::Rule::kLamb) {
    for_each_piece([&](const ParameterRun& run, UpdateState& state) { apply(update, run, state); });
    return;
  }
  for_each_piece([&](const ParameterRun& run, UpdateState& state) {
    norms += sum_lamb_norms(update, run, state);
  });
  for_each_piece([&](const ParameterRun& run, const UpdateState& state) {
    apply_lamb(update, run, state, norms);
  });
}

// The averaged gradient of the whole variable, scaled by its clip's factor, into its shadow.
void LocalVariables::gather_gradient(Local& local, std::uint64_t step) {
  for (const Source& source : local.sources) {
    const std::byte* averaged = result(source.slice, step).payload.data;
    unpack(source.piece, size_of(local.dtype), averaged, bytes(local));
  }
  const double factor = clip_factor_of(local, step);
  if (factor != 1) scale(factor, local.dtype, local.tensor.numel(), bytes(local));
}

void LocalVariables::update_on_device(const Together& group, std::uint64_t step,
                                      const Queue& queue) {
  const capture::BelowAutograd uncounted;  // as a write to memory: it is no user's
  const Queue::Scope here(queue);
  std::vector<torch::Tensor> parameters;
  std::vector<torch::Tensor> gradients;
  std::vector<std::vector<torch::Tensor>> states(group.locals.front()->device_states.size());
  for (std::size_t i = 0; i < group.locals.size(); ++i) {
    Local& local = *group.locals[i];
    queue.wait_for(local.last_read, WaitSite::kReadBeforeUpdate);
    local.states.clear();
    parameters.push_back(local.tensor);
    gradients.push_back(group.gradients[i].to(local.tensor.device(), /*non_blocking=*/true));
    for (std::size_t j = 0; j < states.size(); ++j) {
      states[j].push_back(local.device_states[j]);
    }
  }
  if (group.clip_factor != 1) gradients = at::_foreach_mul(gradients, group.clip_factor);
  apply_to_tensors(update_of(*group.locals.front(), step), parameters, gradients, states);
  const Mark updated = queue.record();
  for (Local* const each : group.locals) each->installed = updated;
}

void LocalVariables::install(ir::VariableId variable, std::uint64_t step) {
  Local& local = locals_[variable.value];
  check_untouched(variable);
  watch_.writes(variable);
  std::vector<Rows> rows;
  if (local.gets_parameters) {
    rows = copy_results(local, step);
  } else if (result(local.sources.front().slice, step).samples != 0 && !scaler_.skips(step)) {
    follow(variable, result(local.sources.front().slice, step).news);
    if (local.updated_on_device) {
      gather_gradient(local, step);
      update_on_device({{&local}, {local.shadow}}, step, copies_);
    } else {
      update_pieces(local, step);
    }
  }
  {
    const MutexLock lock(signal_);
    for (const program::SliceId slice : program_.plan(variable).slices) {
      if (--of_step(uninstalled_[slice.value], step) == 0) result(slice, step).payload = {};
    }
  }
  if (shadows_version(local) && local.gets_rows) {
    copy_rows_to_tensor(local, rows);
  } else if (shadows_version(local)) {
    copy_to_tensor(local);
  }
  if (keeps_whole_copies(program_.exchange(variable))) watch_.installed(variable);
}

void LocalVariables::overwrite(program::SliceId id, const comm::Payload& parameters) {
  const program::Slice& slice = program_.slice(id);
  AD_CHECK(parameters.size == static_cast<std::size_t>(bytes_of(slice).value)) << parameters.size;
  for (const program::PieceLayout* piece : pieces_[id.value]) {
    Local& local = locals_[piece->variable.value];
    AD_CHECK(!local.updated_on_device) << "parameters for " << piece->variable;
    if (!local.shadow.defined() && !is_dense_on_host(local.tensor)) {
      copy_piece_to_tensor(local, *piece, parameters.data);
    } else {
      unpack(*piece, size_of(slice.dtype), parameters.data, bytes(local));
      if (local.shadow.defined()) copy_to_tensor(local);
    }
    watch_.accept(piece->variable);
  }
}

void LocalVariables::reload(ir::VariableId variable) {
  Local& local = locals_[variable.value];
  watch_.follow(variable);
  if (shadows_version(local)) {
    local.installed.block_host(WaitSite::kShadowReload);
    local.shadow.copy_(local.tensor);
  }
  watch_.accept(variable);
}

// A group has at most so many bytes: one call for all of it takes about five times as much memory.
void LocalVariables::add_to_groups(std::vector<Together>& groups, Local& local,
                                   torch::Tensor gradient, double clip_factor) {
  constexpr Bytes kLargest{64LL << 20};
  const Bytes bytes(static_cast<std::int64_t>(local.tensor.nbytes()));
  auto group = std::find_if(groups.begin(), groups.end(), [&](const Together& each) {
    const Local& first = *each.locals.front();
    return first.rule == local.rule && each.clip_factor == clip_factor &&
           first.tensor.scalar_type() == local.tensor.scalar_type() &&
           each.bytes + bytes <= kLargest;
  });
  if (group == groups.end()) {
    groups.emplace_back();
    group = std::prev(groups.end());
    group->clip_factor = clip_factor;
  }
  group->locals.push_back(&local);
  group->gradients.push_back(std::move(gradient));
  group->bytes += bytes;
}

void LocalVariables::update_whole(std::uint64_t step, std::vector<WholeUpdate> updates) {
  std::vector<Together> groups;
  for (WholeUpdate& update : updates) {
    Local& local = locals_[update.variable.value];
    check_untouched(update.variable);
    watch_.writes(update.variable);
    follow(update.variable, update.news);
    const bool changes = update.samples != 0 && !scaler_.skips(step);
    const double factor = changes ? clip_factor_of(local, step) : 1;
    torch::Tensor gradient = std::move(update.gradient);
    if (changes && local.updated_on_device && !gradient.is_cpu()) {
      add_to_groups(groups, local, std::move(gradient), factor);
      continue;
    }
    if (changes && factor != 1) gradient = gradient * factor;
    if (changes && local.updated_on_device) {
      std::memcpy(bytes(local), gradient.data_ptr(), gradient.nbytes());
      update_on_device({{&local}, {local.shadow}}, step, copies_);
    } else if (changes && ir::trained_by_rows(program_.graph->variable(update.variable))) {
      const Rows rows = update_rows(local, step, gradient);
      if (local.shadow.defined()) copy_rows_to_tensor(local, {rows});
      continue;
    } else if (changes) {
      update_on_host(local, step, gradient);
    }
    if (shadows_version(local)) copy_to_tensor(local);
  }
  for (Together& group : groups) {
    update_on_device(group, step, Queue::current(staging_.device()));
    group = {};  // frees its gradients before the next one's are read
  }
  for (const WholeUpdate& update : updates) watch_.installed(update.variable);
}

void LocalVariables::update_on_host(Local& local, std::uint64_t step,
                                    const torch::Tensor& gradient) {
  const UpdateStep update = update_of(local, step);
  const ParameterRun run{bytes(local), gradient.data_ptr(), local.tensor.numel(), local.dtype};
  UpdateState& state = local.states.front();
  if (update.rule.rule == ir::Rule::kLamb) {
    apply_lamb(update, run, state, sum_lamb_norms(update, run, state));
  } else {
    apply(update, run, state);
  }
}

// `numbers` of `parts` count from the variable's first row.
void LocalVariables::copy_rows_to_tensor(Local& local, const std::vector<Rows>& parts) {
  const capture::BelowAutograd uncounted;  // as a write to memory: it is no user's
  const bool on_host = local.tensor.is_cpu();
  const Queue::Scope here(copies_);
  copies_.wait_for(local.last_read, WaitSite::kReadBeforeRows);
  local.installed.block_host(WaitSite::kRowsRead);
  local.staged.clear();
  const auto there = [&](const void* data, torch::IntArrayRef sizes, torch::ScalarType type) {
    torch::Tensor values = torch::from_blob(const_cast<void*>(data), sizes, type);  // NOLINT: reads
    if (on_host) return values;
    local.staged.push_back(staging_.take(sizes, type).copy_(values));
    return local.staged.back().to(local.tensor.device(), /*non_blocking=*/true);
  };
  for (const Rows& rows : parts) {
    const auto count = static_cast<std::int64_t>(rows.numbers.size());
    if (count == 0) continue;
    std::vector<std::int64_t> sizes = local.tensor.sizes().vec();
    sizes.front() = count;
    local.tensor.index_copy_(0, there(rows.numbers.data(), {count}, torch::kInt64),
                             there(rows.values, sizes, local.tensor.scalar_type()));
  }
  local.installed = copies_.record();
}

void LocalVariables::copy_piece_to_tensor(Local& local, const program::PieceLayout& piece,
                                          const std::byte* slice) {
  const capture::BelowAutograd uncounted;  // as a write to memory: it is no user's
  const Queue::Scope here(copies_);
  copies_.wait_for(local.last_read, WaitSite::kReadBeforePiece);
  local.installed.block_host(WaitSite::kPieceRead);
  const std::size_t width = local.tensor.element_size();
  if (!local.tensor.is_contiguous()) {
    torch::Tensor dense = local.tensor.to(torch::kCPU).contiguous();
    unpack(piece, width, slice, memory_of(dense));
    local.tensor.copy_(dense);
  } else {
    local.staged = {staging_.take({piece.count}, local.tensor.scalar_type())};
    const torch::Tensor& staged = local.staged.front();
    std::memcpy(staged.data_ptr(), slice + piece.slice_begin * width, piece.count * width);
    const torch::Tensor flat = local.tensor.view({-1});
    for (const program::ElementRun& run : piece.runs) {
      flat.narrow(0, run.variable_begin, run.count)
          .copy_(staged.narrow(0, run.slice_begin - piece.slice_begin, run.count),
                 /*non_blocking=*/true);
    }
  }
  local.installed = copies_.record();
}

void LocalVariables::copy_to_tensor(Local& local) {
  const capture::BelowAutograd uncounted;  // as a write to memory: it is no user's
  const Queue::Scope here(copies_);
  copies_.wait_for(local.last_read, WaitSite::kReadBeforeCopy);
  local.tensor.copy_(local.shadow, /*non_blocking=*/true);
  local.installed = copies_.record();
}

}  // namespace autodist::exec
