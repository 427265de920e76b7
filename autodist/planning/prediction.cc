#include "autodist/planning/prediction.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "autodist/ir/text.h"
#include "autodist/report/alike_rows.h"
#include "autodist/report/fitted_table.h"
#include "autodist/report/plan.h"

namespace autodist::planning {
namespace {

std::string share(Seconds part, Seconds of) {
  return of > Seconds{} ? fmt::format("{:.1f} %", 100 * (part / of)) : "-";
}

// "1.08 times": how far above a bound.
std::string above(Seconds step, Seconds bound) {
  return bound > Seconds{} ? fmt::format("{:.3f} times", step / bound) : "-";
}

std::string memory_lines(const sim::Simulation& simulation, const program::Program& program) {
  std::string text;
  for (std::size_t rank = 0; rank < simulation.memory.size(); ++rank) {
    const sim::MemoryUse& use = simulation.memory[rank];
    if (use.fits()) continue;
    text += fmt::format(
        "does not fit: rank {} ({}) needs {}, has {}: {} too much. Use a smaller batch, or "
        "devices with more.\n",
        rank, program.ranks[rank].device, to_string(use.device()), to_string(use.capacity),
        to_string(use.missing()));
  }
  return text;
}

std::string memory_summary(const sim::Simulation& simulation) {
  if (simulation.memory.empty()) return "";
  const std::size_t rank = sim::fullest_rank(simulation.memory);
  const sim::MemoryUse& use = simulation.memory[rank];
  const std::string overhead =
      use.on_device ? fmt::format("context and allocator {}, ", to_string(use.overhead)) : "";
  return fmt::format(
      "memory         {} at rank {}: parameters {}, gradients {}, activations {}, optimizer {}, "
      "{}communication {}{}\n",
      to_string(use.device()), rank, to_string(use.parameters), to_string(use.gradients),
      to_string(use.activations), to_string(use.optimizer), overhead, to_string(use.communication),
      use.on_device ? " (in the host's memory)" : "");
}

// Samples per step by rank, 0 of one that only serves; nothing where all have as many.
std::vector<std::int64_t> samples_by_rank(const program::Program& program,
                                          const sim::CostModel& costs) {
  std::vector<std::int64_t> samples;
  if (program.batch_shares.empty()) return samples;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    samples.push_back(program.computes(program::Rank(r)) ? costs.samples_of(program::Rank(r)) : 0);
  }
  return samples;
}

// "batch  52 samples at 2 ranks, 12 at 1"
std::string batch_line(const program::Program& program, const sim::CostModel& costs) {
  std::map<std::int64_t, int, std::greater<>> ranks;
  for (const std::int64_t samples : samples_by_rank(program, costs)) ++ranks[samples];
  ranks.erase(0);
  std::vector<std::string> parts;
  for (const auto& [samples, count] : ranks) {
    const bool first = parts.empty();
    parts.push_back(fmt::format("{}{} at {}{}", samples, first ? " samples" : "", count,
                                !first       ? ""
                                : count == 1 ? " rank"
                                             : " ranks"));
  }
  return parts.empty() ? "" : fmt::format("batch          {}\n", fmt::join(parts, ", "));
}

std::string precision_of(const program::Program& program, const sim::CostModel& costs) {
  return costs.precision == sim::Precision::kAsCaptured ? ir::precision_of(*program.graph)
                                                        : name_of(costs.precision);
}

std::string header(const sim::Simulation& simulation, const program::Program& program,
                   const sim::CostModel& costs) {
  const sim::Bounds& bounds = simulation.bounds;
  std::string text = memory_lines(simulation, program);
  text += fmt::format("step           {}, {:.1f} samples/s in batches of {}{}\n",
                      to_string(simulation.step), samples_per_second(simulation, program, costs),
                      batch_of_step(program, costs),
                      simulation.settled || !program.lag() ? "" : " (steps vary)");
  text += fmt::format("plan's bound   {}: {}; the step is {}\n", to_string(bounds.plan),
                      sim::bound_name(bounds), above(simulation.step, bounds.plan));
  text += fmt::format("problem's      {}; the step is {}\n", to_string(bounds.problem),
                      above(simulation.step, bounds.problem));
  return text + batch_line(program, costs) + memory_summary(simulation);
}

std::string uncalibrated(const sim::CostModel& costs) {
  std::string text;
  for (const std::string& line : costs.uncalibrated) {
    text += fmt::format("uncalibrated:  {}\n", line);
  }
  return text;
}

std::string more(std::size_t rows) {
  return rows == 0 ? "" : fmt::format("  … and {} more (--all)\n", rows);
}

std::string nodes_table(const sim::Simulation& simulation, std::size_t most, std::size_t columns) {
  const auto percent = [](double part) { return fmt::format("{:.1f} %", 100 * part); };
  report::AlikeRows alike(most);
  for (const sim::NodeUse& use : simulation.nodes) {
    alike.add({use.node, to_string(use.sent), to_string(use.received), percent(use.sending),
               percent(use.receiving), to_string(use.stolen)});
  }
  std::vector<std::vector<std::string>> rows = alike.shown();
  rows.insert(rows.begin(), {"node", "sends", "receives", "sending", "receiving", "engine's CPU"});
  return report::fitted_table(std::move(rows), {1, 2, 3, 4, 5}, columns) + more(alike.hidden());
}

// "12.3 ms  45.6 %" of a step.
std::string time_cell(Seconds part, Seconds step) {
  return fmt::format("{} {:>7}", to_string(part), share(part, step));
}

std::string ranks_table(const sim::Simulation& simulation, const program::Program& program,
                        std::size_t most, std::size_t columns) {
  std::vector<std::string> devices;
  for (const program::RankInfo& rank : program.ranks) devices.push_back(rank.device);
  const auto cells_of = [&](std::size_t rank) {
    const sim::RankUse& use = simulation.ranks[rank];
    return std::vector<std::string>{time_cell(use.computing, simulation.step),
                                    time_cell(use.waiting, simulation.step),
                                    time_cell(use.owning, simulation.step)};
  };
  std::vector<std::vector<std::string>> rows = report::rank_rows(devices, cells_of, most == 0);
  const std::size_t hidden = most == 0 || rows.size() <= most ? 0 : rows.size() - most;
  rows.resize(rows.size() - hidden);
  rows.insert(rows.begin(), {"rank, device", "computing", "waiting", "owner's work"});
  return report::fitted_table(std::move(rows), {1, 2, 3}, columns) + more(hidden);
}

nlohmann::ordered_json memory_json(const sim::MemoryUse& use) {
  nlohmann::ordered_json json{
      {"device_bytes", use.device().value},     {"parameter_bytes", use.parameters.value},
      {"gradient_bytes", use.gradients.value},  {"activation_bytes", use.activations.value},
      {"optimizer_bytes", use.optimizer.value}, {"communication_bytes", use.communication.value},
      {"capacity_bytes", use.capacity.value},   {"missing_bytes", use.missing().value}};
  if (use.on_device) json["overhead_bytes"] = use.overhead.value;
  return json;
}

}  // namespace

