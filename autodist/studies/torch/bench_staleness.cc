// `autodist bench staleness`: what a bound of 2 steps gives where ranks are slow in turn, and where
// one of them always is. Two processes with a core each; a slow step has more rows.
//
// The ideal: with every fourth step of each rank five times as long, two steps out of phase, a
// synchronous job takes 1 + 5 + 1 + 5 units for four steps, a stale one 1 + 1 + 1 + 5: 1.5 times
// the throughput. Where the same rank is always slow the bound ties the other to it: 1.0.

#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "autodist/app/torch/session.h"
#include "autodist/base/statistics.h"
#include "autodist/models/catalogue.h"
#include "autodist/studies/torch/bench.h"

namespace autodist::studies {
namespace {

// Some 40 ms, since the ideals know no exchange: with a quarter of it a synchronous step shows a
// millisecond of merging and waking up, a tenth of the step.
constexpr std::int64_t kUnitRows = 1024;
constexpr std::int64_t kUntimed = 8;  // steps
constexpr std::int64_t kTimed = 48;   // steps; whole cycles of both ranks

// How many units a step takes.
int units(const std::string& slowness, std::uint32_t rank, std::int64_t step) {
  if (slowness == "one") return rank == 1 ? 2 : 1;
  return step % 4 == 2 * rank ? 5 : 1;
}

// Steps per second of a job of two ranks; printed by the chief. Its other rank is started with the
// same arguments, and does the same.
int probe(const std::string& staleness, const std::string& slowness, app::Console& console) {
  JobOptions options;
  options.builder = "PSLoadBalancing:staleness=" + staleness;
  options.measure = false;
  AutoDist ad("local:2", options);
  models::ModelOptions model;
  model.batch = 5 * kUnitRows;
  TrainingStep step = models::make_model("digits", model);
  const Batch most = step.example;
  Session session = ad.distribute(std::move(step), Sgd(1e-3));
  const Seconds wall = seconds_of_steps(session, kUntimed, kTimed, [&] {
    const std::int64_t rows = kUnitRows * units(slowness, session.rank(), session.step());
    session.run_local({most[0].slice(0, 0, rows), most[1].slice(0, 0, rows)});
  });
  session.finish();
  if (session.is_chief()) console.out << static_cast<double>(kTimed) / wall.value << "\n";
  return 0;
}

}  // namespace

int bench_staleness(const BenchArguments& arguments, app::Console& console) {
  if (!arguments.probe.empty()) return probe(arguments.probe, arguments.probe_model, console);
  nlohmann::ordered_json figures;
  for (const char* slowness : {"alternating", "one"}) {
    std::vector<double> ratios;  // of neighbouring runs
    for (int i = 0; i < (arguments.quick ? 3 : 7); ++i) {
      const double synchronous = run_probe(arguments, "0", slowness);
      ratios.push_back(run_probe(arguments, "2", slowness) / synchronous);
    }
    figures[std::string("stale_over_synchronous_") + slowness] = median_of(ratios);
  }
  return show_figures(figures, {}, console);
}

}  // namespace autodist::studies
