// AutoDist's published chart (its documentation's performance page, 2020): throughput per GPU of
// five models under five of its strategies and Horovod, on 1 to 32 T4 GPUs, four to a machine, 50
// Gbit/s; computed anew by the simulator.
//
// Given: each system's rate on one GPU. Fitted on ResNet-101 and VGG-16, on 8 to 32 GPUs: the
// bandwidth of NCCL, that of one tensor's remote procedure call, and what a shard costs a session.
// Predicted: the other three models.

#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "autodist/base/units.h"

namespace autodist::studies {

// Samples per second and GPU by (model, GPUs, system), as the chart names them.
using ChartKey = std::tuple<std::string, int, std::string>;
using Chart = std::map<ChartKey, double>;

// Tab-separated: model, gpus, then a column per system; empty where no bar was drawn; '#' begins a
// comment. Throws Error(kUsage) with `where` and the line for anything else.
Chart parse_chart(const std::string& text, const std::string& where);

struct ChartCosts {
  double nccl_bytes_per_s = 4e9;    // of a machine's card
  double tensor_bytes_per_s = 1e9;  // of one tensor's remote procedure call, beside others
  Seconds shard{100e-6};            // of a step, per shard of a variable on a server
};

// The systems that are computed: the chart's but for TF-Distribute, which has no bars from 8 on.
const std::vector<std::string>& chart_systems();

// Samples per second and GPU on `gpus` GPUs, from 8 on. `single`: on one. Throws Error(kUsage) for
// a model or system that the chart does not have.
double predicted_rate(const std::string& model, const std::string& system, int gpus, double single,
                      const ChartCosts& costs);

struct ChartCell {
  std::string model;
  int gpus = 0;
  std::vector<std::pair<double, double>> rates;  // by system: predicted, published
  double tau = 0;                                // Kendall's, of the systems' order
  bool winner_in_two = false;  // whether the published first is among the predicted first two
};

struct ChartStudy {
  ChartCosts costs;
  std::vector<ChartCell> cells;  // every model on 8, 16 and 32
};

// The least mean |log(predicted / published)| over ResNet101 and VGG16, by coordinate descent.
ChartStudy study_chart(const Chart& chart);
std::string chart_page(const ChartStudy& study);
std::string chart_json(const ChartStudy& study);
bool is_fitted(const std::string& model);

}  // namespace autodist::studies
