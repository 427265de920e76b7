#include "autodist/app/cli/verbs.h"

#include <algorithm>

namespace autodist::app {

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> table{
      {"demo", "capture, plan and train the digits on this machine, under three strategies",
       "autodist demo", Binary::kTorch},
      {"capture", "record one training step of a model as a graph file",
       "autodist capture digits -o digits.adg", Binary::kTorch},
      {"inspect", "show a graph, a graph_item, a strategy or a cluster",
       "autodist inspect gpt-small --top 10", Binary::kLight},
      {"plan", "search a strategy for a graph on a cluster, or take a builder's",
       "autodist plan gpt-small --cluster local:4 -o plan.strategy", Binary::kLight},
      {"explain", "why a plan is as it is: its choices, the alternatives, what bounds the step",
       "autodist explain gpt-small plan.strategy --cluster local:4", Binary::kLight},
      {"simulate", "predict a step's time, bounds and memory, on a cluster that need not exist",
       "autodist simulate resnet50 --cluster cluster.yml --what-if "
       "nodes=16,bandwidth=25,device=A100",
       Binary::kLight},
      {"compare", "set a predicted trace beside a measured one",
       "autodist compare predicted.json measured.json -o both.json", Binary::kLight},
      {"doctor", "what this machine has for a job, what it lacks, and what to do about it",
       "autodist doctor --cluster cluster.yml", Binary::kLight},
      {"place", "which op on which device, how long a step takes, how far from the best",
       "autodist place gpt-small --cluster local:2 --budget 5s", Binary::kLight},
      {"train", "train a model on the ranks of a cluster",
       "autodist train digits --cluster local:2 --steps 200", Binary::kTorch},
      {"run", "start your own program on every rank of a cluster, here and over ssh",
       "autodist run --cluster cluster.yml -- ./train --epochs 3", Binary::kLight, Says::kAProgram},
      {"supervise", "start your own program, and again when a rank that it has started is lost",
       "autodist supervise --restarts 3 -- python3 train.py", Binary::kLight, Says::kAProgram},
      {"chaos", "kill ranks of a job on purpose, and say how it came back",
       "autodist chaos --kill-every 30 -- train digits --cluster local:2 --steps 5000 --save ckpt",
       Binary::kLight, Says::kAProgram},
      {"export", "write a model with its trained values as a TorchScript file",
       "autodist export digits --resume ckpt -o digits.pt", Binary::kTorch},
      {"ckpt", "list, verify, show or extract checkpoints", "autodist ckpt list ckpt/",
       Binary::kTorch},
      {"bench", "measure against another system, or against what is possible, in one run",
       "autodist bench capture --quick", Binary::kTorch},
      {"dataset", "measured plans: record them, look at them, train a ranker of plans, judge it",
       "autodist dataset record digits --cluster local:2 --points 30 -o plans", Binary::kTorch},
      {"report", "one HTML file of a plan and a run: timeline, figures, variables, what bounds it",
       "autodist report step.json metrics.jsonl plan.strategy digits -o report.html",
       Binary::kLight},
      {"completion", "completion of verbs and options for a shell, or the manual page",
       "autodist completion bash > ~/.local/share/bash-completion/completions/autodist",
       Binary::kLight},
      {"version", "versions of the program and of its libraries", "autodist version --json",
       Binary::kLight},
  };
  return table;
}

const Verb* find_verb(const std::string& name) {
  const auto found = std::find_if(verbs().begin(), verbs().end(),
                                  [&](const Verb& verb) { return verb.name == name; });
  return found == verbs().end() ? nullptr : &*found;
}

}  // namespace autodist::app
