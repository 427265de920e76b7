// `autodist export`: a model with its trained values as a TorchScript file.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/output_file.h"
#include "autodist/app/this_process.h"
#include "autodist/app/torch/model_source.h"
#include "autodist/app/torch/torch_verbs.h"
#include "autodist/capture/export.h"
#include "autodist/job/torch/model_values.h"

namespace autodist::app {
namespace {

struct ExportArguments {
  ModelRequest model;
  std::string resume;
  std::string output;
};

int export_verb(const ExportArguments& arguments, Console& console) {
  expect_writable("--output", arguments.output);
  const ModelSource source = open_model(arguments.model, "");
  RealFileSystem files;
  if (!arguments.resume.empty()) job::read_into(files, source.step, arguments.resume, say_line);
  const capture::ExportedSignatures signatures =
      capture::export_torchscript(source.step, arguments.output);
  if (console.json) {
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(signatures.json);
    json["file"] = arguments.output;
    return console.answer(json);
  }
  console.out << fmt::format(
      "{}: {}train_step(batch) -> loss; {}\n", arguments.output,
      signatures.has_forward ? "forward(batch) -> outputs, " : "",
      signatures.any_batch ? "for any number of samples" : "for the example's number of samples");
  return 0;
}

}  // namespace

Action declare_export(CLI::App& verb) {
  auto arguments = std::make_shared<ExportArguments>();
  declare_model_options(verb, arguments->model);
  verb.add_option("--resume", arguments->resume,
                  "the newest checkpoint of this directory (default: the model's first values)");
  verb.add_option("-o,--output", arguments->output, "write the TorchScript file here")->required();
  verb.add_option("--batch", arguments->model.batch,
                  "samples of the example (default: the model's own)")
      ->check(in_range(std::int64_t{1}, kMostCount));
  return [arguments, &verb](Console& console) {
    check_model_options(verb, arguments->model);
    return export_verb(*arguments, console);
  };
}

}  // namespace autodist::app