std::int64_t samples_of_step(const program::Program& program, const sim::CostModel& costs) {
  return costs.batch * costs.micro_batches * static_cast<std::int64_t>(program.batch_parts());
}

std::string batch_of_step(const program::Program& program, const sim::CostModel& costs) {
  return ir::batch_text(*program.graph, samples_of_step(program, costs),
                        precision_of(program, costs));
}

double samples_per_second(const sim::Simulation& simulation, const program::Program& program,
                          const sim::CostModel& costs) {
  return static_cast<double>(samples_of_step(program, costs)) / simulation.step.value;
}

std::string prediction_title(const std::string& model, const std::string& cluster,
                             const std::string& by, const std::string& calibration_file) {
  return fmt::format("{} on {} by {}\n{}\n", model, cluster, by,
                     calibration_file.empty() ? "" : "calibrated by " + calibration_file + "\n");
}

std::string prediction_lines(const sim::Simulation& simulation, const program::Program& program,
                             const sim::CostModel& costs) {
  return header(simulation, program, costs) + uncalibrated(costs);
}

std::string prediction_table(const sim::Simulation& simulation, const program::Program& program,
                             const sim::CostModel& costs, std::size_t most, std::size_t columns) {
  std::string text = header(simulation, program, costs);
  text += fmt::format("first step     {}\n", to_string(simulation.first_step));
  text += uncalibrated(costs);
  if (!program.reproducible()) text += report::not_reproducible(program) + "\n";
  text += "\n" + nodes_table(simulation, most, columns);
  text += "\n" + ranks_table(simulation, program, most, columns);
  if (simulation.waits.empty()) return text;
  text += "\nwaited for\n";
  const std::size_t waits =
      most == 0 ? simulation.waits.size() : std::min(most, simulation.waits.size());
  for (std::size_t i = 0; i < waits; ++i) {
    const sim::Waited& wait = simulation.waits[i];
    text += fmt::format("  {:>18}  {}\n", time_cell(wait.seconds, simulation.step),
                        program.graph->variable(wait.variable).name);
  }
  text += more(simulation.waits.size() - waits);
  return text;
}

