#include "autodist/exec/library_all_reduce.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/replay.h"
#include "autodist/program/slice_size.h"

namespace autodist::exec {
namespace {

// Gram-Schmidt, each column twice (Giraud et al., 2005): orthonormal to rounding. A column of which
// nothing but rounding is left beside those before becomes zero.
void orthonormalise(torch::Tensor& columns) {
  const double noise =
      64 * (columns.scalar_type() == torch::kFloat64 ? std::numeric_limits<double>::epsilon()
                                                     : std::numeric_limits<float>::epsilon());
  for (std::int64_t i = 0; i < columns.size(1); ++i) {
    torch::Tensor column = columns.select(1, i);
    const double before = column.norm().item<double>();
    const torch::Tensor others = columns.narrow(1, 0, i);
    for (int round = 0; round < 2 && i > 0; ++round) {
      column.sub_(others.mv(others.t().mv(column)));
    }
    const double length = column.norm().item<double>();
    if (length > noise * before) {
      column.div_(length);
    } else {
      column.zero_();
    }
  }
}

// The next `count` elements of a flat buffer.
class Cursor {
 public:
  explicit Cursor(torch::Tensor flat) : flat_(std::move(flat)) {}
  torch::Tensor next(std::int64_t count) {
    at_ += count;
    return flat_.narrow(0, at_ - count, count);
  }

 private:
  torch::Tensor flat_;
  std::int64_t at_ = 0;
};

}  // namespace

bool LibraryAllReduce::sends_whole_gradients(const program::Program& program,
                                             program::CollectiveId id) {
  return loads_of(*program.graph, program.collectives[id.value]).factored == 0;
}

LibraryAllReduce::LibraryAllReduce(const program::Program& program, program::CollectiveId id,
                                   comm::Collectives* collectives, std::uint64_t seed,
                                   Staging& staging, bool on_device)
    : program_(program),
      collective_(program.collectives[id.value]),
      collectives_(collectives),
      seed_(seed),
      staging_(staging),
      on_device_(on_device),
      type_(collective_.dtype == DType::kFloat64 ? torch::kFloat64 : torch::kFloat32),
      loads_(loads_of(*program.graph, collective_)) {
  for (const ir::VariableId variable : collective_.variables) {
    Part part;
    part.variable = variable;
    part.sizes = shape_of(*program.graph, variable);
    part.type = scalar_type_of(collective_.dtype);
    part.loads = loads_of(collective_.exchange, part.sizes);
    part.shape = program::matrix_of(part.sizes);
    part.rank = program::factor_rank(collective_.exchange.codec, part.shape).value_or(0);
    if (part.rank > 0 && collective_.exchange.codec.error_feedback) {
      part.owed = torch::zeros({part.shape.rows, part.shape.columns}, type_);
    }
    parts_.push_back(std::move(part));
  }
}

void LibraryAllReduce::sum(torch::Tensor& flat) const {
  if (collective_.members.size() < 2 || flat.numel() == 0) return;
  const bool is_there = collectives_->is_on_device() != flat.is_cpu();
  torch::Tensor summed = is_there ? flat : flat.to(staging_.device());
  collectives_->all_reduce(summed.data_ptr(), static_cast<std::size_t>(flat.numel()),
                           type_ == torch::kFloat64 ? DType::kFloat64 : DType::kFloat32);
  if (!is_there) flat.copy_(summed);
}

torch::Tensor LibraryAllReduce::drawn(const Part& part, std::uint64_t step) const {
  auto generator = at::detail::createCPUGenerator(step_seed(seed_, part.variable.value, step));
  return torch::randn({part.shape.columns, part.rank}, generator, type_);
}

// A column that came out zero would stay so for ever.
void LibraryAllReduce::renew(Part& part, std::uint64_t step) const {
  if (!part.factor.defined() || !collective_.exchange.codec.warm_start) {
    part.factor = drawn(part, step);
    return;
  }
  torch::Tensor fresh;
  for (std::int64_t i = 0; i < part.rank; ++i) {
    torch::Tensor column = part.factor.select(1, i);
    if (column.norm().item<double>() > 0) continue;
    if (!fresh.defined()) fresh = drawn(part, step);
    column.copy_(fresh.select(1, i));
  }
}

LibraryAllReduce::Average LibraryAllReduce::run(const std::vector<torch::Tensor>& gradients,
                                                std::int64_t samples, std::uint64_t step,
                                                const std::function<void()>& look) {
  const torch::NoGradGuard no_gradients;
  const bool add_up = program_.graph->reduction == ir::Reduction::kSum;
  const double weight = add_up ? 1.0 : static_cast<double>(samples);
  const auto options = torch::dtype(type_).device(on_device_ ? staging_.device() : torch::kCPU);
  torch::Tensor first = torch::zeros({loads_.first + 1}, options);  // the samples come last
  torch::Tensor second = torch::zeros({loads_.second}, options);
  std::vector<torch::Tensor> matrices(parts_.size());  // M

  Cursor left(first);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    if (part.rank > 0) renew(part, step);
    torch::Tensor out = left.next(part.loads.first);
    if (samples == 0) continue;
    if (part.rank == 0) {
      out.copy_(gradients[i].view({-1}));
    } else {
      matrices[i] = gradients[i].view({part.shape.rows, part.shape.columns}).to(type_);
      if (part.owed.defined()) matrices[i] = matrices[i] + part.owed;
      out.copy_(matrices[i].mm(part.factor).view({-1}));
    }
    out.mul_(weight);
  }
  left.next(1).fill_(static_cast<double>(samples));
  sum(first);
  Average average;
  average.samples =
      static_cast<std::int64_t>(on_host(first[loads_.first], staging_, look).item<double>() + 0.5);
  const double all = add_up || average.samples == 0 ? 1.0 : static_cast<double>(average.samples);

