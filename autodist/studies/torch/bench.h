// What the benchmarks of `autodist bench NAME` share.

#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "autodist/app/cli/program.h"
#include "autodist/app/torch/model_source.h"
#include "autodist/base/units.h"
#include "autodist/job/torch/session.h"

namespace autodist::studies {

app::Action declare_bench(CLI::App& verb);

struct BenchArguments {
  std::string name;
  bool quick = false;
  // What a process that the benchmark starts measures: it prints one number.
  std::string probe;
  std::string probe_model;
};

// One rank of a synchronisation benchmark (tools/bench-sync), a comparison of plans, or of links.
struct SyncArguments {
  std::string cluster;
  std::string model;  // a TorchScript file, or a built-in one
  std::string loss = "none";
  std::vector<std::string> inputs;
  std::string optimizer = "sgd:lr=1e-3";
  std::int64_t rows = 8;  // per rank
  std::string setting = "priority";
  std::string builder = "AllReduce:chunk_size=1,update_at=owner";
  std::int64_t slice_bytes = 0;   // 0: the default
  std::int64_t window_bytes = 0;  // 0: the default
  Encryption encryption = Encryption::kOff;
  std::int64_t warmup = 3;
  std::int64_t steps = 10;
  std::string trace;  // a file; empty: none
  // Of `bench plans` alone.
  std::int64_t rounds = 3;
  std::int64_t finals = 0;  // further rounds, of the fastest of each kind
  std::int64_t others = 0;  // plans that the search judged, beside its answer and the builders
  std::string budget = "10s";
};
app::ModelRequest model_request(const SyncArguments& arguments);
int bench_sync_rank(const SyncArguments& arguments, app::Console& console);
int bench_plans(const SyncArguments& arguments, app::Console& console);
int bench_links(const SyncArguments& arguments, app::Console& console);

int bench_gpus(app::Console& console);
int bench_capture(const BenchArguments& arguments, app::Console& console);
int bench_pipeline(const BenchArguments& arguments, app::Console& console);
int bench_staleness(const BenchArguments& arguments, app::Console& console);

// What `steps` steps take behind `warmup` others, counted from the session's first: from when all
// ranks are there until all have done them. `run_step` runs one.
Seconds seconds_of_steps(Session& session, std::int64_t warmup, std::int64_t steps,
                         const std::function<void()>& run_step);

// A probe of this benchmark in a process of its own. Throws Error with its exit code where it
// fails.
double run_probe(const BenchArguments& arguments, const std::string& probe,
                 const std::string& model);

// An object of numbers as one JSON object with what they are made of, or as a line each.
int show_figures(const nlohmann::ordered_json& figures, const nlohmann::ordered_json& raw,
                 app::Console& console);

}  // namespace autodist::studies
