// Variables that are trained by rows: the same numbers as plain libtorch on every way that rows
// travel, and as few bytes as any scheme can send.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "tests/library_collectives.h"
#include "tests/threaded_job.h"

namespace autodist {
namespace {

using namespace testing_jobs;

constexpr const char* kModel = "ncf-small-sparse";
constexpr std::size_t kTables = 4;  // its first parameters: of users, items, users, items

// The rows of each table that a step touches.
torch::Tensor touched(std::size_t table, int step) {
  const Batch batch = batch_at(kModel, step);
  return std::get<0>(at::_unique2(batch[table % 2]));
}

// torch.optim.SparseAdam on the tables, torch.optim.Adam on the rest.
Update sparse_adam(double lr) {
  struct State {
    std::vector<SparseAdam> tables;
    std::unique_ptr<torch::optim::Adam> rest;
  };
  auto state = std::make_shared<State>();
  return [=](std::vector<torch::Tensor>& parameters, int step) {
    if (!state->rest) {
      for (std::size_t i = 0; i < kTables; ++i) state->tables.emplace_back(parameters[i], lr);
      state->rest = std::make_unique<torch::optim::Adam>(
          std::vector<torch::Tensor>(parameters.begin() + kTables, parameters.end()),
          torch::optim::AdamOptions(lr));
    }
    for (std::size_t i = 0; i < kTables; ++i) {
      const torch::Tensor rows = touched(i, step);
      state->tables[i].step(parameters[i], rows, parameters[i].grad().index_select(0, rows));
    }
    state->rest->step();
  };
}

Update clipped_sgd() {
  return updated_by<torch::optim::SGD>(
      torch::optim::SGDOptions(0.1),
      {[](std::vector<torch::Tensor>& parameters, torch::optim::SGD& /*sgd*/, int /*step*/) {
        torch::nn::utils::clip_grad_norm_(parameters, 0.05);
      }});
}

struct SparseCase {
  std::string builder;
  std::uint32_t ranks;
  std::string optimizer;
  std::function<Update()> reference;
  std::uint32_t micro_batches = 1;
};

std::vector<SparseCase> sparse_cases() {
  const auto adam = [] { return sparse_adam(0.01); };
  const auto sgd = [] { return updated_by<torch::optim::SGD>(torch::optim::SGDOptions(0.1)); };
  const auto adagrad = [] {
    return updated_by<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.05));
  };
  // Moves every row at every step, as if the gradients were dense.
  const auto rmsprop = [] {
    return updated_by<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.001));
  };
  return {
      {"PS", 1, "adam:lr=0.01", adam},
      {"PS", 2, "adam:lr=0.01", adam},
      {"PS", 2, "adam:lr=0.01", adam, 2},
      {"PS:local_proxy_variable=true", 2, "adam:lr=0.01", adam},
      {"PartitionedPS", 3, "adam:lr=0.01", adam},
      {"Parallax", 2, "adam:lr=0.01", adam},
      {"AllReduce", 2, "adam:lr=0.01", adam},
      {"AllReduce", 3, "adam:lr=0.01", adam},
      {"AllReduce:algorithm=library", 2, "adam:lr=0.01", adam},
      {"PartitionedAR", 3, "adam:lr=0.01", adam},
      {"PS", 3, "adagrad:lr=0.05", adagrad},
      {"AllReduce", 2, "adagrad:lr=0.05", adagrad},
      {"PSLoadBalancing", 2, "sgd:lr=0.1", sgd},
      {"UnevenPartitionedPS:local_proxy_variable=true", 3, "sgd:lr=0.1", sgd},
      {"PS", 1, "sgd:lr=0.1,clip=0.05", clipped_sgd},
      {"PS", 2, "sgd:lr=0.1,clip=0.05", clipped_sgd},
      {"AllReduce", 2, "sgd:lr=0.1,clip=0.05", clipped_sgd},
      {"AllReduce", 3, "sgd:lr=0.1,clip=0.05", clipped_sgd},
      {"PS", 2, "rmsprop:lr=0.001", rmsprop},
  };
}

TEST(Sparse, EqualsPlainLibtorchHoweverRowsTravel) {
  for (const SparseCase& each : sparse_cases()) {
    if (testing_jobs::is_left_out(each.builder)) continue;
    expect_close(
        run_job({kModel, each.builder, each.ranks, kBatch, each.micro_batches, each.optimizer}),
        train_plain(kModel, each.ranks, kBatch, each.reference()),
        fmt::format("{} by {} on {}", each.optimizer, each.builder, each.ranks), 1e-12);
  }
}

constexpr std::int64_t kWidth = 64;
constexpr std::int64_t kTouched = 1000;  // distinct rows per rank and step

TrainingStep table_step(std::int64_t table_rows) {
  torch::manual_seed(kSeed);
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(table_rows, kWidth).sparse(true));
  const auto loss = [](torch::nn::EmbeddingImpl& embedding, const Batch& batch) {
    return embedding.forward(batch[0]).square().mean();
  };
  return make_training_step("table", table.ptr(), loss, {torch::arange(kTouched)});
}

// Twice as many lookups as rows: each is asked for and contributed to twice.
Batch lookups(std::int64_t table_rows, int step, std::uint32_t rank) {
  torch::Generator random = at::detail::createCPUGenerator(1000 * step + rank);
  const torch::Tensor rows = torch::randperm(table_rows, random).slice(0, 0, kTouched);
  return {torch::cat({rows, rows})};
}

// Payload bytes that a rank sends in a step: the mean over ranks and the steps after the first two.
double bytes_per_step(const std::string& builder, std::uint32_t ranks, std::int64_t table_rows) {
  const auto sent = [&](int steps) {
    std::vector<TrainingStep> models;
    for (std::uint32_t r = 0; r < ranks; ++r) models.push_back(table_step(table_rows));
    std::vector<std::uint64_t> bytes;
    run_job(
        models, builder, "sgd:lr=0.1", steps,
        [&](int step, std::uint32_t rank) { return lookups(table_rows, step, rank); }, nullptr, 1,
        &bytes);
    return static_cast<double>(std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0}));
  };
  return (sent(6) - sent(2)) / (4.0 * ranks);
}

// The least of all-gathering rows and of pushing them to their owners and fetching those of the
// next batch, where each rank touches r bytes of rows and their numbers.
double least_bytes(std::uint32_t ranks) {
  const double r = kTouched * (kWidth * sizeof(float) + 8.0);
  const double others = ranks - 1;
  return std::min(others * r, 2 * others / ranks * r);
}

void expect_few_bytes(std::int64_t table_rows) {
  for (const std::uint32_t ranks : {2U, 4U}) {
    const double bytes = bytes_per_step("AllReduce", ranks, table_rows);
    const double ratio = bytes / least_bytes(ranks);
    std::cout << table_rows << " rows on " << ranks << " ranks: " << bytes
              << " bytes per rank and step, " << ratio << " of the least\n";
    EXPECT_LE(ratio, 1.1);
    EXPECT_GE(ratio, 0.9) << "less than what has to travel: the count is wrong";
  }
}

TEST(Sparse, SendsNoMoreThanTheTouchedRows) { expect_few_bytes(50'000); }
TEST(SlowSparse, SendsNoMoreThanTheTouchedRowsOfAMillion) { expect_few_bytes(1'000'000); }

// Pushing to one server and fetching from it: on average what an even spread costs, too.
TEST(Sparse, AServersRowsAreFetched) {
  EXPECT_LE(bytes_per_step("Parallax", 2, 50'000) / least_bytes(2), 1.1);
}

}  // namespace
}  // namespace autodist
