// From files, told by their contents, to what a page is made of.

#pragma once

#include <string>
#include <vector>

#include "autodist/report/html/page.h"

namespace autodist::app {

struct ReportRequest {
  // Traces, logs of `train --log`, predictions of `simulate --json`, strategies, clusters, graphs;
  // or the name of a shipped graph. One each but of traces.
  std::vector<std::string> inputs;
  std::vector<std::string> predicted;  // traces of `simulate --trace`
  std::string cluster;                 // as read_cluster takes it; empty: none
  std::string builder;                 // where there is no strategy; empty: none
  std::string title;                   // empty: made from what there is
  bool cpu_only = false;
};

// Throws Error(kUsage) for a file that is none of these, for two of one kind, and where nothing is
// given; as choose_strategy and passes::rewrite do where graph, strategy and cluster do not fit.
report::PageInputs page_inputs(const ReportRequest& request, std::vector<std::string>& warnings);

}  // namespace autodist::app
