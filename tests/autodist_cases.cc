#include "tests/autodist_cases.h"

#include <cmath>
#include <map>
#include <optional>
#include <random>

namespace autodist::testing_jobs {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

constexpr std::int64_t kImage = 6;  // pixels a side
constexpr std::int64_t kClasses = 4;

// NumPy's legacy generator: RandomState(seed).randn.
class LegacyNormal {
 public:
  explicit LegacyNormal(std::uint32_t seed) : random_(seed) {}

  double next() {
    if (cached_) {
      const double value = *cached_;
      cached_.reset();
      return value;
    }
    double x1 = 0;
    double x2 = 0;
    double square = 0;
    do {
      x1 = 2 * uniform() - 1;
      x2 = 2 * uniform() - 1;
      square = x1 * x1 + x2 * x2;
    } while (square >= 1 || square == 0);
    const double factor = std::sqrt(-2 * std::log(square) / square);
    cached_ = factor * x1;
    return factor * x2;
  }

 private:
  double uniform() {
    const std::uint64_t a = random_() >> 5;
    const std::uint64_t b = random_() >> 6;
    return (static_cast<double>(a) * 67108864.0 + static_cast<double>(b)) / 9007199254740992.0;
  }

  std::mt19937 random_;
  std::optional<double> cached_;
};

torch::Tensor normal(std::uint32_t seed, const std::vector<std::int64_t>& sizes) {
  LegacyNormal random(seed);
  torch::Tensor values = torch::empty(sizes, torch::kFloat64);
  double* const data = values.data_ptr<double>();
  for (std::int64_t i = 0; i < values.numel(); ++i) data[i] = random.next();
  return values;
}

// A step of a module whose parameters are fixed by their position, not by a shared generator.
template <typename Module, typename Loss, typename Evaluate>
TrainingStep step_of(const std::string& name, Loss loss, Evaluate evaluate, Batch example) {
  auto module = std::make_shared<Module>();
  module->to(torch::kFloat64);
  {
    const torch::NoGradGuard no_grad;
    std::uint32_t seed = 1;
    for (torch::Tensor& each : module->parameters()) {
      each.copy_(0.3 * normal(seed++, each.sizes().vec()));
    }
  }
  TrainingStep step = make_training_step(name, module, loss, std::move(example));
  step.evaluate = [module, evaluate](const Batch& batch) { return evaluate(*module, batch); };
  return step;
}

template <typename Module>
torch::Tensor classification_loss(Module& net, const Batch& batch) {
  return F::cross_entropy(net.forward(batch[0]), batch[1]);
}

template <typename Module>
std::vector<torch::Tensor> outputs_of(Module& net, const Batch& batch) {
  return {net.forward(batch[0])};
}

// --- c1, c3, c5: small CNNs ----------------------------------------------------------------------

struct PoolingCnn : nn::Module {
  torch::Tensor forward(const torch::Tensor& images) {
    return out(F::max_pool2d(torch::relu(conv(images)), F::MaxPool2dFuncOptions(2)).flatten(1));
  }
  nn::Conv2d conv{register_module("conv", nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1)))};
  nn::Linear out{register_module("out", nn::Linear(4 * kImage * kImage / 4, kClasses))};
};

struct StridedCnn : nn::Module {
  torch::Tensor forward(const torch::Tensor& images) {
    return out(torch::relu(second(torch::relu(first(images)))).mean({2, 3}));
  }
  nn::Conv2d first{register_module("first", nn::Conv2d(nn::Conv2dOptions(1, 3, 3).padding(1)))};
  nn::Conv2d second{register_module("second", nn::Conv2d(nn::Conv2dOptions(3, 6, 3).stride(2)))};
  nn::Linear out{register_module("out", nn::Linear(6, kClasses))};
};

struct HiddenLayerCnn : nn::Module {
  torch::Tensor forward(const torch::Tensor& images) {
    return out(torch::tanh(hidden(torch::relu(conv(images)).flatten(1))));
  }
  nn::Conv2d conv{register_module("conv", nn::Conv2d(nn::Conv2dOptions(1, 2, 3).stride(3)))};
  nn::Linear hidden{register_module("hidden", nn::Linear(2 * kImage * kImage / 9, 5))};
  nn::Linear out{register_module("out", nn::Linear(5, kClasses))};
};

Batch images(std::uint32_t seed, std::int64_t count) {
  const torch::Tensor pixels = normal(seed, {count, 1, kImage, kImage});
  return {pixels, pixels.sum({1, 2, 3}).abs().remainder(kClasses).to(torch::kInt64)};
}

template <typename Module>
TrainingStep images_step(const std::string& name) {
  return step_of<Module>(name, classification_loss<Module>, outputs_of<Module>, images(99, 4));
}

std::uint32_t seed_of(int step) { return 1000 + static_cast<std::uint32_t>(step); }

// The whole batch at every rank, which takes its part.
Batch part_of(const Batch& whole, std::uint32_t rank, const Places& ranks) {
  return rows_of(whole, rank, static_cast<std::uint32_t>(ranks.size()));
}

