// A user's program for process_test.cc: trains a small model on the ranks of a cluster and, at the
// chief, compares the result with plain libtorch. Every rank prints what it agreed to.
//
//   process_job MODEL CLUSTER BUILDER

#include <algorithm>
#include <cstdio>

#include "autodist/app/torch/session.h"
#include "autodist/base/digest.h"
#include "tests/reference.h"

namespace autodist {
namespace {

using namespace testing_jobs;

// Digest of all parameters' bytes.
std::string digest_of(const TrainingStep& step) {
  std::string bytes;
  for (const torch::Tensor& each : copies_of(step)) {
    bytes.append(static_cast<const char*>(each.contiguous().data_ptr()), each.nbytes());
  }
  return to_string(autodist::digest_of(bytes));
}

// Largest difference to plain libtorch, relative to each tensor's largest element.
double difference(const std::string& model, const TrainingStep& ours, std::uint32_t ranks) {
  const Parameters& plain = trained_by_sgd(model, ranks);
  const Parameters mine = copies_of(ours);
  double largest = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double scale = 1 + plain[i].abs().max().item<double>();
    largest = std::max(largest, (mine[i] - plain[i]).abs().max().item<double>() / scale);
  }
  return largest;
}

int run(const std::string& model, const std::string& cluster, const std::string& builder) {
  JobOptions options;
  options.builder = builder;
  options.seed = kSeed;
  options.measure = false;  // measured times may order the slices differently in another run
  AutoDist autodist(cluster, options);
  const TrainingStep step = make_step(model, kBatch / autodist.size());
  Session session = autodist.distribute(step, ir::parse_optimizer(optimizer_of(model)));
  std::string text = program::to_text(session.program());
  std::printf("rank %u slices %s program %s\n", session.rank(),
              to_string(autodist::digest_of(text)).c_str(),
              to_string(program::digest_of(session.program())).c_str());
  std::fflush(stdout);
  for (int i = 0; i < kSteps; ++i) session.run(batch_at(model, i));
  session.synchronize();
  session.finish();
  if (session.is_chief()) {
    std::printf("parameters %s difference %.3g\n", digest_of(step).c_str(),
                difference(model, step, session.size()));
  }
  return 0;
}

}  // namespace
}  // namespace autodist

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return autodist::testing_jobs::job_main("process_job",
                                          [&] { return autodist::run(argv[1], argv[2], argv[3]); });
}
