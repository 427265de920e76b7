// learned-placer: a placement by a policy that is trained on the spot (graph network, REINFORCE).
//
// A program of its own, for it needs libtorch, which placing does not: it reads the graphs that
// `autodist place` reads and writes what that writes (docs/formats/placement.md).

#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "autodist/app/output_file.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/planning/placing.h"
#include "tools/learned_placer/reinforce.h"

namespace autodist::learned {
namespace {

namespace placement = search::placement;

struct Arguments {
  std::string graph;
  std::size_t devices = 3;
  std::string order = "topo";
  std::string network = "placeto";
  std::uint32_t episodes = 50;
  std::uint64_t seed = 0;
  std::string init;
  std::string save;
  std::string output;
  bool untrained = false;
  bool json = false;
  bool quiet = false;
};

int run(const Arguments& arguments) {
  torch::set_num_threads(1);  // sums in one order
  torch::manual_seed(arguments.seed);
  app::expect_writable("--save", arguments.save);  // before the training
  app::expect_writable("--output", arguments.output);
  const placement::TaskGraph graph = planning::load_task_graph(arguments.graph);
  const std::vector<planning::NamedDevice> devices =
      planning::devices_by_count(arguments.devices, graph);
  Policy policy(parse_network(arguments.network), static_cast<std::int64_t>(arguments.devices));
  if (!arguments.init.empty()) {
    try {
      torch::load(policy, arguments.init);
    } catch (const c10::Error&) {
      fail(ErrorCode::kUsage,
           "{}: no policy of network '{}' on {} devices. Give the --network and --devices that it "
           "was saved with.",
           arguments.init, arguments.network, arguments.devices);
    }
  }
  TrainingOptions options;
  options.devices = arguments.devices;
  options.order = placement::parse_order(arguments.order);
  options.episodes = arguments.episodes;
  options.seed = arguments.seed;
  options.learns = !arguments.untrained;
  const Trained trained = train(graph, policy, options, [&](std::uint32_t episode, double best) {
    if (arguments.quiet) return;
    std::cerr << fmt::format("episode {:>3} of {}: best {:.3f}\n", episode + 1, arguments.episodes,
                             best);
  });
  if (!arguments.save.empty()) {
    OutputFile file(arguments.save);
    torch::save(policy, [&file](const void* data, std::size_t size) {
      file.write(data, size);
      return size;
    });
    file.commit();
  }
  placement::PlaceRequest request;
  for (const planning::NamedDevice& device : devices) request.devices.push_back(device.figures);
  request.placer = fmt::format("learned:{}", arguments.network);
  request.order = options.order;
  request.seed = arguments.seed;
  placement::PlaceResult result = placement::described(graph, request, trained.placement);
  result.found_by = fmt::format("a {} policy along {}", arguments.network, arguments.order);
  result.evaluations = trained.simulations;
  if (!arguments.output.empty()) {
    write_file_atomically(arguments.output,
                          planning::placement_json(graph, devices, request, result, true) + "\n");
  }
  if (arguments.json) {
    std::cout << planning::placement_json(graph, devices, request, result, false) << "\n";
  } else {
    std::cout << fmt::format("{} on {} devices by {}\n\n", graph.name, devices.size(),
                             request.placer)
              << planning::placement_table(graph, devices, request, result);
  }
  return 0;
}

int parse_and_run(int argc, char** argv) {
  Arguments arguments;
  CLI::App program(
      "Places a task graph by a learned policy (Placeto's protocol). Exit codes are autodist's.",
      "learned-placer");
  program.add_option("graph", arguments.graph, "as of autodist place")->required();
  program.add_option("--devices", arguments.devices, "how many, all alike (default 3)")
      ->check(CLI::Range(2, 64));
  program.add_option("--order", arguments.order,
                     "alpha, topo (default), reversed_topo, lexico_topo, dfs_preorder, "
                     "dfs_postorder, bfs or random");
  program.add_option("--network", arguments.network, "placeto (default), sage or pgnn");
  program.add_option("--episodes", arguments.episodes, "visits to every task (default 50)")
      ->check(CLI::Range(1, 1'000'000));
  program.add_option("--seed", arguments.seed, "of weights and draws (default 0)");
  program.add_flag("--untrained", arguments.untrained,
                   "leave the policy as it was drawn or loaded: what luck alone finds");
  program.add_option("--init", arguments.init, "start from a policy that --save wrote");
  program.add_option("--save", arguments.save, "write the trained policy here");
  program.add_option("-o,--output", arguments.output, "write the placement here");
  program.add_flag("--json", arguments.json, "print one JSON object");
  program.add_flag("--quiet", arguments.quiet, "no line per episode");
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = program.exit(error);
    return code == 0 ? 0 : static_cast<int>(ErrorCode::kUsage);
  }
  return run(arguments);
}

}  // namespace
}  // namespace autodist::learned

int main(int argc, char** argv) {
  try {
    return autodist::learned::parse_and_run(argc, argv);
  } catch (const autodist::Error& error) {
    std::cerr << "learned-placer: " << error.what() << "\n";
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << "learned-placer: " << error.what() << "\n";
    return 1;
  }
}