Batch images_from_the_whole(int step, std::uint32_t rank, const Places& ranks) {
  return part_of(images(seed_of(step), kBatch), rank, ranks);
}

// Every rank has an iterator of its own, over batches of other sizes.
Batch images_from_an_iterator(int step, std::uint32_t rank, const Places&) {
  const auto number = static_cast<std::uint32_t>(step);
  return images(seed_of(step) * 10 + rank, 2 + (number + rank) % 3);
}

// A list of samples, which the rank stacks.
Batch images_from_a_list(int step, std::uint32_t rank, const Places& ranks) {
  const Batch part = part_of(images(seed_of(step), kBatch), rank, ranks);
  std::vector<torch::Tensor> pixels;
  std::vector<torch::Tensor> labels;
  for (std::int64_t i = 0; i < part[0].size(0); ++i) {
    pixels.push_back(part[0][i].clone());
    labels.push_back(part[1][i].clone());
  }
  return {torch::stack(pixels), torch::stack(labels)};
}

// --- c2: two embeddings, one of which each sample uses, and a perceptron -----------------------

constexpr std::int64_t kIds = 6;

struct TwoEmbeddings : nn::Module {
  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& first) {
    const torch::Tensor chosen = torch::where(first.unsqueeze(1), one(ids), other(ids));
    return out(torch::relu(hidden(chosen))).squeeze(1);
  }
  nn::Embedding one{
      register_module("one", nn::Embedding(nn::EmbeddingOptions(kIds, 4).sparse(true)))};
  nn::Embedding other{
      register_module("other", nn::Embedding(nn::EmbeddingOptions(kIds, 4).sparse(true)))};
  nn::Linear hidden{register_module("hidden", nn::Linear(4, 5))};
  nn::Linear out{register_module("out", nn::Linear(5, 1))};
};

// No step looks all ids up.
Batch ids_at(int step) {
  const torch::Tensor ids = torch::arange(kBatch).remainder(kIds - 2).add(step % 3);
  const torch::Tensor first = normal(seed_of(step), {kBatch}).gt(0);
  return {ids, first, ids.to(torch::kFloat64).mul(0.3)};
}

TrainingStep two_embeddings_step() {
  return step_of<TwoEmbeddings>(
      "c2",
      [](TwoEmbeddings& net, const Batch& batch) {
        return (net.forward(batch[0], batch[1]) - batch[2]).pow(2).mean();
      },
      [](TwoEmbeddings& net, const Batch& batch) -> std::vector<torch::Tensor> {
        return {net.forward(batch[0], batch[1])};
      },
      part_of(ids_at(0), 0, Places(3)));
}

// --- c4, c6: recurrent models
// ----------------------------------------------------------------------

constexpr std::int64_t kTokens = 5;
constexpr std::int64_t kFeatures = 3;

// The loop runs as often as the sequence is long, and unrolls.
struct LoopNet : nn::Module {
  torch::Tensor forward(const torch::Tensor& sequences) {
    torch::Tensor state = torch::zeros({sequences.size(0), 4}, sequences.options());
    for (std::int64_t t = 0; t < sequences.size(1); ++t) {
      state = torch::tanh(in(sequences.select(1, t)) + again(state));
    }
    return out(state);
  }
  nn::Linear in{register_module("in", nn::Linear(kFeatures, 4))};
  nn::Linear again{register_module("again", nn::Linear(nn::LinearOptions(4, 4).bias(false)))};
  nn::Linear out{register_module("out", nn::Linear(4, kClasses))};
};

struct LstmNet : nn::Module {
  torch::Tensor forward(const torch::Tensor& sequences) {
    return out(std::get<0>(lstm(sequences)).select(1, kTokens - 1));
  }
  nn::LSTM lstm{register_module("lstm", nn::LSTM(nn::LSTMOptions(kFeatures, 4).batch_first(true)))};
  nn::Linear out{register_module("out", nn::Linear(4, kClasses))};
};

Batch sequences(std::uint32_t seed, std::int64_t count) {
  const torch::Tensor values = normal(seed, {count, kTokens, kFeatures});
  return {values, values.sum({1, 2}).abs().remainder(kClasses).to(torch::kInt64)};
}

template <typename Module>
TrainingStep sequences_step(const std::string& name) {
  return step_of<Module>(name, classification_loss<Module>, outputs_of<Module>, sequences(99, 4));
}

Batch sequences_from_the_whole(int step, std::uint32_t rank, const Places& ranks) {
  return part_of(sequences(seed_of(step), kBatch), rank, ranks);
}

// --- c7: fit, then evaluate
// ------------------------------------------------------------------------

struct Perceptron : nn::Module {
  torch::Tensor forward(const torch::Tensor& images) {
    return out(torch::relu(hidden(images.flatten(1))));
  }
  nn::Linear hidden{register_module("hidden", nn::Linear(kImage* kImage, 8))};
  nn::Linear out{register_module("out", nn::Linear(8, kClasses))};
};

// --- c0
// --------------------------------------------------------------------------------------------

