// A user's program for autodist_cases_test.cc, AutoDist's case c10: every rank names a folder of
// its own to save to, and the chief compares what it trained, or what it trained on from what was
// saved, with plain libtorch.
//
//   checkpoint_job CLUSTER BUILDER save|load FOLDER

#include <cstdio>

#include "autodist/app/torch/session.h"
#include "tests/reference.h"

namespace autodist {
namespace {

using namespace testing_jobs;

const std::string kModel = "digits";

int run(const std::string& cluster, const std::string& builder, bool save,
        const std::string& folder) {
  JobOptions options;
  options.builder = builder;
  options.seed = kSeed;
  options.measure = false;
  AutoDist autodist(cluster, options);
  const TrainingStep step = make_step(kModel, kBatch / autodist.size());
  Session session = autodist.distribute(step, ir::parse_optimizer(optimizer_of(kModel)));
  const std::string own = folder + "/rank-" + std::to_string(session.rank());
  const int end = save ? kSteps / 2 : kSteps;
  if (!save) session.load(own);
  for (auto i = static_cast<int>(session.step()); i < end; ++i) session.run(batch_at(kModel, i));
  session.synchronize();
  if (save) session.save(own);
  session.finish();
  if (save || !session.is_chief()) return 0;
  std::printf("steps %d difference %.3g\n", end,
              largest_difference(copies_of(step), trained_by_sgd(kModel, session.size())));
  return 0;
}

}  // namespace
}  // namespace autodist

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  return autodist::testing_jobs::job_main("checkpoint_job", [&] {
    return autodist::run(argv[1], argv[2], argv[3] == std::string("save"), argv[4]);
  });
}
