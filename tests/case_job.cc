// One of AutoDist's cases (autodist_cases.h) as a user's program: every rank a process, wherever
// the cluster says. The chief compares what it trained with plain libtorch.
//
//   case_job CLUSTER CASE BUILDER
//
// Prints "c3 ranks 2 moved 0.12 difference 3e-16": lengths, of all parameters together.

#include <cstdio>

#include "autodist/app/torch/session.h"
#include "autodist/base/error.h"
#include "tests/autodist_cases.h"

namespace autodist {
namespace {

using namespace testing_jobs;

const AutoDistCase& case_named(const std::string& name) {
  for (const AutoDistCase& each : autodist_cases()) {
    if (each.name == name) return each;
  }
  fail(ErrorCode::kUsage, "no case '{}'", name);
}

int run(const std::string& cluster_file, const std::string& name, const std::string& builder) {
  const AutoDistCase& subject = case_named(name);
  const Places ranks = cluster::ranks_of(cluster::read_cluster(cluster_file), /*cpu_only=*/true);
  JobOptions options;
  options.builder = builder;
  options.seed = kSeed;
  options.measure = false;
  options.cpu_only = true;
  // A library sends in clear: between machines only where the job says that it may.
  if (builder.find("algorithm=library") != std::string::npos) {
    options.encryption = Encryption::kOff;
  }
  AutoDist autodist(cluster_file, options);
  const TrainingStep step = subject.make();
  Session session = autodist.distribute(step, ir::parse_optimizer(subject.optimizer));
  for (int i = 0; i < subject.steps; ++i) {
    session.run_local(subject.rows(i, session.rank(), ranks));
  }
  session.finish();
  if (!session.is_chief()) return 0;
  const PlainResult plain = train_whole(subject, ranks, subject.steps);
  std::printf("%s ranks %zu moved %.3g difference %.3g\n", name.c_str(), ranks.size(),
              distance(plain.after, plain.before), distance(copies_of(step), plain.after));
  return 0;
}

}  // namespace
}  // namespace autodist

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return autodist::testing_jobs::job_main("case_job",
                                          [&] { return autodist::run(argv[1], argv[2], argv[3]); });
}