TrainingStep c0_step() {
  const auto real = torch::TensorOptions().dtype(torch::kFloat64).requires_grad(true);
  const torch::Tensor w = torch::full({}, 5.0, real);
  const torch::Tensor b = torch::full({}, 0.0, real);
  TrainingStep step;
  step.name = "c0";
  step.parameters = {{"W", w}, {"b", b}};
  step.loss = [w, b](const Batch& batch) { return (w * batch[0] + b - batch[1]).pow(2).mean(); };
  step.example = c0_samples(123);
  return step;
}

std::function<Update()> plain_sgd(const torch::optim::SGDOptions& options) {
  return [options] { return updated_by<torch::optim::SGD>(options); };
}

// On rows where the gradient is sparse, torch.optim.Adam elsewhere.
Update adam_of_both_kinds(double lr) {
  struct State {
    std::map<std::size_t, SparseAdam> tables;
    std::unique_ptr<torch::optim::Adam> rest;
  };
  auto state = std::make_shared<State>();
  return [=](std::vector<torch::Tensor>& parameters, int) {
    std::vector<torch::Tensor> dense;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].grad().is_sparse()) {
        dense.push_back(parameters[i]);
        continue;
      }
      const torch::Tensor gradient = parameters[i].grad().coalesce();
      SparseAdam& table = state->tables.try_emplace(i, parameters[i], lr).first->second;
      table.step(parameters[i], gradient.indices()[0], gradient.values());
    }
    if (!state->rest) {
      state->rest = std::make_unique<torch::optim::Adam>(dense, torch::optim::AdamOptions(lr));
    }
    state->rest->step();
  };
}

}  // namespace

Batch c0_samples(std::uint32_t seed) {
  const torch::Tensor both = normal(seed, {2, 1000});  // x first, then noise
  return {both[0].clone(), 3 * both[0] + 2 + both[1]};
}

std::uint32_t c0_seed(const cluster::Place& place) { return place.node == 0 ? 123 : 456; }

const std::vector<AutoDistCase>& autodist_cases() {
  using torch::optim::SGDOptions;
  static const auto sgd = plain_sgd(SGDOptions(0.02));
  static const auto momentum = plain_sgd(SGDOptions(0.01).momentum(0.9));
  static const std::vector<AutoDistCase> cases{
      {"c0",
       "sgd:lr=0.01",
       1,
       c0_step,
       [](int, std::uint32_t rank, const Places& ranks) {
         return c0_samples(c0_seed(ranks.at(rank)));
       },
       plain_sgd(SGDOptions(0.01)),
       {}},
      {"c1", "sgd:lr=0.02", 5, [] { return images_step<PoolingCnn>("c1"); }, images_from_the_whole,
       sgd, images(7, 10)},
      {"c2", "adam:lr=0.01", 5, two_embeddings_step,
       [](int step, std::uint32_t rank, const Places& ranks) {
         return part_of(ids_at(step), rank, ranks);
       },
       [] { return adam_of_both_kinds(0.01); }, ids_at(50)},
      {"c3", "sgd:lr=0.01,momentum=0.9", 5, [] { return images_step<StridedCnn>("c3"); },
       images_from_an_iterator, momentum, images(7, 10)},
      {"c4", "sgd:lr=0.02", 5, [] { return sequences_step<LoopNet>("c4"); },
       sequences_from_the_whole, sgd, sequences(7, 10)},
      {"c5", "sgd:lr=0.01,momentum=0.9", 5, [] { return images_step<HiddenLayerCnn>("c5"); },
       images_from_a_list, momentum, images(7, 10)},
      {"c6", "sgd:lr=0.02", 5, [] { return sequences_step<LstmNet>("c6"); },
       sequences_from_the_whole, sgd, sequences(7, 10)},
      {"c7", "sgd:lr=0.01,momentum=0.9", 6, [] { return images_step<Perceptron>("c7"); },
       images_from_the_whole, momentum, images(7, 20)},
  };
  return cases;
}

double distance(const Parameters& a, const Parameters& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares += (a[i] - b[i]).pow(2).sum().item<double>();
  }
  return std::sqrt(squares);
}

PlainResult train_whole(const AutoDistCase& subject, const Places& ranks, int steps) {
  const TrainingStep step = subject.make();
  PlainResult result;
  result.before = copies_of(step);
  Parameters parameters = tensors_of(step);
  const Update update = subject.plain_update();
  for (int i = 0; i < steps; ++i) {
    std::vector<Batch> parts;
    for (std::uint32_t r = 0; r < ranks.size(); ++r) parts.push_back(subject.rows(i, r, ranks));
    Batch whole;
    for (std::size_t input = 0; input < parts.front().size(); ++input) {
      std::vector<torch::Tensor> pieces;
      for (const Batch& part : parts) pieces.push_back(part[input]);
      whole.push_back(torch::cat(pieces));
    }
    for (torch::Tensor& each : parameters) each.mutable_grad() = torch::Tensor();
    step.loss(whole).backward();
    update(parameters, i);
  }
  result.after = copies_of(step);
  const torch::NoGradGuard no_grad;
  if (!subject.held_out.empty()) result.outputs = step.evaluate(subject.held_out);
  return result;
}

}  // namespace autodist::testing_jobs
