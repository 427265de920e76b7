#include "autodist/app/placement_page.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "autodist/program/trace.h"
#include "autodist/search/placement/link_simulator.h"
#include "autodist/search/placement/placeto_simulator.h"

namespace autodist::app {
namespace {

namespace placement = search::placement;

class PlacementTrace {
 public:
  PlacementTrace(const placement::TaskGraph& graph,
                 const std::vector<planning::NamedDevice>& devices,
                 const placement::PlaceRequest& request, const placement::PlaceResult& result)
      : graph_(graph),
        devices_(devices),
        request_(request),
        result_(result),
        unit_(graph.microseconds_per_unit * 1e-6) {}

  program::Trace trace() {
    if (request_.objective == placement::Objective::kMakespan) {
      step();
    } else {
      loads();
    }
    return program::merged({std::move(trace_)});
  }

 private:
  double cost(std::size_t task) const {
    const placement::Task& what = graph_.tasks[task];
    const placement::ListDevice& where = devices_[result_.placement[task]].figures;
    return (where.cpu && what.cpu_cost ? *what.cpu_cost : what.cost) / where.speed;
  }

  void add(program::Activity activity, std::size_t device, const std::string& name, double bytes,
           double start, double end) {
    program::TraceRow row;
    row.activity = activity;
    row.rank = program::Rank(device);
    row.stream = activity == program::Activity::kCompute ? program::StreamKind::kCompute
                                                         : program::StreamKind::kTransfer;
    row.name = name;
    row.bytes = Bytes(static_cast<std::int64_t>(bytes));
    row.start = Seconds(start * unit_);
    row.end = Seconds(end * unit_);
    trace_.rows.push_back(std::move(row));
  }

  void step() {
    const std::unique_ptr<placement::StepSimulator> simulator = simulated();
    const placement::Timeline& times = simulator->timeline();
    // The last input of a task, where it comes from another device: by parent and device once.
    std::map<std::pair<std::uint32_t, std::size_t>, double> arrivals;
    for (std::size_t i = 0; i < graph_.tasks.size(); ++i) {
      const std::size_t device = result_.placement[i];
      add(program::Activity::kCompute, device, graph_.tasks[i].name, 0, times.start[i],
          times.start[i] + cost(i));
      const std::uint32_t parent = times.last_parent[i];
      if (result_.placement[parent] == device) continue;
      double& at = arrivals[{parent, device}];
      at = std::max(at, times.ready[i]);
    }
    for (const auto& [way, at] : arrivals) {
      const auto& [parent, device] = way;
      double bytes = 0;
      for (const placement::TaskOutput& output : graph_.tasks[parent].outputs)
        bytes += output.bytes;
      add(program::Activity::kWire, device, "output of " + graph_.tasks[parent].name, bytes,
          std::min(at, times.start[parent] + cost(parent)), at);
    }
  }

  std::unique_ptr<placement::StepSimulator> simulated() const {
    std::unique_ptr<placement::StepSimulator> simulator;
    if (request_.placeto) {
      simulator = std::make_unique<placement::PlacetoSimulator>(graph_, devices_.size());
    } else {
      simulator = std::make_unique<placement::LinkSimulator>(graph_, request_.devices);
    }
    simulator->run(result_.placement);
    return simulator;
  }

  void loads() {
    std::vector<double> at(devices_.size(), 0);
    for (const std::uint32_t i : placement::topological_order(placement::neighbours_of(graph_))) {
      double& start = at[result_.placement[i]];
      add(program::Activity::kCompute, result_.placement[i], graph_.tasks[i].name, 0, start,
          start + cost(i));
      start += cost(i);
    }
    for (std::size_t device = 0; device < devices_.size(); ++device) {
      const placement::DeviceLoad& row = result_.devices[device];
      if (row.transfers <= 0) continue;
      add(program::Activity::kWire, device, "all transfers", row.bytes_in + row.bytes_out,
          at[device], at[device] + row.transfers);
    }
  }

  const placement::TaskGraph& graph_;
  const std::vector<planning::NamedDevice>& devices_;
  const placement::PlaceRequest& request_;
  const placement::PlaceResult& result_;
  double unit_;  // seconds
  program::Trace trace_;
};

std::string about_timeline(const placement::PlaceRequest& request) {
  switch (request.objective) {
    case placement::Objective::kMakespan:
      return request.placeto
                 ? "One step as Placeto's simulator runs it; wire: the output that a task waited "
                   "for last, from its end at the other device to its arrival."
                 : "One step, simulated with links that contend; wire: the output that a task "
                   "waited for last, from its end at the other device to its arrival.";
    case placement::Objective::kThroughput:
      return "The load of each device in a step: its tasks in topological order, one after the "
             "other, then its transfers. Steps are pipelined, so the longest bar is the time of "
             "one.";
    case placement::Objective::kProcessors:
      return "The tasks of each processor one after the other, without the pauses of the schedule.";
  }
  return "";
}

Bytes bytes_of(double bytes) {
  return Bytes(std::isfinite(bytes) ? static_cast<std::int64_t>(bytes) : 0);
}

report::PagePlacement section_of(const placement::TaskGraph& graph,
                                 const std::vector<planning::NamedDevice>& devices,
                                 const placement::PlaceRequest& request,
                                 const placement::PlaceResult& result) {
  const double unit = graph.microseconds_per_unit * 1e-6;
  report::PagePlacement section;
  section.graph = graph.name;
  section.objective = planning::name_of(request.objective);
  section.value = Seconds(result.value * unit);
  section.bound = Seconds(result.bound * unit);
  section.found_by = result.found_by;
  section.evaluations = result.evaluations;
  section.about_timeline = about_timeline(request);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const placement::DeviceLoad& row = result.devices[i];
    section.devices.push_back({devices[i].name, row.tasks, Seconds(row.work * unit),
                               Seconds(row.transfers * unit), bytes_of(row.memory),
                               bytes_of(devices[i].figures.memory), bytes_of(row.bytes_in),
                               bytes_of(row.bytes_out)});
  }
  return section;
}

}  // namespace

report::PageInputs placement_page(const placement::TaskGraph& graph,
                                  const std::vector<planning::NamedDevice>& devices,
                                  const placement::PlaceRequest& request,
                                  const placement::PlaceResult& result) {
  report::PageInputs page;
  page.title = fmt::format("{} placed on {} devices", graph.name, devices.size());
  page.chosen_by = "placer " + request.placer;
  page.placement = section_of(graph, devices, request, result);
  report::PageTrace trace;
  trace.title = graph.name;
  trace.chrome_json =
      program::to_chrome_json(PlacementTrace(graph, devices, request, result).trace());
  trace.predicted = true;
  for (const planning::NamedDevice& device : devices) trace.places.push_back(device.name);
  page.traces.push_back(std::move(trace));
  if (request.objective == placement::Objective::kProcessors) {
    page.remarks.emplace_back("The graph's unit of time is shown as 1 µs.");
  }
  return page;
}

}  // namespace autodist::app
