// `autodist chaos`: a job as it is started otherwise, whose ranks are harmed on purpose.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <memory>

#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/faults.h"
#include "autodist/base/error.h"
#include "autodist/job/subprocess.h"

namespace autodist::app {
namespace {

struct ChaosArguments {
  FaultPlan plan;
  std::vector<std::string> job;
};

// The job's verb takes this process's place, told of the faults.
int chaos(const ChaosArguments& arguments) {
  const std::string& verb = arguments.job.front();
  if (verb != "train" && verb != "run" && verb != "supervise") {
    fail(ErrorCode::kUsage,
         "chaos: '{}' behind --, train, run or supervise expected. Write -- train digits, say.",
         verb);
  }
  std::vector<std::string> words{"autodist", verb, "--faults", to_text(arguments.plan)};
  words.insert(words.end(), arguments.job.begin() + 1, arguments.job.end());
  ::execv("/proc/self/exe", job::argv_of(words).data());
  fail(ErrorCode::kEnvironment, "chaos: {} cannot be started: {}. Give it fewer words.", verb,
       std::strerror(errno));
}

}  // namespace

Action declare_chaos(CLI::App& verb) {
  auto arguments = std::make_shared<ChaosArguments>();
  FaultPlan& plan = arguments->plan;
  verb.add_option("--kill-every", plan.every,
                  "mean seconds of training before a fault: a killed rank, or, in turn with that, "
                  "what --halt and --partition say")
      ->check(in_range(0.01, 1e6));
  verb.add_flag("--halt", plan.stops,
                "in turn with kills, halt a rank: it neither works nor ends, as in a machine that "
                "hangs");
  verb.add_option("--partition", plan.cut,
                  "in turn with kills, cut a machine off from all others for so many seconds: by "
                  "its routes, with root or sudo on every machine")
      ->check(in_range(0.1, 1e5));
  verb.add_option("--faults", plan.most, "stop after so many (default 0: without end)");
  verb.add_option("--seed", plan.seed, "decides which ranks have faults, and when (default 0)");
  verb.add_option("--log", plan.log,
                  "write a line of JSON here for each fault after which the job trained again");
  verb.add_option("job", arguments->job, "train, run or supervise with its arguments, after --")
      ->required();
  return [arguments](Console&) { return chaos(*arguments); };
}

}  // namespace autodist::app
