#include "autodist/search/placement/place.h"

#include <algorithm>
#include <memory>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/search/placement/ideal_dp.h"
#include "autodist/search/placement/link_simulator.h"
#include "autodist/search/placement/makespan_bound.h"
#include "autodist/search/placement/makespan_search.h"
#include "autodist/search/placement/multilevel.h"
#include "autodist/search/placement/placeto_simulator.h"
#include "autodist/search/placement/processors.h"
#include "autodist/search/placement/throughput_search.h"

namespace autodist::search::placement {
namespace {

// What a second of budget buys.
constexpr double kMovesPerSecond = 1.2e6;
constexpr double kSimulatedTasksPerSecond = 0.75e6;
constexpr double kSchedulesPerSecond = 4e4;
constexpr double kNodesPerSecond = 4e5;
constexpr std::size_t kMostIdeals = 20'000;
constexpr std::size_t kVisits = 20;

std::uint64_t bought(const PlaceRequest& request, double per_second) {
  if (request.evaluations) return *request.evaluations;
  return static_cast<std::uint64_t>(std::max(1.0, request.budget.value * per_second));
}

std::function<bool()> stop_at_budget(const PlaceRequest& request, const Clock& clock) {
  const Seconds until = clock.now() + request.budget;
  return [until, &clock] { return clock.now() >= until; };
}

bool has_placer(Objective objective, const std::string& name) {
  const std::vector<std::string> names = placer_names(objective);
  return std::find(names.begin(), names.end(), name) != names.end();
}

void check_placer(const PlaceRequest& request) {
  const std::string& name = request.placer;
  if (has_placer(request.objective, name)) return;
  const std::vector<std::string> names = placer_names(request.objective);
  std::string hint = nearest_hint(name, names);
  if (has_placer(Objective::kMakespan, name)) hint = ". It is of --objective makespan.";
  if (has_placer(Objective::kThroughput, name)) hint = ". It is of --objective throughput.";
  if (has_placer(Objective::kProcessors, name)) hint = ". It is of graphs without communication.";
  fail(ErrorCode::kUsage, "--placer: unknown '{}' for this objective, one of {} expected{}", name,
       fmt::join(names, ", "), hint);
}

std::vector<ThroughputDevice> throughput_devices(const std::vector<ListDevice>& devices) {
  std::vector<ThroughputDevice> result;
  const double rate = devices.front().bytes_per_unit;
  for (const ListDevice& device : devices) {
    result.push_back({device.cpu, device.speed, device.cpu ? 0 : rate / device.bytes_per_unit,
                      device.cpu ? kNotSupported : device.memory});
  }
  return result;
}

PlaceResult place_for_throughput(const TaskGraph& graph, const PlaceRequest& request,
                                 const Clock& clock) {
  const double rate = request.devices.front().bytes_per_unit;
  const ThroughputProblem problem(graph, throughput_devices(request.devices), rate);
  ThroughputSearchOptions options;
  options.moves = bought(request, kMovesPerSecond);
  options.seed = request.seed;
  options.threads = request.threads;
  options.stop = stop_at_budget(request, clock);
  ThroughputAnswer answer;
  if (request.placer == "single") {
    answer = place_on_one(problem);
  } else if (request.placer == "linear") {
    answer = place_linearly(problem, graph, request.order, request.seed);
  } else if (request.placer == "descent") {
    answer = descend_along(problem, graph, request.order, request.seed);
  } else if (request.placer == "ideals") {
    auto ideals = cut_by_ideals(problem, graph, kMostIdeals);
    if (ideals) answer = judged(problem, std::move(*ideals), request.placer);
  } else if (request.placer == "multilevel") {
    answer = judged(problem, place_multilevel(problem, request.seed), request.placer);
  } else if (request.placer == "anneal") {
    answer = anneal_in_lanes(problem, options);
  } else {
    answer = throughput_portfolio(problem, graph, options);
  }
  PlaceResult result;
  result.bound = throughput_bound(problem);
  result.found_by = answer.found_by;
  result.evaluations = answer.moves;
  result.stopped_by_clock = answer.stopped;
  if (answer.largest_load == kNotSupported) return result;
  result.placement = problem.expand(answer.assignment);
  result.devices = loads_of(graph, result.placement, problem.devices, rate);
  for (const DeviceLoad& load : result.devices) result.value = std::max(result.value, load.total());
  return result;
}

PlaceResult place_on_processors(const TaskGraph& graph, const PlaceRequest& request,
                                const Clock& clock) {
  const ProcessorProblem problem(graph, request.devices.size());
  ProcessorSearchOptions options;
  options.seed = request.seed;
  options.schedules = bought(request, kSchedulesPerSecond);
  options.nodes = static_cast<std::uint64_t>(request.budget.value * kNodesPerSecond) + 1;
  bool stopped = false;
  const std::function<bool()> over = stop_at_budget(request, clock);
  options.stop = [&] {
    stopped = stopped || over();
    return stopped;
  };
  const ProcessorAnswer answer = request.placer == "list"
                                     ? schedule_by_levels(problem)
                                     : schedule_on_processors(problem, options);
  PlaceResult result;
  result.value = answer.length;
  result.bound = answer.bound;
  result.found_by = answer.found_by;
  result.stopped_by_clock = stopped;
  const std::vector<DeviceIndex> on = processors_of(problem, answer.starts);
  result.placement.resize(graph.tasks.size());
  result.devices.resize(request.devices.size());
  for (std::size_t i = 0; i < on.size(); ++i) {
    result.placement[problem.task[i]] = on[i];
    ++result.devices[on[i]].tasks;
    result.devices[on[i]].work += problem.time[i];
  }
  return result;
}

MakespanAnswer search_makespan(const MakespanProblem& problem, const PlaceRequest& request,
                               const MakespanOptions& options) {
  if (request.placer == "single") return place_on_one(problem);
  if (request.placer == "m-topo") return place_by_rule(problem, ListRule::kTopo);
  if (request.placer == "heft") return place_by_rule(problem, ListRule::kHeft);
  if (request.placer == "etf") return place_by_rule(problem, ListRule::kEtf);
  if (request.placer == "m-sct") return place_by_rule(problem, ListRule::kSct);
  if (request.placer == "descent") {
    return coordinate_descent(problem, request.order, kVisits, options);
  }
  if (request.placer == "genetic") return evolve_keys(problem, options);
  if (request.placer == "anneal") return anneal_step(problem, options);
  return makespan_portfolio(problem, options);
}

std::unique_ptr<StepSimulator> simulator_of(const TaskGraph& graph, const PlaceRequest& request) {
  if (request.placeto) return std::make_unique<PlacetoSimulator>(graph, request.devices.size());
  return std::make_unique<LinkSimulator>(graph, request.devices);
}

PlaceResult place_for_makespan(const TaskGraph& graph, const PlaceRequest& request,
                               const Clock& clock) {
  MakespanProblem problem;
  problem.graph = &graph;
  problem.devices = request.devices;
  problem.simulator = [&graph, &request] { return simulator_of(graph, request); };
  MakespanOptions options;
  options.seed = request.seed;
  options.simulations =
      bought(request, kSimulatedTasksPerSecond / static_cast<double>(graph.tasks.size()));
  // A budget buys as much on every number of devices that the portfolio goes through.
  if (request.placer == "portfolio" && !request.evaluations) {
    options.simulations *= portfolio_stages(request.devices.size());
  }
  options.stop = stop_at_budget(request, clock);
  const MakespanAnswer answer = search_makespan(problem, request, options);
  PlaceResult result;
  if (answer.time == kNotSupported) {
    result.bound = makespan_bound(graph, request.devices);
  } else {
    result = described(graph, request, answer.placement);
  }
  result.found_by = answer.found_by;
  result.evaluations = answer.simulations;
  result.stopped_by_clock = answer.stopped;
  return result;
}

}  // namespace

PlaceResult described(const TaskGraph& graph, const PlaceRequest& request,
                      const Placement& placement) {
  PlaceResult result;
  result.bound = makespan_bound(graph, request.devices);
  result.placement = placement;
  result.value = simulator_of(graph, request)->run(placement);
  result.devices = loads_of(graph, placement, throughput_devices(request.devices),
                            request.devices.front().bytes_per_unit);
  if (!request.placeto) return result;
  PlacetoSimulator simulator(graph, request.devices.size());
  simulator.run(placement);
  const std::vector<std::int64_t> peaks = simulator.peak_bytes(placement);
  for (std::size_t d = 0; d < peaks.size(); ++d) {
    result.devices[d].memory = static_cast<double>(peaks[d]);
  }
  return result;
}

std::vector<std::string> placer_names(Objective objective) {
  switch (objective) {
    case Objective::kMakespan:
      return {"portfolio", "single", "m-topo",  "heft",   "etf",
              "m-sct",     "anneal", "descent", "genetic"};
    case Objective::kThroughput:
      return {"portfolio", "single", "linear", "ideals", "descent", "multilevel", "anneal"};
    case Objective::kProcessors:
      return {"portfolio", "list"};
  }
  return {};
}

PlaceResult place(const TaskGraph& graph, const PlaceRequest& request, const Clock& clock) {
  if (request.devices.empty()) {
    fail(ErrorCode::kUsage, "{}: no devices to place on. Use --devices or --cluster.", graph.name);
  }
  check_placer(request);
  const auto answer = [&] {
    switch (request.objective) {
      case Objective::kThroughput:
        return place_for_throughput(graph, request, clock);
      case Objective::kProcessors:
        return place_on_processors(graph, request, clock);
      case Objective::kMakespan:
        break;
    }
    return place_for_makespan(graph, request, clock);
  };
  PlaceResult result = answer();
  AD_CHECK(result.placement.empty() || result.value >= result.bound * (1 - 1e-6))
      << "a placement below its bound: " << result.value << " < " << result.bound;
  return result;
}

}  // namespace autodist::search::placement
