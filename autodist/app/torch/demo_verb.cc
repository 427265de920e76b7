// `autodist demo`: the whole story on real data in half a minute. Every step is a command that the
// reader may type; the demo only checks what comes out of them.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/output_file.h"
#include "autodist/app/this_process.h"
#include "autodist/app/torch/torch_verbs.h"
#include "autodist/base/error.h"
#include "autodist/exec/checkpoint.h"
#include "autodist/job/subprocess.h"

namespace autodist::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kLeastAccuracy = 0.97;
constexpr double kParameterTolerance = 1e-5;  // relative, after ten steps
constexpr double kAccuracyTolerance = 0.01;

struct DemoArguments {
  std::int64_t steps = 600;
  std::int64_t batch = 64;
  std::string folder;
  std::string report;  // empty: in the folder
};

// A way to train: how the ranks and the strategy are named on the command line.
struct Training {
  std::string title;
  std::string folder;
  std::vector<std::string> arguments;
  std::vector<std::string> of_the_rest = {};  // after the first ten steps
};

class Demo {
 public:
  Demo(const DemoArguments& arguments, Console& console)
      : arguments_(arguments),
        console_(console),
        program_(fs::read_symlink("/proc/self/exe").parent_path() / "autodist") {}

  int run();

 private:
  // Runs `autodist <words>`, after showing it, and returns what it printed.
  std::string autodist(std::vector<std::string> words);
  Json autodist_json(std::vector<std::string> words);
  double train(const Training& training);
  void compare_first_steps(const Training& reference, const Training& training);
  void say_what_next(const std::string& graph);
  [[nodiscard]] std::string in_folder(const std::string& name) const {
    return (fs::path(arguments_.folder) / name).string();
  }
  void say(const std::string& text) {
    if (!console_.json) console_.out << text << std::flush;
  }
  // To be copied.
  void show(const std::string& commands) {
    if (!console_.json) console_.as_it_is() << commands << std::flush;
  }

  const DemoArguments& arguments_;
  Console& console_;
  std::string program_;
  Json result_;
};

std::string Demo::autodist(std::vector<std::string> words) {
  show(fmt::format("\n$ autodist {}\n", fmt::join(words, " ")));
  words.insert(words.begin(), program_);
  const job::Finished finished = job::run_to_end(words);
  if (finished.exit_code != 0) {
    fail(static_cast<ErrorCode>(finished.exit_code),
         "demo: `{}` failed with exit code {}. Its lines above say why.", fmt::join(words, " "),
         finished.exit_code);
  }
  return finished.output;
}

Json Demo::autodist_json(std::vector<std::string> words) {
  words.push_back("--json");
  return Json::parse(autodist(std::move(words)));
}

// Ten steps and a checkpoint, then on from there to the end. Returns the held-out accuracy.
double Demo::train(const Training& training) {
  const std::string folder = in_folder(training.folder);
  std::vector<std::string> words{"train", "digits", "--batch", std::to_string(arguments_.batch)};
  words.insert(words.end(), training.arguments.begin(), training.arguments.end());

  std::vector<std::string> first = words;
  first.insert(first.end(), {"--steps", "10", "--save", folder});
  autodist_json(first);

  std::vector<std::string> rest = words;
  rest.insert(rest.end(),
              {"--steps", std::to_string(arguments_.steps), "--resume", folder, "--save", folder});
  rest.insert(rest.end(), training.of_the_rest.begin(), training.of_the_rest.end());
  const Json done = autodist_json(rest);
  const double accuracy = done.at("held_out_accuracy").get<double>();
  const Json& rate = done.at("average_samples_per_second");  // null after few steps
  say(fmt::format("{}: loss {:.5f}, {}accuracy on the held-out fifth {:.2f} %\n", training.title,
                  done.at("loss").get<double>(),
                  rate.is_null()
                      ? ""
                      : fmt::format("{:.0f} samples/s in batches of {}, {}; ", rate.get<double>(),
                                    arguments_.batch, done.at("precision").get<std::string>()),
                  100 * accuracy));
  result_["ways"].push_back({{"name", training.title},
                             {"held_out_accuracy", accuracy},
                             {"average_samples_per_second", rate},
                             {"batch_samples", done.at("batch_samples")},
                             {"precision", done.at("precision")}});
  return accuracy;
}

// The largest relative difference between the parameters of two checkpoints.
double largest_difference(const exec::Checkpoint& a, const exec::Checkpoint& b) {
  double largest = 0;
  for (const exec::TensorData& tensor : a.model) {
    const auto other = std::find_if(b.model.begin(), b.model.end(), [&](const exec::TensorData& t) {
      return t.name == tensor.name;
    });
    if (other == b.model.end() || other->bytes.size() != tensor.bytes.size()) {
      fail(ErrorCode::kCheckpoint,
           "demo: '{}' differs in shape between two runs. Please report it.", tensor.name);
    }
    if (tensor.dtype != DType::kFloat32) continue;
    double scale = 0;
    double difference = 0;
    for (std::size_t at = 0; at < tensor.bytes.size(); at += sizeof(float)) {
      float x = 0;
      float y = 0;
      std::memcpy(&x, tensor.bytes.data() + at, sizeof x);
      std::memcpy(&y, other->bytes.data() + at, sizeof y);
      scale = std::max(scale, std::abs(static_cast<double>(x)));
      difference = std::max(difference, std::abs(static_cast<double>(x) - static_cast<double>(y)));
    }
    if (scale > 0) largest = std::max(largest, difference / scale);
  }
  return largest;
}

