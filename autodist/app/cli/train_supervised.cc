#include "autodist/app/cli/train_supervised.h"

#include <optional>

#include "autodist/app/cli/hand_over.h"
#include "autodist/app/cli/supervise.h"
#include "autodist/app/command_words.h"
#include "autodist/app/this_process.h"
#include "autodist/base/error.h"
#include "autodist/base/numbers.h"
#include "autodist/cluster/cluster.h"
#include "autodist/job/launcher.h"

namespace autodist::app {
namespace {

constexpr char kStandbyFlag[] = "--standby";

// Nothing where it is no number: the verb itself refuses that.
template <typename Number>
std::optional<Number> number_of(const std::vector<std::string>& words, const std::string& option,
                                Number otherwise) {
  const auto text = value_of(words, option);
  if (!text) return otherwise;
  const auto value = as_number<Number>(*text);
  return value && *value < 0 ? std::nullopt : value;
}

std::optional<Supervised> request_of(const std::vector<std::string>& words) {
  const auto restarts = number_of<std::uint32_t>(words, "--restarts", kRestarts);
  const auto grace = number_of<double>(words, "--grace", 0);
  const auto min_ranks = number_of<std::uint32_t>(words, "--min-ranks", 0);
  if (!restarts || !grace || !min_ranks) return std::nullopt;
  return Supervised{*restarts, *grace, *min_ranks > 0 ? min_ranks : std::nullopt,
                    value_of(words, "--faults").value_or(""), has_word(words, kStandbyFlag)};
}

// Whoever has started the ranks starts them again, or does not. Rank 0 says it.
void warn_unheeded(const std::vector<std::string>& words) {
  const Environment environment = process_environment();
  if (environment("AUTODIST_STARTED_BY")) return;  // by a chief that is its job's rank 0
  std::optional<job::Launched> launched;
  try {
    launched = job::launched_by(environment);
  } catch (const Error&) {
    return;  // the verb says what is wrong with the variables
  }
  if (launched ? launched->rank != 0 : !job::is_rank_0(environment)) return;
  for (const std::string option : {"--restarts", kStandbyFlag, "--min-ranks", "--grace"}) {
    const bool is_given = option == kStandbyFlag ? has_word(words, option)
                                                 : value_of(words, option).value_or("0") != "0";
    if (!is_given) continue;
    say_line(fmt::format(
        "{}: without effect, as another program has started these ranks. Give it to that one "
        "(autodist run has it), or start with autodist train alone.",
        option));
  }
}

ChiefProgram train_on(const std::vector<std::string>& words) {
  const std::string folder = value_of(words, "--save").value_or("");
  const auto going_on = [words](const std::string& checkpoint) {
    return as_typed(resuming(without_option(words, "--faults"), checkpoint));
  };
  const auto become = [words](const std::string& checkpoint) {
    return hand_over(checkpoint.empty() ? words : resuming(words, checkpoint));
  };
  const auto cluster = [words] {
    const std::string named =
        job::specified(value_of(words, "--cluster").value_or(""), process_environment());
    return cluster::read_cluster(named.empty() ? "local:2" : named);
  };
  return {become, folder, cluster, value_of(words, "--devices") == "cpu", going_on};
}

}  // namespace

int train_supervised(const std::vector<std::string>& words) {
  const auto request = request_of(words);
  const bool launched = job::is_launched(process_environment());
  if (!request || launched ||
      (request->restarts == 0 && request->grace == 0 && request->faults.empty())) {
    if (launched && request && !request->faults.empty()) {
      say_line(
          "chaos: this process is a rank that somebody else has started. Give chaos the command "
          "that starts the job.");
      return static_cast<int>(ErrorCode::kUsage);
    }
    if (launched) warn_unheeded(words);
    return hand_over(words);
  }
  try {
    return supervise(train_on(words), *request);
  } catch (const Error& error) {
    say_line(error.what());
    return static_cast<int>(error.code());
  }
}

}  // namespace autodist::app
