"""Every page with figures: what makes them, and of what. `tools/pages` reads it."""

from figures import DETERMINISTIC, MEASURED, SAMPLED, Figures

# What a step of a job goes through, and what says how long one takes.
ENGINE = ("autodist/exec", "autodist/protocol", "autodist/comm", "autodist/passes",
          "autodist/program", "autodist/ir")
SIMULATOR = ("autodist/sim", "autodist/protocol", "autodist/comm/schedule", "autodist/passes",
             "autodist/program", "autodist/ir")
SEARCH = ("autodist/search/autosync", "autodist/search/builders", "autodist/planning/link_tuning.cc",
          "data/graphs", "data/clusters",
          *SIMULATOR)
STUDIES = "autodist/studies/"

FIGURES = (
    Figures("rankers", "docs/benchmarks/rankers.md", DETERMINISTIC,
            ("autodist", "dataset", "eval", "data/autosync"),
            ("data/autosync", "autodist/search/learning", "autodist/app/data_sets.cc", *SIMULATOR)),
    Figures("rank-rnn", "docs/benchmarks/rank-rnn.md", MEASURED, ("rank-rnn", "data/autosync"),
            ("data/autosync", "tools/rank_rnn", "autodist/search/learning", *SEARCH), whole=False),
    Figures("search", "docs/benchmarks/search.md", DETERMINISTIC, ("autodist", "bench", "search"),
            (STUDIES + "strategies.cc", *SEARCH)),
    Figures("p3", "docs/benchmarks/p3.md", DETERMINISTIC, ("autodist", "bench", "p3"),
            (STUDIES + "p3.cc", "data/graphs", *SIMULATOR), whole=False),
    Figures("chart", "docs/benchmarks/published-chart.md", DETERMINISTIC,
            ("autodist", "bench", "chart", "--data", "data"),
            (STUDIES + "published_chart.cc", "data/autodist", "data/graphs", *SIMULATOR)),
    Figures("gpu-times", "docs/benchmarks/gpu-times.md", DETERMINISTIC,
            ("autodist", "bench", "gpu-times"),
            (STUDIES + "gpu_times.cc", "data/graphs", "autodist/sim", "autodist/ir")),
    Figures("descents", "docs/benchmarks/traversal-order.md", DETERMINISTIC,
            ("tools/study-traversal-order", "descents"),
            ("tools/study-traversal-order", "autodist/search/placement"), whole=False),
    Figures("sweep", "docs/benchmarks/sweep.md", SAMPLED, ("autodist", "bench", "sweep"),
            (STUDIES + "sweep.cc", STUDIES + "strategies.cc", *SEARCH),
            sample=("autodist", "bench", "sweep", "--models", "ncf")),
    Figures("policies", "docs/benchmarks/traversal-order.md", MEASURED,
            ("tools/study-traversal-order", "policies"),
            ("tools/study-traversal-order", "tools/learned_placer", "autodist/search/placement"),
            whole=False),
    Figures("plans", "docs/benchmarks/plans.md", MEASURED, ("autodist", "bench", "plans"),
            ("tools/bench-plans", "tools/hosts/bench.py", "tools/hosts/cluster.py",
             "benchmarks/models.py", STUDIES + "torch/bench_plans.cc", "autodist/exec", "autodist/comm", *SEARCH),
            # Nothing is saved there.
            without=("autodist/exec/checkpoint", "autodist/exec/safetensors")),
    Figures("slow-links", "docs/benchmarks/search-findings.md", MEASURED, (),
            (STUDIES + "torch/bench_plans.cc", "autodist/exec", "autodist/comm", *SEARCH),
            whole=False),
    Figures("predict", "docs/benchmarks/predict.md", MEASURED, ("autodist", "bench", "predict"),
            ("tools/bench-predict", "tools/hosts/bench.py", "tools/hosts/cluster.py",
             "tools/hosts/fitting.py", "benchmarks/models.py", "autodist/capture", "autodist/sim", *ENGINE)),
    Figures("sync", "docs/benchmarks/sync.md", MEASURED, ("tools/bench-sync",),
            ("tools/bench-sync", "tools/hosts/sync_report.py", "tools/hosts/bench.py", "tools/hosts/cluster.py",
             "tools/hosts/goodput.py", "benchmarks", STUDIES + "torch/bench_sync_rank.cc", *ENGINE)),
    Figures("peers", "docs/benchmarks/peers.md", MEASURED,
            ("tools/bench-sync", "--quick", "--torch", "v/bin/python"),
            ("tools/bench-sync", "tools/hosts/sync_report.py", "tools/hosts/bench.py", "tools/hosts/cluster.py",
             "tools/hosts/goodput.py", "benchmarks", STUDIES + "torch/bench_sync_rank.cc", *ENGINE)),
    Figures("zoo", "docs/benchmarks/zoo.md", MEASURED, ("tools/bench-zoo",),
            ("tools/bench-zoo", "tools/zoo", "autodist/capture", "autodist/exec",
             "autodist/job/torch/captured.cc", "autodist/job/torch/shape_cache.cc",
             "python/autodist/_capturing.py")),
    Figures("capture", "docs/benchmarks/capture.md", MEASURED,
            ("tools/bench-capture", "--rounds", "2", "--torch", "v/bin/python"),
            ("tools/bench-capture", STUDIES + "torch/bench_capture.cc", "autodist/capture",
             "autodist/exec/replay.cc", "autodist/exec/tensor_memory.cc", "autodist/models")),
    Figures("recovery", "docs/benchmarks/recovery.md", MEASURED,
            ("tools/bench-recovery", "--torch", "v/bin/python"),
            ("tools/bench-recovery", "tools/recovery", "autodist/app/supervision.cc",
             "autodist/app/cli/run.cc", "autodist/job", "autodist/base/step_folders.cc",
             "autodist/exec/checkpoint.cc", "autodist/exec/gathering.cc")),
    Figures("gpu", "docs/benchmarks/gpu.md", MEASURED, (),
            ("autodist/capture", "autodist/exec"), whole=False),
    Figures("simulator", "docs/benchmarks/simulator.md", MEASURED, ("autodist", "bench", "sim"),
            (STUDIES + "speed.cc", STUDIES + "nccl_table.cc", "autodist/search/autosync", *SIMULATOR)),
    Figures("placement", "docs/benchmarks/placement.md", MEASURED, ("tools/bench-placement",),
            ("tools/bench-placement", "autodist/search/placement")),
    Figures("placement-speed", "docs/benchmarks/placement-speed.md", MEASURED,
            ("autodist", "bench", "place"),
            (STUDIES + "placement_speed.cc", "autodist/search/placement")),
    Figures("pipeline", "docs/placement.md", MEASURED, ("autodist", "bench", "pipeline"),
            (STUDIES + "torch/bench_pipeline.cc", *ENGINE), whole=False),
    Figures("staleness", "docs/consistency.md", MEASURED, ("autodist", "bench", "staleness"),
            (STUDIES + "torch/bench_staleness.cc", *ENGINE), whole=False),
    Figures("compressors", "docs/compression.md", MEASURED,
            ("autodist", "train", "digits", "--cluster", "local:2", "--batch", "64", "--steps", "400",
             "--optimizer", "adam:lr=1e-3", "--builder", "AllReduce:compressor=…"),
            ("data/digits", "autodist/program/compression.cc", "autodist/exec/codec.cc",
             "autodist/exec/factors.cc", "autodist/exec/contributor.cc"), whole=False),
    Figures("slice-costs", "docs/several-machines.md", MEASURED, (), ENGINE, whole=False),
)

# Pages of figures: whatever lies here has to stand above, but for the page that says what there is.
FOLDERS = ("docs/benchmarks/",)
INDEXES = ("docs/benchmarks/index.md",)
# A decision keeps what was measured when it was made; formats have tables of field numbers.
NO_FIGURES = ("docs/decisions/", "docs/formats/")
