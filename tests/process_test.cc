// Jobs as real processes over loopback, and the command line as its users meet it: what is printed,
// how it ends, what is left running.

#include <gtest/gtest.h>
#include <signal.h>

#include <array>

#include "tests/library_collectives.h"
#include "tests/process.h"

namespace autodist {
namespace {

using namespace testing_jobs;
using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// --- jobs ---

struct Result {
  std::string parameters;  // digest
  double difference = 1;
};

Result run_job(const std::string& model, const std::string& builder, int ranks) {
  const Scratch scratch;
  Process job({kTestPrograms + "/process_job", model, "local:" + std::to_string(ranks), builder},
              scratch);
  EXPECT_EQ(job.wait(120s), 0) << job.err();
  std::smatch match;
  const std::string out = job.out();
  if (!std::regex_search(out, match, std::regex("parameters (\\S+) difference (\\S+)"))) return {};
  return {match[1], std::stod(match[2])};
}

// A covering array: every pair of (model, ranks) and (builder, ranks) occurs in one part, and every
// pair of (model, builder) in both. Runs of the diagonal are repeated.
void expect_plain_libtorch(bool first_part) {
  const std::array<const char*, 6> models{"digits",     "digits-norm",      "gpt-small",
                                          "lstm-small", "ncf-small-sparse", "bert-small"};
  const std::array<const char*, 6> builders{
      "PS",        "PSLoadBalancing", "PartitionedPS",
      "AllReduce", "PartitionedAR",   "AllReduce:algorithm=library"};
  const std::array<int, 3> ranks{2, 4, 1};
  for (std::size_t m = 0; m < models.size(); ++m) {
    for (std::size_t b = 0; b < builders.size(); ++b) {
      if (((m + b) % models.size() < ranks.size()) != first_part) continue;
      if (testing_jobs::is_left_out(builders[b])) continue;
      const int count = ranks[(m + b) % ranks.size()];
      const Result first = run_job(models[m], builders[b], count);
      EXPECT_LE(first.difference, 1e-9) << models[m] << " by " << builders[b] << " on " << count;
      if (m != b) continue;
      EXPECT_EQ(first.parameters, run_job(models[m], builders[b], count).parameters)
          << models[m] << " by " << builders[b] << " on " << count;
    }
  }
}

TEST(Processes, EqualPlainLibtorchAndThemselves) { expect_plain_libtorch(true); }
TEST(SlowProcesses, EqualPlainLibtorchForEveryOtherPair) { expect_plain_libtorch(false); }

TEST(Processes, FetchesAreTheWholeBatchsAndEvaluationCountsEverySampleOnce) {
  for (const char* builder : {"PartitionedPS", "AllReduce"}) {
    for (const int ranks : {1, 2, 3}) {
      const Scratch scratch;
      Process job({kTestPrograms + "/fetch_job", "local:" + std::to_string(ranks), builder},
                  scratch);
      ASSERT_EQ(job.wait(60s), 0) << job.err();
      const std::string lines = job.out() + job.err();
      const std::regex line(
          "rank \\d difference (\\S+) samples 11 evaluation differs by (\\S+); "
          "fetch: .* Did you mean 'fc2.weight'");
      int found = 0;
      for (std::sregex_iterator each(lines.begin(), lines.end(), line), end; each != end; ++each) {
        ++found;
        EXPECT_LT(std::stod((*each)[1]), 1e-12) << lines;
        EXPECT_LT(std::stod((*each)[2]), 1e-9) << lines;
      }
      EXPECT_EQ(found, ranks) << lines;
    }
  }
}

// Parts of a batch need not be equal: averages are by samples, so the losses are the same.
TEST(Processes, SharesOfABatchChangeNothingButWhoComputesIt) {
  const Scratch scratch;
  const auto losses = [&](const std::string& name, const std::string& shares,
                          const std::string& micro_batches = "1") {
    const std::string strategy = scratch / (name + ".pbtxt");
    Process plan(autodist({"plan", "digits", "--cluster", "local:2", "--builder", "PartitionedPS",
                           "--text", "-o", strategy}),
                 scratch);
    EXPECT_EQ(plan.wait(), 0) << plan.err();
    std::ofstream(strategy, std::ios::app) << shares << "\n";
    const std::string log = scratch / (name + ".jsonl");
    Process job(
        autodist({"train", "digits", "--cluster", "local:2", "--strategy", strategy, "--batch",
                  "60", "--steps", "6", "--log", log, "--accumulate", micro_batches}),
        scratch);
    EXPECT_EQ(job.wait(), 0) << job.err();
    std::vector<double> all;
    const std::string text = slurp(log);
    const std::regex loss("\"loss\":([^,}]+)");
    for (std::sregex_iterator at(text.begin(), text.end(), loss), end; at != end; ++at) {
      all.push_back(std::stod((*at)[1]));
    }
    return all;
  };
  const std::vector<double> equal = losses("equal", "");
  const std::string four_to_one = "batch_shares: 4 batch_shares: 1";
  const std::string all_to_one = "batch_shares: 1000000 batch_shares: 1";  // the other has no rows
  ASSERT_EQ(equal.size(), 6u);
  for (const std::vector<double>& shared :
       {losses("shared", four_to_one), losses("in parts", four_to_one, "3"),
        losses("alone", all_to_one)}) {
    ASSERT_EQ(shared.size(), 6u);
    for (std::size_t i = 0; i < equal.size(); ++i) {
      EXPECT_NEAR(shared[i], equal[i], 1e-5 * equal[i]) << "step " << i;
    }
  }
}

// Half of the time the second rank stands still, as under a CPU quota of 50 %: both ranks still
// make the same tables, because no measured time is in them.
TEST(Processes, ASlowedRankAgreesOnTheSameSlices) {
  const Scratch scratch;
  Process job({kTestPrograms + "/process_job", "gpt-small", "local:2", "AllReduce"}, scratch);
  std::vector<pid_t> children;
  ASSERT_TRUE(happens([&] {
    children = job.children();
    return !children.empty();
  }));
  ASSERT_EQ(children.size(), 1U);
  int code = -1;
  for (int i = 0; i < 1200 && code < 0; ++i) {
    ::kill(children[0], SIGSTOP);
    std::this_thread::sleep_for(50ms);
    ::kill(children[0], SIGCONT);
    std::this_thread::sleep_for(50ms);
    code = job.wait(0s);
    if (code < 0 && job.children().empty()) code = job.wait(30s);
  }
  EXPECT_EQ(code, 0) << job.err();
  std::smatch chief;
  std::smatch other;
  const std::regex tables("slices (\\S+) program (\\S+)");
  const std::string out = job.out();
  const std::string err = job.err();  // the second rank's lines
  ASSERT_TRUE(std::regex_search(out, chief, tables)) << out;
  ASSERT_TRUE(std::regex_search(err, other, tables)) << err;
  EXPECT_EQ(chief[1], other[1]);
  EXPECT_EQ(chief[2], other[2]);
}

// --- a rank that dies, a user who stops ---

// Nobody starts it again: what the chief itself does. tests/restarts_test.py has the others.
std::vector<std::string> long_training(const std::string& checkpoint) {
  return autodist({"train", "digits", "--cluster", "local:2", "--steps", "1000000", "--batch", "16",
                   "--save", checkpoint, "--restarts", "0"});
}

TEST(Processes, AKilledRankIsNamedWithinSecondsAndNobodyIsLeft) {
  const Scratch scratch;
  Process job(long_training(scratch / "ckpt"), scratch);
  ASSERT_TRUE(job.says("step +\\d+/")) << job.err();
  const std::vector<pid_t> children = job.children();
  ASSERT_EQ(children.size(), 1U);
  const auto start = Clock::now();
  ::kill(children[0], SIGKILL);
  EXPECT_EQ(job.wait(20s), 5) << job.err();
  EXPECT_LT(Clock::now() - start, 10s);
  EXPECT_NE(job.err().find("rank 1"), std::string::npos) << job.err();
  EXPECT_TRUE(is_gone(children[0]));
}

TEST(Processes, AKilledChiefTakesItsRanksWithIt) {
  const Scratch scratch;
  Process job(long_training(scratch / "ckpt"), scratch);
  ASSERT_TRUE(job.says("step +\\d+/")) << job.err();
  const std::vector<pid_t> children = job.children();
  ASSERT_EQ(children.size(), 1U);
  ::kill(job.pid(), SIGKILL);
  EXPECT_EQ(job.wait(10s), 128 + SIGKILL);
  EXPECT_TRUE(is_gone(children[0]));
}

TEST(Processes, SigtermToAnyRankEndsTheStepWithACheckpoint) {
  for (const bool to_chief : {true, false}) {
    const Scratch scratch;
    Process job(long_training(scratch / "ckpt"), scratch);
    ASSERT_TRUE(job.says("step +\\d+/")) << job.err();
    const std::vector<pid_t> children = job.children();
    ASSERT_EQ(children.size(), 1U);
    ::kill(to_chief ? job.pid() : children[0], SIGTERM);
    // A second SIGTERM at once, as timeout(1) sends it, is no second wish.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ::kill(to_chief ? job.pid() : children[0], SIGTERM);
    EXPECT_EQ(job.wait(30s), 0) << job.err();
    EXPECT_NE(job.out().find("interrupted after step"), std::string::npos) << job.out();
    bool saved = false;
    for (const auto& entry : fs::directory_iterator(scratch / "ckpt")) {
      saved |= fs::exists(entry.path() / "manifest.json");
    }
    EXPECT_TRUE(saved);
    EXPECT_TRUE(is_gone(children[0]));
  }
}

// Statistics of batch norm, the optimizer's state and what compression owes: whatever is not saved
// shows in the next steps.
TEST(Processes, AResumedRunEndsWithTheSameBytes) {
  for (const char* builder :
       {"PartitionedPS:compressor=bf16+ef", "AllReduce:compressor=HorovodCompressorEF",
        "AllReduce:compressor=topk,density=0.1", "AllReduce:compressor=powersgd"}) {
    if (testing_jobs::is_left_out(builder)) continue;
    const Scratch scratch;
    const auto train = [&](const std::string& folder, const std::string& steps, bool resume) {
      std::vector<std::string> arguments = autodist(
          {"train", "digits-norm", "--cluster", "local:2", "--builder", builder, "--batch", "16",
           "--optimizer", "adam:lr=1e-3", "--save", scratch / folder, "--steps", steps});
      if (resume) {
        arguments.emplace_back("--resume");
        arguments.push_back(scratch / folder);
      }
      Process job(arguments, scratch);
      ASSERT_EQ(job.wait(120s), 0) << job.err();
    };
    train("straight", "6", false);
    train("resumed", "3", false);
    train("resumed", "6", true);
    for (const char* file :
         {"model.safetensors", "optimizer.safetensors", "replica-1.safetensors"}) {
      const std::string straight = slurp(scratch / ("straight/step-6/" + std::string(file)));
      EXPECT_FALSE(straight.empty()) << file;
      EXPECT_TRUE(straight == slurp(scratch / ("resumed/step-6/" + std::string(file))))
          << file << " under " << builder;
    }
  }
}

TEST(Processes, ARunThatIsOverSaysSo) {
  const Scratch scratch;
  const std::vector<std::string> train =
      autodist({"train", "digits", "--cluster", "local:1", "--steps", "2"});
  std::vector<std::string> first = train;
  first.insert(first.end(), {"--save", scratch / "ckpt"});
  Process begun(first, scratch);
  ASSERT_EQ(begun.wait(60s), 0) << begun.err();
  std::vector<std::string> again = train;
  again.insert(again.end(), {"--resume", scratch / "ckpt"});
  Process over(again, scratch);
  ASSERT_EQ(over.wait(60s), 0) << over.err();
  EXPECT_NE(over.out().find("nothing to train: it is at step 2 already, and --steps is 2"),
            std::string::npos)
      << over.out();
}

// A checkpoint of stages is a checkpoint: placed and unplaced jobs go on from it to the same bits.
TEST(Processes, PlacedJobsResumeToTheBitAndUnplacedOnes) {
  const Scratch scratch;
  const std::string plan = scratch / "plan.strategy";
  // The shipped graph is of another libtorch's ops.
  const std::string graph = scratch / "gpt-small.adg";
  Process capture(autodist({"capture", "gpt-small", "-o", graph}), scratch);
  ASSERT_EQ(capture.wait(120s), 0) << capture.err();
  Process place(autodist({"place", graph, "--cluster", "local:2", "--objective", "throughput",
                          "--simulations", "20000", "-o", plan}),
                scratch);
  ASSERT_EQ(place.wait(120s), 0) << place.err();
  const auto train = [&](const std::string& folder, const std::string& steps,
                         const std::vector<std::string>& how, bool resume) {
    std::vector<std::string> arguments =
        autodist({"train", "gpt-small", "--batch", "8", "--accumulate", "2", "--optimizer",
                  "adam:lr=1e-3", "--save", scratch / folder, "--steps", steps});
    arguments.insert(arguments.end(), how.begin(), how.end());
    if (resume) arguments.insert(arguments.end(), {"--resume", scratch / folder});
    // One rank alone would have more threads, which add up in another order.
    arguments.insert(arguments.begin(), {"/usr/bin/env", "OMP_NUM_THREADS=1"});
    Process job(arguments, scratch);
    ASSERT_EQ(job.wait(120s), 0) << job.err();
  };
  const std::vector<std::string> placed{"--cluster", "local:2", "--strategy", plan};
  const std::vector<std::string> whole{"--cluster", "local:1", "--builder", "PS"};
  train("straight", "4", placed, false);
  train("resumed", "2", placed, false);
  fs::copy(scratch / "resumed", scratch / "unplaced", fs::copy_options::recursive);
  train("resumed", "4", placed, true);
  train("unplaced", "4", whole, true);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string straight = slurp(scratch / ("straight/step-4/" + std::string(file)));
    EXPECT_FALSE(straight.empty()) << file;
    for (const char* folder : {"resumed", "unplaced"}) {
      EXPECT_TRUE(straight == slurp(scratch / (std::string(folder) + "/step-4/" + file)))
          << file << ", " << folder;
    }
  }
}

// AutoDist's case c10. Every rank names a folder of its own: only the chief's comes into being, and
// jobs of other sizes and strategies train on from it, ending where plain libtorch does.
TEST(Processes, CaseC10TheChiefAloneWritesWhatAnyJobLoads) {
  const Scratch scratch;
  const std::string folder = scratch / "saved";
  Process save({kTestPrograms + "/checkpoint_job", "local:2", "PartitionedPS", "save", folder},
               scratch);
  ASSERT_EQ(save.wait(120s), 0) << save.err();
  EXPECT_TRUE(fs::exists(folder + "/rank-0"));
  EXPECT_FALSE(fs::exists(folder + "/rank-1"));
  for (const auto& [cluster, builder] :
       {std::pair{"local:1", "PS"}, std::pair{"local:2", "AllReduce"}}) {
    Process load({kTestPrograms + "/checkpoint_job", cluster, builder, "load", folder}, scratch);
    ASSERT_EQ(load.wait(120s), 0) << load.err();
    std::smatch match;
    const std::string out = load.out();
    ASSERT_TRUE(std::regex_search(out, match, std::regex("steps 10 difference (\\S+)"))) << out;
    EXPECT_LE(std::stod(match[1]), 1e-9) << cluster;
  }
}

// AutoDist's cases as processes on the loopback device: a few of them with a way each, and every
// case with every way.
struct CaseRun {
  std::string name;
  std::string builder;
};

const std::vector<std::string> kCaseWays{"PS",
                                         "PartitionedPS:local_proxy_variable=true",
                                         "AllReduce",
                                         "AllReduce:all_reduce_spec=RING",
                                         "PSLoadBalancing:local_proxy_variable=true",
                                         "Parallax",
                                         "PartitionedAR",
                                         "UnevenPartitionedPS",
                                         "RandomAxisPartitionAR:chunk_size=4",
                                         "AllReduce:algorithm=library",
                                         "AllReduce:algorithm=tree"};

void expect_case(const std::string& cluster, const std::string& name, const std::string& builder) {
  if (testing_jobs::is_left_out(builder)) return;
  const Scratch scratch;
  Process job({kTestPrograms + "/case_job", cluster, name, builder}, scratch);
  ASSERT_EQ(job.wait(120s), 0) << name << " by " << builder << ": " << job.err();
  std::smatch match;
  const std::string out = job.out();
  ASSERT_TRUE(std::regex_search(out, match, std::regex("moved (\\S+) difference (\\S+)"))) << out;
  EXPECT_GT(std::stod(match[1]), 1e-3) << "nothing was trained";
  EXPECT_LE(std::stod(match[2]), 1e-9 * std::stod(match[1])) << name << " by " << builder;
}

TEST(Processes, TrainAutoDistsCases) {
  for (std::size_t i = 0; i < 8; ++i) {
    const std::string ranks = i % 2 == 0 ? "local:2" : "local:3";
    expect_case(ranks, "c" + std::to_string(i), kCaseWays[i]);
  }
}

TEST(SlowProcesses, TrainEveryCaseOnEveryWay) {
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < kCaseWays.size(); ++j) {
      expect_case((i + j) % 2 == 0 ? "local:2" : "local:3", "c" + std::to_string(i), kCaseWays[j]);
    }
  }
}

TEST(Processes, AnAsynchronousJobSavesWhatItsOwnersHave) {
  const Scratch scratch;
  const auto accuracy = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = autodist({"train", "digits", "--batch", "64", "--json"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    Process job(arguments, scratch);
    EXPECT_EQ(job.wait(120s), 0) << job.err();
    std::smatch match;
    const std::string out = job.out();
    EXPECT_TRUE(std::regex_search(out, match, std::regex("\"held_out_accuracy\":([0-9.]+)")));
    EXPECT_EQ(out.find("\"reproducible\":true") == std::string::npos,
              out.find("\"ranks\":1,") == std::string::npos);
    return match[1].str();
  };
  const std::string trained =
      accuracy({"--cluster", "local:3", "--builder", "PSLoadBalancing:sync=false", "--steps", "40",
                "--checkpoint-every", "15", "--save", scratch / "ckpt"});
  EXPECT_EQ(accuracy({"--cluster", "local:1", "--steps", "0", "--resume", scratch / "ckpt"}),
            trained);
}

}  // namespace
}  // namespace autodist