nlohmann::ordered_json prediction_json(const sim::Simulation& simulation,
                                       const program::Program& program,
                                       const sim::CostModel& costs) {
  const sim::Bounds& bounds = simulation.bounds;
  nlohmann::ordered_json json{
      {"step_seconds", simulation.step.value},
      {"first_step_seconds", simulation.first_step.value},
      {"samples_per_second", samples_per_second(simulation, program, costs)},
      {"settled", simulation.settled},
      {"reproducible", program.reproducible()},
      {"bound_seconds", bounds.plan.value},
      {"problem_bound_seconds", bounds.problem.value},
      {"compute_bound_seconds", bounds.compute.value},
      {"card_bound_seconds", bounds.card.value},
      {"owner_bound_seconds", bounds.owner.value},
      {"chain_bound_seconds", bounds.chain.value},
      {"bound_reason", sim::bound_name(bounds)},
      {"batch", costs.batch},
      {"batch_samples", samples_of_step(program, costs)},
      {"precision", precision_of(program, costs)},
      {"sequence_length", ir::sequence_length(*program.graph)},
      {"samples_by_rank", samples_by_rank(program, costs)},
      {"uncalibrated", costs.uncalibrated},
      {"simulated_steps", simulation.steps},
      {"simulated_ranks", simulation.simulated_ranks},
      {"events", simulation.events},
      {"fits", sim::fits(simulation.memory)}};
  if (!simulation.memory.empty()) json["peak_bytes"] = sim::peak_bytes(simulation.memory).value;
  json["nodes"] = nlohmann::ordered_json::array();
  for (const sim::NodeUse& use : simulation.nodes) {
    json["nodes"].push_back({{"node", use.node},
                             {"sent_bytes", use.sent.value},
                             {"received_bytes", use.received.value},
                             {"sending_share", use.sending},
                             {"receiving_share", use.receiving},
                             {"engine_cpu_seconds", use.stolen.value}});
  }
  json["ranks"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < simulation.ranks.size(); ++i) {
    const sim::RankUse& use = simulation.ranks[i];
    nlohmann::ordered_json row{{"device", program.ranks[i].device},
                               {"computing_seconds", use.computing.value},
                               {"waiting_seconds", use.waiting.value},
                               {"owner_seconds", use.owning.value}};
    row["memory"] = memory_json(simulation.memory[i]);
    json["ranks"].push_back(std::move(row));
  }
  json["waits"] = nlohmann::ordered_json::array();
  for (const sim::Waited& wait : simulation.waits) {
    json["waits"].push_back({{"variable", program.graph->variable(wait.variable).name},
                             {"seconds", wait.seconds.value}});
  }
  return json;
}

}  // namespace autodist::planning
