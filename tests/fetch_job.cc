// A user's program for process_test.cc: fetches values of a step by name, and evaluates over all
// ranks, and compares both with plain libtorch on the whole batch.
//
//   fetch_job CLUSTER BUILDER

#include <cstdio>

#include "autodist/app/torch/fit.h"
#include "tests/reference.h"

namespace autodist {
namespace {

using namespace testing_jobs;

constexpr std::int64_t kRows = 11;  // no multiple of the ranks

// What plain libtorch has for the same names.
std::map<std::string, torch::Tensor> plain(const TrainingStep& step, const Batch& batch) {
  for (const NamedTensor& each : step.parameters) each.tensor.mutable_grad() = torch::Tensor();
  const torch::Tensor loss = step.loss(batch);
  loss.backward();
  std::map<std::string, torch::Tensor> values{{"loss", loss.detach()},
                                              {"fc2", step.evaluate(batch).front().detach()}};
  for (const NamedTensor& each : step.parameters) {
    values[each.name + ".grad"] = each.tensor.grad().clone();
    values[each.name] = each.tensor.detach() - 0.1 * each.tensor.grad();
  }
  return values;
}

int run(const std::string& cluster, const std::string& builder) {
  JobOptions options;
  options.builder = builder;
  options.seed = kSeed;
  AutoDist autodist(cluster, options);
  const TrainingStep step = make_step("digits", kRows / autodist.size());
  const TrainingStep twin = make_step("digits", kRows);
  Session session = autodist.distribute(step, ir::parse_optimizer("sgd:lr=0.1"));
  const Batch batch = batch_at("digits", 0, kRows);
  const auto expected = plain(twin, batch);
  std::vector<std::string> names;
  for (const auto& [name, value] : expected) names.push_back(name);
  const auto fetched = session.run_and_fetch(batch, names);
  double largest = fetched.size() == expected.size() ? 0 : 1;
  for (const auto& [name, value] : expected) {
    largest = std::max(largest, (fetched.at(name) - value).abs().max().item<double>());
  }

  const SampleSource samples{kRows, [&](const std::vector<std::int64_t>& indices) {
                               Batch rows;
                               for (const torch::Tensor& each : batch) {
                                 rows.push_back(each.index_select(0, torch::tensor(indices)));
                               }
                               return rows;
                             }};
  const auto sums = evaluate(
      session, samples, 2, [](const std::vector<torch::Tensor>& outputs, const Batch& rows) {
        return std::vector<double>{
            static_cast<double>(rows[0].size(0)),
            torch::cross_entropy_loss(outputs[0], rows[1], {}, at::Reduction::Sum).item<double>()};
      });
  const double total =
      torch::cross_entropy_loss(step.evaluate(batch).front(), batch[1], {}, at::Reduction::Sum)
          .item<double>();
  std::string refusal;
  try {
    session.run_and_fetch(batch, {"fc2.wieght"});
  } catch (const std::exception& error) {
    refusal = error.what();
  }
  session.finish();
  // Every rank says the same, on one line.
  std::printf("rank %u difference %.3g samples %.0f evaluation differs by %.3g; %s\n",
              session.rank(), largest, sums[0], std::abs(sums[1] - total), refusal.c_str());
  return 0;
}

}  // namespace
}  // namespace autodist

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  return autodist::run(argv[1], argv[2]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
