// Task graphs from the published formats. Each reader throws Error(kUsage), one line prefixed with
// `where`, for what it cannot read; what it returns is verified.

#pragma once

#include <string>

#include "autodist/search/placement/task_graph.h"

namespace autodist::search::placement {

// The JSON of "Efficient Algorithms for Device Placement of DNN Graph Operators" (NeurIPS 2020):
// nodes with fpgaLatency, cpuLatency, size and colorClass, edges with the cost of their source's
// one tensor. Times in the file's unit (ms).
TaskGraph parse_throughput(const std::string& text, const std::string& where);

// PipeDream's text (SOSP 2019): `node1 -- Conv2d(…) -- forward_compute_time=2.2, …` and
// `\tnode1 -- node2`. Times become µs, as Placeto's simulation wants them. Every node becomes
// `NAME` (forward) and `b_NAME`, which waits for NAME and for its children's backward parts.
TaskGraph parse_pipedream(const std::string& text, const std::string& where);

// Standard Task Graph Set (Kasahara laboratory): a count, then `id time predecessors id…` a line,
// with a dummy source and sink. No communication.
TaskGraph parse_stg(const std::string& text, const std::string& where);

// TensorFlow-like graphs as the golden vectors hold them: {"graph_def": [{"name", "input"}],
// "cost_us": {…}, "output_bytes": {…}}.
TaskGraph parse_placeto_json(const std::string& text, const std::string& where);

// Any of these, told by what the text is. `name` (a path) names the graph and stands in messages.
TaskGraph parse_task_graph(const std::string& text, const std::string& name);

// "a/b.c.gz" → "b": what a graph of that file is called.
std::string stem_of(const std::string& path);

}  // namespace autodist::search::placement
