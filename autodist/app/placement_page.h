// From an answer of search/placement to the page that shows it: load, memory and traffic of every
// device, and what it does when.

#pragma once

#include <vector>

#include "autodist/planning/placing.h"
#include "autodist/report/html/page.h"

namespace autodist::app {

// The step is simulated once more, as the request says, for its timeline; what is placed for
// throughput, or as tasks without communication, has none: there each device's tasks stand one
// after the other. REQUIRES: a placement was found, for this request.
report::PageInputs placement_page(const search::placement::TaskGraph& graph,
                                  const std::vector<planning::NamedDevice>& devices,
                                  const search::placement::PlaceRequest& request,
                                  const search::placement::PlaceResult& result);

}  // namespace autodist::app