void Demo::compare_first_steps(const Training& reference, const Training& training) {
  RealFileSystem files;
  const auto at_ten = [&](const Training& which) {
    return exec::read_checkpoint(files, in_folder(which.folder + "/step-10"));
  };
  const double difference = largest_difference(at_ten(reference), at_ten(training));
  say(
      fmt::format("after ten steps the parameters differ from the single process's by {:.1e} "
                  "(relative; at most {:.0e} allowed)\n",
                  difference, kParameterTolerance));
  result_["ways"].back()["difference_after_10_steps"] = difference;
  if (!(difference <= kParameterTolerance)) {
    fail(ErrorCode::kUsage,
         "demo: {} differs from the single process by {:.1e} after ten steps. Please report it.",
         training.title, difference);
  }
}

void Demo::say_what_next(const std::string& graph) {
  const std::string model = in_folder("all_reduce");
  say(
      fmt::format("\nAll equal. What it wrote is in {}; the report of the last training opens in "
                  "any browser:\n",
                  arguments_.folder));
  show(fmt::format(
      "\n  {}\n\n"
      "Try next:\n\n"
      "  autodist plan {} --cluster local:4              # search a strategy\n"
      "  autodist train digits --resume {} --steps {} --report more.html\n"
      "  autodist plan bert-large --cluster local:8 --builder PartitionedPS --report bert.html\n"
      "  autodist doctor                                 # what this machine can do\n"
      "\nYour own model: docs/getting-started.md, examples/own_model.cc, examples/own_model.py.\n",
      arguments_.report, graph, model, arguments_.steps + 200));
}

int Demo::run() {
  result_["ways"] = Json::array();
  const Training alone{"one process", "alone", {"--cluster", "local:1"}};
  const Training ps{"parameter server", "ps", {"--cluster", "local:2", "--builder", "PS"}};
  const Training all_reduce{"all-reduce",
                            "all_reduce",
                            {"--cluster", "local:2", "--builder", "AllReduce"},
                            {"--report", arguments_.report}};
  const std::string graph = in_folder("digits.adg");

  say("AutoDist on 1,797 real images of handwritten digits: capture a training step, plan it for "
      "two\n"
      "processes, train it under two strategies, and compare with one process.\n");
  autodist({"capture", "digits", "-o", graph, "--batch", std::to_string(arguments_.batch / 2)});
  say(autodist({"plan", graph, "--cluster", "local:2", "--builder", "AllReduce"}));

  const double reference = train(alone);
  for (const Training& training : {ps, all_reduce}) {
    const double accuracy = train(training);
    compare_first_steps(alone, training);
    if (accuracy < kLeastAccuracy || std::abs(accuracy - reference) > kAccuracyTolerance) {
      fail(ErrorCode::kUsage,
           "demo: {} reached {:.2f} % and the single process {:.2f} %; at least {:.0f} % and at "
           "most {:.0f} point apart expected. Give it more --steps (600).",
           training.title, 100 * accuracy, 100 * reference, 100 * kLeastAccuracy,
           100 * kAccuracyTolerance);
    }
  }

  say("\nThe checkpoint of the two all-reduce processes, loaded by one:\n");
  const Json loaded = autodist_json({"train", "digits", "--cluster", "local:1", "--steps", "0",
                                     "--resume", in_folder(all_reduce.folder)});
  const double accuracy = loaded.at("held_out_accuracy").get<double>();
  say(fmt::format("accuracy on the held-out fifth {:.2f} %\n", 100 * accuracy));
  result_["loaded_accuracy"] = accuracy;
  result_["report"] = arguments_.report;
  if (accuracy != result_["ways"].back()["held_out_accuracy"].get<double>()) {
    fail(ErrorCode::kCheckpoint,
         "demo: the loaded checkpoint does not reach the same accuracy. Please report it.");
  }
  if (console_.json) return console_.answer(result_);
  say_what_next(graph);
  return 0;
}

}  // namespace

Action declare_demo(CLI::App& verb) {
  auto arguments = std::make_shared<DemoArguments>();
  verb.add_option("--steps", arguments->steps, "training steps")->check(in_range(20, 100'000));
  verb.add_option("--batch", arguments->batch, "samples per step, both processes together")
      ->check(in_range(2, 1024));
  verb.add_option("--folder", arguments->folder,
                  "where to write (default: a new temporary folder)");
  verb.add_option("--report", arguments->report,
                  "the page for a browser (default: report.html in the folder)");
  return [arguments](Console& console) {
    if (arguments->folder.empty()) {
      std::error_code error;
      std::string pattern = (fs::temp_directory_path(error) / "autodist-demo-XXXXXX").string();
      if (error || ::mkdtemp(pattern.data()) == nullptr) {
        fail(ErrorCode::kEnvironment,
             "demo: no temporary folder can be made: {} ({}). Set TMPDIR to a folder that can be "
             "written to, or give --folder.",
             error ? error.message() : std::strerror(errno),
             process_environment()("TMPDIR").value_or("/tmp"));
      }
      arguments->folder = pattern;
    }
    std::error_code error;
    fs::create_directories(arguments->folder, error);
    if (error) {
      fail(ErrorCode::kEnvironment, "demo: --folder {}: {}. Name another.", arguments->folder,
           error.message());
    }
    if (arguments->report.empty()) {
      arguments->report = (fs::path(arguments->folder) / "report.html").string();
    }
    expect_writable("--report", arguments->report);
    return Demo(*arguments, console).run();
  };
}

}  // namespace autodist::app
