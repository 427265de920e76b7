// What all-reduces by a library take in this job, for a search that may choose them.

#pragma once

#include <optional>

#include "autodist/comm/c10d/make_collectives.h"
#include "autodist/comm/library_probe.h"
#include "autodist/job/torch/joined_job.h"

namespace autodist::job {

// By all ranks at the same point: connects the library that there is for their devices
// (library_for), and measures it. Nothing where there is none or the chief does not want it, where
// what ranks say is encrypted, which a library's sums are not, and where the library sums on
// devices, whose collectives are priced from tables. Throws as make_collectives() does.
std::optional<comm::LibraryFigures> measured_library(JoinedJob& job,
                                                     comm::CollectiveLibrary library, bool wanted);

}  // namespace autodist::job
