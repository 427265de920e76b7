// What all-reduces by a library take in this job, for a search that may choose them.

#pragma once

#include <optional>
#include <string>

#include "autodist/comm/library_probe.h"
#include "autodist/job/torch/joined_job.h"

namespace autodist::job {

// By all ranks at the same point: connects the library, and measures it. Nothing where the chief
// does not want it, where what ranks say is encrypted, which a library's sums are not, where this
// build has no library, and where the library sums on devices, whose collectives are priced from
// tables. `device`: libtorch's word for this rank's. Throws as make_collectives() does.
std::optional<comm::LibraryFigures> measured_library(JoinedJob& job, const std::string& device,
                                                     bool wanted);

}  // namespace autodist::job
