// Bad input on the command line: one line, an exit code, nothing left.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "tests/process.h"

namespace autodist {
namespace {

using namespace testing_jobs;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

struct Complaint {
  int code = 0;
  std::string line;
};

Complaint complaint_of(const std::vector<std::string>& arguments,
                       const std::vector<std::string>& environment = {}) {
  const Scratch scratch;
  Process process(autodist(arguments), scratch, environment);
  Complaint complaint{process.wait(60s), ""};
  const std::vector<std::string> lines = lines_of(process.err());
  EXPECT_EQ(lines.size(), 1U) << process.err();
  EXPECT_EQ(process.out(), "");
  if (!lines.empty()) complaint.line = lines.back();
  return complaint;
}

void expect_complaint(const std::vector<std::string>& arguments, int code, const std::string& part,
                      const std::vector<std::string>& environment = {}) {
  const Complaint complaint = complaint_of(arguments, environment);
  EXPECT_EQ(complaint.code, code) << complaint.line;
  EXPECT_NE(complaint.line.find(part), std::string::npos) << complaint.line;
}

TEST(BadInput, NamesAndFilesThatAreNotThere) {
  expect_complaint({"train", "resnet5"}, 2, "Did you mean 'resnet50'?");
  expect_complaint({"plan", "resnet5", "--cluster", "local:2"}, 2, "id you mean");
  expect_complaint({"train", "digits", "--cluster", "/no/such.yml"}, 2, "/no/such.yml");
  expect_complaint({"train", "digits", "--data", "/no/such"}, 2, "/no/such");
  expect_complaint({"train", "digits", "--resume", "/no/such"}, 6, "/no/such");
  expect_complaint({"train", "digits", "--resume", "/usr"}, 6, "--resume /usr: there is no check");
  expect_complaint({"train", "digits", "--init", "/no/such"}, 2, "(--init) /no/such");
  expect_complaint({"train", "digits", "--optimizer", "adamm"}, 2, "adam");
  expect_complaint({"train", "digits", "--optimizer", "adam,lr=1"}, 2, "Did you mean 'adam:lr=1'?");
  expect_complaint({"train", "digits", "--builder", "AllReduc"}, 2, "AllReduce");
  expect_complaint({"simulate", "digits", "--dtype", "int8"}, 2,
                   "fp32, tf32, bf16, fp16 expected.");
  expect_complaint({"bench", "nosuch"}, 2, "search");
  expect_complaint({"dataset", "nosuch"}, 2, "stats");
}

TEST(BadInput, OptionsOfPlansByTrials) {
  for (const char* option : {"--builder", "--dump-after"}) {
    expect_complaint({"plan", "digits", "--trials", "2", option, "x"}, 2, " excludes --");
  }
  expect_complaint({"train", "digits", "--trials", "some"}, 2, "any or a number from 0 to 1000");
  expect_complaint({"train", "digits", "--trials", "any"}, 2, "Add --write-plans FILE.");
  expect_complaint({"train", "digits", "--plans", "a", "--builder", "PS"}, 2, " excludes --");
  expect_complaint({"train", "digits", "--plans", "/no/such"}, 2, "/no/such");
  expect_complaint({"plan", "digits", "--trials", "2", "--report", "/no/such/page"}, 3,
                   "there is no folder /no/such");
  for (const char* option : {"--calibration", "--ranker"}) {
    expect_complaint({"plan", "digits", "--trials", "2", option, "/no/such"}, 2, "/no/such");
  }
}

// What would be accepted and do nothing.
TEST(BadInput, OptionsWithoutEffect) {
  expect_complaint({"train", "digits", "--strategy", "f", "--builder", "PS"}, 2,
                   " excludes --strategy. Leave one of them out.");
  expect_complaint({"train", "digits", "--builder", "PS", "--trials", "3"}, 2,
                   "--trials is of the search, and --builder PS chooses without one");
  expect_complaint({"train", "digits", "--strategy", "f", "--budget", "1h"}, 2,
                   "--budget is of the search, and --strategy names a plan");
  expect_complaint({"plan", "digits", "--builder", "PS", "--budget", "9"}, 2, "--budget is of");
  expect_complaint({"plan", "digits", "--text"}, 2, "--text is of --output, which is not given");
  expect_complaint(
      {"train", "digits", "--init", "a", "--resume", "b"}, 2,
      "--resume takes every value from a checkpoint. Leave one of --init and --resume");
  expect_complaint({"train", "digits", "--on-nonfinite", "stop", "--loss-scale", "8"}, 2,
                   "on_nonfinite (--on-nonfinite) beside loss_scaling (--loss-scale): ");
  expect_complaint({"plan", "digits", "--builder", "AllReduce:density=0.1"}, 2,
                   "Add compressor=topk, or leave density out.");
  expect_complaint({"plan", "digits", "--builder", "Auto"}, 2, "Nearest: 'auto'.");
  expect_complaint({"train", "digits", "--checkpoint-every", "9"}, 2, "Add --save");
  expect_complaint({"train", "digits", "--trace-steps", "9"}, 2, "Add --trace");
  expect_complaint({"train", "digits", "--loss", "mse"}, 2, "'digits' is a built-in model");
  expect_complaint({"run", "--min-ranks", "2", "--", "true"}, 2, "Add --restarts");
  expect_complaint({"report", "--late", "t.json", "-o", "page.html"}, 2, "--late makes none");
  expect_complaint({"inspect", "digits", "--ops", "--dot"}, 2, "Give one of them");
  expect_complaint({"inspect", "local:2", "--ops"}, 2,
                   "--ops is of a graph, and this is a cluster. Leave it out.");
  expect_complaint({"inspect", "digits", "--text"}, 2, "--text is of a strategy");
  expect_complaint({"place", "vgg16", "--devices", "2", "--replicas", "2"}, 2, "Add --cluster");
  expect_complaint({"place", "digits", "--devices", "2", "--order", "bfs"}, 2, "Add --placer");
  expect_complaint({"place", "digits", "--devices", "2", "--order", "bfs", "--placer", "heft"}, 2,
                   "--order is of linear and descent, and --placer heft takes none.");
  expect_complaint({"place", "digits", "--devices", "2", "--placer", "heftt"}, 2,
                   "--placer: unknown 'heftt'");
  expect_complaint({"place", "digits", "--devices", "2", "--placer", "ideals"}, 2,
                   "It is of --objective throughput.");
  expect_complaint({"ckpt", "list", "d", "--only", "a"}, 2,
                   "ckpt: --only is of extract, and this is list. Leave it out.");
  expect_complaint({"dataset", "stats", "d", "-o", "f"}, 2,
                   "--output is of train and eval, and this is stats.");
  expect_complaint({"dataset", "train", "d", "-o", "f", "--seed", "3"}, 2, "--seed is of eval");
  expect_complaint({"bench", "sim", "--budget", "5"}, 2, "--budget is of search and sweep");
  expect_complaint({"bench", "capture", "--rows", "5"}, 2, "--rows is of ");
  expect_complaint({"bench", "search", "--models", "vgg16,vgg61"}, 2, "Nearest: 'vgg16'.");
  expect_complaint({"bench", "sim", "--data", "/no/such"}, 2, "--data: there is no /no/such/nccl");
  expect_complaint({"report", "--late", "t.json", "--cluster", "local:2"}, 2, "--late makes none");
}

TEST(BadInput, NumbersThatAreNone) {
  expect_complaint({"train", "digits", "--steps", "010"}, 2, "'010', a whole number in decimal");
  expect_complaint({"train", "digits", "--restarts", "0x3"}, 2, "--restarts");
  expect_complaint({"train", "digits", "--join-timeout", "nan"}, 2, "'nan', a number expected");
  expect_complaint({"plan", "digits", "--seed", "-1"}, 2, "a whole number of 0 or more");
  expect_complaint({"plan", "digits", "--seed", "1.5"}, 2, "a whole number of 0 or more");
  expect_complaint({"simulate", "digits", "--what-if", "nodes=2.9"}, 2, "a whole number from 1");
  expect_complaint({"place", "digits", "--cluster", "local:2", "--budget", "40"}, 2,
                   "a count is --evaluations 40");
  expect_complaint({"train", "digits", "--batch", "0"}, 2,
                   "--batch: 0, a number from 1 to 1000000000 expected");
  expect_complaint({"train", "digits", "--grace", "-1"}, 2, "-1, a number from 0 to 1000000 ");
  expect_complaint({"train", "digits", "--batch", "5000", "--builder", "PS"}, 2,
                   "Give --batch 1438 or less");
}

TEST(BadInput, WordsThatAVerbDoesNotKnow) {
  expect_complaint({"plan", "digits", "--bugdet", "3"}, 2,
                   "plan: there is no option --bugdet. Nearest: '--budget'");
  expect_complaint({"run", "--clustr", "local:2", "--", "true"}, 2, "no option --clustr. Nearest");
  expect_complaint({"plan", "digits", "--bugdet=3"}, 2, "no option --bugdet. Nearest: '--budget'");
  expect_complaint({"--versoin"}, 2, "there is no option --versoin. Nearest: '--version'");
  expect_complaint({"plan", "digits", "--text=x"}, 2, "--text: takes no value. Leave that out.");
  expect_complaint({"plan", "digits", "--seed", "99999999999999999999"}, 2,
                   "is too large a number");
  expect_complaint({"plan"}, 2, "graph is required. For example: ");
  expect_complaint({"plan", "digits", "more"}, 2, "'more' is more than it takes");
  expect_complaint({"plan", "digits", "--seed", "1", "--seed", "2"}, 2, "given 2 times. Keep one.");
  expect_complaint({"plan", "digits", "--seed"}, 2, "its value is missing");
  expect_complaint({"plan", "digits", "--encrypt", "of"}, 2,
                   "--encrypt: 'of', one of auto, on, off expected. Nearest: ");
}

// A folder of checkpoints is often called as the model.
TEST(BadInput, AFolderThatIsCalledAsAModel) {
  const Scratch scratch;
  fs::create_directory(scratch / "digits");
  std::vector<std::string> words = autodist({"plan", "digits", "--builder", "PS"});
  words.insert(words.begin(), {"/usr/bin/env", "-C", scratch / ""});
  Process process(words, scratch);
  EXPECT_EQ(process.wait(), 0) << process.err();
}

// What was measured in a folder counts there, and what is said of a batch is what is predicted.
TEST(BadInput, NothingIsTakenInSilence) {
  const Scratch scratch;
  std::ofstream(scratch / "local.calibration.yml") << "cores: 2";
  for (const char* verb : {"plan", "explain", "simulate"}) {
    std::vector<std::string> words =
        autodist({verb, "digits", "--cluster", "local:2", "--builder", "PS", "--batch", "3"});
    words.insert(words.begin(), {"/usr/bin/env", "-C", scratch / ""});
    Process process(words, scratch);
    EXPECT_EQ(process.wait(), 0);
    EXPECT_NE(process.out().find("\ncalibrated by local.calibration.yml\n\n"), std::string::npos)
        << process.out();
    EXPECT_EQ(process.err(), "autodist: --batch 3: predicted as 4 in 2 equal parts\n");
  }
}

TEST(BadInput, PlacesThatCannotBeWrittenTo) {
  expect_complaint({"export", "digits", "-o", "/proc/nope/d.pt"}, 3, "/proc/nope/d.pt");
  expect_complaint({"train", "digits", "--save", "/proc/nope"}, 6, "--save /proc/nope");
  expect_complaint({"train", "digits", "--log", "/no/such/log"}, 3, "there is no folder /no/such");
  expect_complaint({"train", "digits", "--write-strategy", "/no/such/plan"}, 3, "--write-strategy");
  const Scratch scratch;
  std::ofstream(scratch / "file") << "text";
  expect_complaint({"train", "digits", "--tensorboard", scratch / "file"}, 3, "a folder expected");
  expect_complaint({"train", "digits", "--save", ""}, 2, "--save: its value is empty");
  expect_complaint({"report", "digits", "-o", "/no/such/page"}, 3, "--output /no/such/page");
  expect_complaint({"simulate", "digits", "--trace", "/no/such/t"}, 3, "--trace /no/such/t");
  expect_complaint({"demo"}, 3, "Set TMPDIR", {"TMPDIR=/proc/nope"});
  expect_complaint({"demo", "--folder", "/proc/nope"}, 3, "--folder /proc/nope");
}

TEST(BadInput, NamesThatAreNotUtf8) {
  expect_complaint({"train", "digits\xff", "--json"}, 2, "is not UTF-8");
  expect_complaint({"inspect", "\xff.adg", "--json"}, 2, "is not UTF-8");
}

TEST(BadInput, AClusterThatIsAnotherMachine) {
  const Scratch scratch;
  std::ofstream(scratch / "c.yml") << "nodes:\n  - address: 203.0.113.7\n    slots: 2\n";
  std::ofstream(scratch / "one.yml") << "nodes:\n  - address: 203.0.113.7\n";
  for (const char* file : {"c.yml", "one.yml"}) {
    expect_complaint({"train", "digits", "--cluster", scratch / file}, 2,
                     "this machine is not the cluster's chief, 203.0.113.7");
  }
}

TEST(BadInput, AKeyThatNoClusterFileHas) {
  const Scratch scratch;
  std::ofstream(scratch / "c.yml") << "nodes:\n  - address: localhost\n    gpuss: [0]\n";
  expect_complaint({"train", "digits", "--cluster", scratch / "c.yml"}, 2, "gpuss");
}

// What libtorch this build has, and what machine this is, says which of three lines it is.
std::string why_no_gpu_is_here() {
  const Scratch scratch;
  Process version(autodist({"version", "--json"}), scratch);
  EXPECT_EQ(version.wait(), 0) << version.err();
  if (version.out().find("CUDA") == std::string::npos) return ") is built for CPUs. Build with";
  return fs::exists("/proc/driver/nvidia/version")
             ? "libtorch finds no GPU here, though there is a driver. Look at CUDA_VISIBLE_DEVICES"
             : "libtorch finds no GPU here: there is no driver of NVIDIA's";
}

TEST(BadInput, AGpuThatIsNotHere) {
  const Scratch scratch;
  std::ofstream(scratch / "c.yml") << "nodes:\n  - address: localhost\n    gpus: [0, 1]\n";
  const std::string why = why_no_gpu_is_here();
  for (const std::string& words :
       {std::string("rank 0: the cluster gives it GPU 0 of localhost, and "), why,
        std::string(", or train on CPUs: --devices cpu")}) {
    expect_complaint({"train", "digits", "--cluster", scratch / "c.yml"}, 3, words,
                     {"CUDA_VISIBLE_DEVICES="});
  }
}

TEST(BadInput, TruncatedAndForeignFiles) {
  const Scratch scratch;
  const std::string graph = slurp(fs::path(AUTODIST_SOURCE_DIR) / "data" / "graphs" / "digits.adg");
  std::ofstream(scratch / "half.adg") << graph.substr(0, graph.size() / 2);
  std::ofstream(scratch / "foreign.adg") << "PK\x03\x04 not a graph";
  expect_complaint({"inspect", scratch / "half.adg"}, 2, "half.adg");
  expect_complaint({"inspect", scratch / "foreign.adg"}, 2, "foreign.adg");
  std::ofstream(scratch / "s.strategy") << std::string("\x0a\xff\xff\xff\x0f garbage");
  expect_complaint({"train", "digits", "--strategy", scratch / "s.strategy"}, 2, "s.strategy");
}

// No library's own words, and in the end what to do.
TEST(BadInput, FilesOfAnotherKind) {
  const Scratch scratch;
  std::ofstream(scratch / "cut.json") << "{\"a\": 1";
  std::ofstream(scratch / "empty");
  std::ofstream(scratch / "bytes", std::ios::binary) << std::string("\0\1\2\xff", 4);
  const std::string cut = scratch / "cut.json";
  const std::vector<std::vector<std::string>> readers{
      {"report", "--late"},
      {"report", "digits", "-o", scratch / "page.html", "--predicted"},
      {"place"},
      {"plan", "digits", "--budget", "2", "--ranker"},
      {"plan", "digits", "--builder", "PS", "--calibration"},
      {"explain", "digits"},
      {"inspect"},
      {"plan"},
      {"plan", "digits", "--builder", "PS", "--cluster"}};
  for (const std::vector<std::string>& reader : readers) {
    for (const char* name : {"cut.json", "empty", "bytes", ""}) {
      std::vector<std::string> words = reader;
      words.push_back(scratch / name);
      const Complaint complaint = complaint_of(words);
      EXPECT_EQ(complaint.code, 2) << complaint.line;
      for (const char* never : {"json.exception", "please report"}) {
        EXPECT_EQ(complaint.line.find(never), std::string::npos) << complaint.line;
      }
    }
  }
  expect_complaint({"report", "--late", cut}, 2, "Write it again.");
  std::ofstream(scratch / "trace.json") << "{\"traceEvents\": []}";
  expect_complaint({"report", "--late", scratch / "trace.json"}, 2, "a trace without rows");
  expect_complaint({"inspect", scratch / "trace.json"}, 2, "`autodist report ");
  expect_complaint({"place", cut}, 2, "place --help` says what it reads");
  expect_complaint({"plan", "digits", "--budget", "2", "--ranker", cut}, 2, "dataset train FOLDER");
  expect_complaint({"explain", "digits", cut}, 2,
                   "A strategy expected, as `autodist plan -o FILE`");
  expect_complaint({"inspect", scratch / "empty"}, 2, "empty. Write it again, or name another.");
  expect_complaint({"compare", cut, cut}, 2, "Write it again.");
  expect_complaint({"ckpt", "list", cut}, 6, "is a file. Name the folder that");
  expect_complaint({"ckpt", "list", "/no/such"}, 6, "/no/such is not there. Name the folder");
  expect_complaint({"dataset", "stats", cut}, 2, "`autodist dataset record` makes one.");
  expect_complaint({"train", cut}, 2, "One of torch.jit.save or `autodist export` expected.");
  expect_complaint({"train", "digits", "--cluster", "local:1", "--builder", "PS", "--init", cut}, 6,
                   "safetensors.torch.save_file expected.");
}

TEST(BadInput, AStrategyForAnotherGraph) {
  const Scratch scratch;
  {
    const Scratch output;
    Process plan(
        autodist({"plan", "gpt-small", "--cluster", "local:1", "-o", scratch / "gpt.strategy"}),
        output);
    ASSERT_EQ(plan.wait(), 0) << plan.err();
  }
  expect_complaint(
      {"train", "digits", "--cluster", "local:1", "--strategy", scratch / "gpt.strategy"}, 2,
      "gpt.strategy");
}

void write_array(const fs::path& path, const std::string& type, const std::string& shape,
                 const std::string& bytes) {
  std::string head =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  head += std::string(63 - (head.size() + 10) % 64, ' ') + "\n";
  const auto size = static_cast<std::uint16_t>(head.size());
  std::ofstream file(path, std::ios::binary);
  file.write("\x93NUMPY\x01\x00", 8);
  file.write(reinterpret_cast<const char*>(&size), sizeof size);
  file << head << bytes;
}

// In the first batch, by which the model is captured, and in a later one.
TEST(BadInput, ALabelThatIsNoClass) {
  const Scratch scratch;
  const std::string module = scratch / "digits.pt";
  {
    const Scratch output;
    Process exported(autodist({"export", "digits", "-o", module}), output);
    ASSERT_EQ(exported.wait(), 0) << exported.err();
  }
  constexpr std::size_t kSamples = 64;
  const fs::path data = scratch / "data";
  fs::create_directory(data);
  write_array(data / "x0.npy", "<f4", "64, 1, 8, 8", std::string(kSamples * 64 * 4, '\0'));
  for (const std::size_t wrong : {std::size_t{0}, kSamples - 1}) {
    std::vector<std::int64_t> labels(kSamples, 3);
    labels[wrong] = 12;
    write_array(data / "x1.npy", "<i8", "64,",
                {reinterpret_cast<const char*>(labels.data()), kSamples * sizeof labels[0]});
    expect_complaint({"train", module, "--loss", "cross_entropy", "--data", data, "--cluster",
                      "local:1", "--steps", "8", "--batch", "16", "--json"},
                     2, "Target 12 is out of bounds");
  }
  // Of two ranks one has it in its rows; the other says what was said there. A line each.
  Process job(autodist({"train", module, "--loss", "cross_entropy", "--data", data, "--cluster",
                        "local:2", "--steps", "8", "--batch", "16", "--json"}),
              scratch);
  EXPECT_GT(job.wait(60s), 0) << job.err();
  EXPECT_EQ(lines_of(job.err()).size(), 2U) << job.err();
  EXPECT_NE(job.err().find("left: Target 12 is out of bounds."), std::string::npos) << job.err();
  EXPECT_TRUE(
      std::regex_search(job.err(), std::regex("train: step [0-3]: sample 63: libtorch refuses ")))
      << job.err();
}

TEST(BadInput, MoreRanksThanOpenFilesHold) {
  const Scratch scratch;
  std::vector<std::string> words = autodist({"train", "digits", "--cluster", "local:32"});
  words.insert(words.begin(), {"/usr/bin/prlimit", "--nofile=150:150"});
  Process process(words, scratch);
  EXPECT_EQ(process.wait(), 3) << process.err();
  const std::vector<std::string> lines = lines_of(process.err());
  ASSERT_EQ(lines.size(), 1U) << process.err();
  EXPECT_NE(lines.front().find("open files: each of 32 ranks has up to "), std::string::npos)
      << lines.front();
}

TEST(BadInput, ASilenceThatRanksKeepAnyway) {
  expect_complaint({"train", "digits", "--silence-timeout", "1"}, 2, "--silence-timeout");
}

TEST(BadInput, AnotherWordForEncryption) {
  expect_complaint({"train", "digits", "--encrypt", "yes"}, 2, "--encrypt");
  expect_complaint({"plan", "digits", "--encrypt", "yes"}, 2, "--encrypt");
}

// A port that somebody else holds.
TEST(BadInput, APortInUse) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(socket, 1), 0);
  socklen_t length = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  const std::string port = std::to_string(ntohs(address.sin_port));
  const Scratch scratch;
  std::ofstream(scratch / "key") << std::string(64, 'a') << "\n";
  fs::permissions(scratch / "key", fs::perms::owner_read | fs::perms::owner_write);
  expect_complaint({"train", "digits", "--cluster", "local:2"}, 3, port,
                   {"AUTODIST_RANK=0", "AUTODIST_SIZE=2", "AUTODIST_CHIEF=127.0.0.1:" + port,
                    "AUTODIST_KEY_FILE=" + (scratch / "key")});
  ::close(socket);
}

}  // namespace
}  // namespace autodist
