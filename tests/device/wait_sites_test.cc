// Every wait of the engine has a name of its own, is reached by a job or a scene, and is needed:
// without it, the test device shows a difference within a few schedules. And the host waits for a
// device nowhere beside them but where that is listed.

#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "autodist/exec/device/wait_site.h"
#include "tests/outcome_of.h"
#include "tests/sources.h"

namespace autodist {
namespace {

constexpr int kMostSchedules = 20;

// In the order of their numbers.
std::vector<std::string> names_of_sites() {
  const std::string header =
      testing_jobs::slurp(AUTODIST_SOURCE_DIR "/autodist/exec/device/wait_site.h");
  const std::size_t begin = header.find("enum class WaitSite {");
  const std::string body = header.substr(begin, header.find("};", begin) - begin);
  const std::regex enumerator("\n  (k\\w+),");
  std::vector<std::string> names;
  for (std::sregex_iterator i(body.begin(), body.end(), enumerator), end; i != end; ++i) {
    names.push_back((*i)[1]);
  }
  return names;
}

// Without tests and what they share.
void for_each_line(const std::function<void(const std::string& file, const std::string&)>& visit) {
  for (const auto& [file, lines] : testing_jobs::sources()) {
    if (testing_jobs::is_for_tests(file)) continue;
    for (const std::string& line : lines) visit(file, line);
  }
}

testing_jobs::Outcome run_without(int site, int seed) {
  testing_jobs::Outcome outcome =
      testing_jobs::outcome_of("timeout 200 " AUTODIST_TEST_PROGRAMS "/device_job " +
                               std::to_string(site) + " " + std::to_string(seed));
  EXPECT_NE(outcome.code, 124) << "site " << site << " of schedule " << seed << " hangs";
  return outcome;
}

TEST(WaitSites, EachNameIsOfOneCall) {
  const std::vector<std::string> names = names_of_sites();
  EXPECT_EQ(names.size(), static_cast<std::size_t>(exec::kWaitSites));
  std::map<std::string, int> calls;
  const std::regex use("WaitSite::(k\\w+)");
  for_each_line([&](const std::string& /*file*/, const std::string& line) {
    for (std::sregex_iterator i(line.begin(), line.end(), use), end; i != end; ++i) {
      ++calls[(*i)[1]];
    }
  });
  for (const std::string& name : names) EXPECT_EQ(calls[name], 1) << name;
}

TEST(WaitSites, AllAreReachedAndNothingIsNoticedWhenTheyWait) {
  const std::vector<std::string> names = names_of_sites();
  std::vector<bool> reached(names.size());
  for (int seed = 1; seed <= 3; ++seed) {
    const testing_jobs::Outcome outcome = run_without(-1, seed);
    EXPECT_EQ(outcome.code, 0) << "schedule " << seed << ": " << outcome.text;
    const std::regex one("reached (\\d+)\n");
    for (std::sregex_iterator i(outcome.text.begin(), outcome.text.end(), one), end; i != end;
         ++i) {
      reached.at(std::stoul((*i)[1])) = true;
    }
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_TRUE(reached[i]) << "no job and no scene of device_job comes to " << names[i];
  }
}

TEST(WaitSites, EachIsMissed) {
  const std::vector<std::string> names = names_of_sites();
  for (std::size_t site = 0; site < names.size(); ++site) {
    int found = 0;
    std::string by;
    for (int seed = 1; seed <= kMostSchedules && found == 0; ++seed) {
      const testing_jobs::Outcome outcome = run_without(static_cast<int>(site), seed);
      if (outcome.code == 0) continue;
      found = seed;
      by = outcome.text.substr(0, outcome.text.find('\n'));
    }
    EXPECT_NE(found, 0) << "nobody misses " << names[site];
    std::cout << names[site] << ": schedule " << found << ", " << (by.empty() ? "by a fault" : by)
              << std::endl;
    RecordProperty("site_" + names[site], found);
  }
}

// Streams and events of libtorch are seen in one file, and where ops are measured or recorded.
TEST(WaitSites, ThereIsNoWaitBesideThem) {
  const std::regex waits(
      "c10::Event|synchronizeStream|StreamGuard|getStreamFromGlobalPool|queryEvent|"
      "cudaStream|cudaEvent|cuda::synchronize");
  int seen = 0;
  for_each_line([&](const std::string& file, const std::string& line) {
    if (!std::regex_search(line, waits)) return;
    ++seen;
    const bool may = file.rfind("exec/device/queue.", 0) == 0 || file == "capture/costs.cc" ||
                     file == "exec/device/cuda_graphs.cc";
    EXPECT_TRUE(may) << "autodist/" << file << ": " << line;
  });
  EXPECT_GT(seen, 3) << "the names are no longer what the sources call them";
}

// Calls of libtorch that block the host where a tensor is on a device, in the layers whose code
// runs in a step.
struct Blocking {
  const char* file;
  int calls;
  const char* reason;
};
constexpr Blocking kBlocking[] = {
    {"capture/export.cc", 1, "before the first step"},
    {"capture/op_call.cc", 2, "guards: which way the step goes depends on a value"},
    {"capture/op_recorder.cc", 1, "before the first step"},
    {"capture/self_check.cc", 1, "before the first step"},
    {"capture/subject.cc", 1, "before the first step"},
    {"capture/tensor_type.cc", 1, "before the first step"},
    {"capture/unwritten.cc", 1, "while a step is recorded"},
    {"exec/compute_stream.cc", 2, "a loss: of the CPU, or of a step that failed"},
    {"exec/contributor.cc", 3, "gradients that were brought to the host"},
    {"exec/device/tensor_update.cc", 2, "state that is gathered or loaded, between steps"},
    {"exec/hand_over.cc", 2, "numbers that were brought to the host"},
    {"exec/held_state.cc", 1, "state that is loaded, between steps"},
    {"exec/library_all_reduce.cc", 7,
     "factors of PowerSGD, which are on the host; its sum, where the library sums on the device; "
     "what on_host() has waited for; state that is loaded"},
    {"exec/local_variables.cc", 4,
     "initial values and reloaded ones; the newest version for the host, between steps; a part of "
     "a variable that is not row-major"},
    {"exec/nonfinite.cc", 1, "tensors of the host, or of a step that failed"},
    {"exec/replay.cc", 1, "a batch that comes from the host"},
    {"exec/start.cc", 1, "before the first step"},
    {"exec/tensor_watch.cc", 1, "variables that a program may have written to, between steps"},
    {"exec/whole_gradients.cc", 1, "what on_host() has waited for"},
};

TEST(WaitSites, BlockingCallsAreListedWithTheirReasons) {
  const std::regex blocks(
      "\\.item[<(]|\\.cpu\\(\\)|\\.to\\([^)]*([dD]evice|kCPU)|shadow\\.copy_\\(|"
      "from_blob\\(.*\\.copy_\\(");
  std::map<std::string, int> found;
  std::map<std::string, std::string> lines;
  for_each_line([&](const std::string& file, const std::string& line) {
    const bool runs_in_steps = file.rfind("exec/", 0) == 0 || file.rfind("capture/", 0) == 0;
    if (!runs_in_steps || !std::regex_search(line, blocks)) return;
    if (line.find("/*non_blocking=*/true") != std::string::npos) return;
    ++found[file];
    lines[file] += line + '\n';
  });
  for (const Blocking& each : kBlocking) {
    EXPECT_EQ(found[each.file], each.calls)
        << "autodist/" << each.file << " (" << each.reason << "):\n"
        << lines[each.file] << "Let it wait by a site, or count it here and say why it may block.";
    found.erase(each.file);
  }
  for (const auto& [file, calls] : found) {
    ADD_FAILURE() << "autodist/" << file << " is not listed:\n"
                  << lines[file] << "Let it wait by a site, or list it with a reason.";
  }
}

}  // namespace
}  // namespace autodist
