// All-reduces by a library in this job, and what they take, for a search that may choose them.

#pragma once

#include <optional>
#include <string>

#include "autodist/comm/library_probe.h"
#include "autodist/job/torch/joined_job.h"

namespace autodist::job {

struct MeasuredLibrary {
  bool is_there = false;  // for the ranks' devices
  // Nothing where the chief did not want it, where what ranks say is encrypted, which a library's
  // sums are not, and where the library sums on devices, whose collectives are priced from tables.
  std::optional<comm::LibraryFigures> figures;
};

// By all ranks at the same point: connects the library, and measures it. `device`: libtorch's word
// for this rank's. Throws as make_collectives() does.
MeasuredLibrary measured_library(JoinedJob& job, const std::string& device, bool wanted);

}  // namespace autodist::job