  average.gradients.resize(parts_.size());
  Cursor bases(first);
  Cursor right(second);
  std::vector<torch::Tensor> orthonormal(parts_.size());  // P
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    torch::Tensor whole = bases.next(part.loads.first);
    if (part.rank == 0) {
      // By a tensor: CUDA multiplies with the reciprocal of a number.
      const torch::Tensor mean = whole / torch::full({}, all, options);
      average.gradients[i] = mean.to(part.type).view(part.sizes);
      continue;
    }
    orthonormal[i] = whole.view({part.shape.rows, part.rank});
    orthonormalise(orthonormal[i]);
    torch::Tensor out = right.next(part.loads.second);
    if (samples == 0) continue;
    const torch::Tensor own = matrices[i].t().mm(orthonormal[i]);
    if (part.owed.defined()) part.owed = matrices[i] - orthonormal[i].mm(own.t());
    out.copy_(own.view({-1})).mul_(weight);
  }
  sum(second);
  Cursor factors(second);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    if (part.rank == 0) continue;
    const torch::Tensor factor =
        factors.next(part.loads.second).view({part.shape.columns, part.rank}) / all;
    average.gradients[i] = orthonormal[i].mm(factor.t()).view({part.sizes}).to(part.type);
    // Of gradients that are not finite (a step that loss scaling skips) there is nothing to go on
    // from.
    if (average.samples != 0 && factor.isfinite().all().item<bool>()) part.factor = factor;
  }
  average.reduced = Bytes(static_cast<std::int64_t>(first.nbytes() + second.nbytes()));
  return average;
}

std::string LibraryAllReduce::name(const Part& part, const char* what) const {
  return fmt::format("{}.{}", program_.graph->variable(part.variable).name, what);
}

std::vector<NamedTensor> LibraryAllReduce::state() const {
  std::vector<NamedTensor> state;
  for (const Part& part : parts_) {
    if (part.owed.defined()) state.push_back({name(part, "owed"), part.owed.view(part.sizes)});
    if (part.factor.defined()) state.push_back({name(part, "factor"), part.factor});
  }
  return state;
}

void LibraryAllReduce::load(const std::vector<NamedTensor>& state) {
  const auto take = [&](const std::string& wanted, torch::IntArrayRef sizes, torch::Tensor& to) {
    for (const NamedTensor& each : state) {
      if (each.name != wanted) continue;
      if (each.tensor.numel() != c10::multiply_integers(sizes)) {
        fail(ErrorCode::kCheckpoint,
             "checkpoint: '{}' has {} elements, expected {}. Take a checkpoint of this model.",
             wanted, each.tensor.numel(), c10::multiply_integers(sizes));
      }
      to = each.tensor.to(torch::TensorOptions(torch::kCPU).dtype(type_)).reshape(sizes).clone();
    }
  };
  for (Part& part : parts_) {
    if (part.rank == 0) continue;
    take(name(part, "factor"), {part.shape.columns, part.rank}, part.factor);
    if (part.owed.defined()) {
      take(name(part, "owed"), {part.shape.rows, part.shape.columns}, part.owed);
    }
  }
}

}  // namespace autodist::exec
