#include "autodist/job/torch/measured_library.h"

#include "autodist/comm/agreement.h"
#include "autodist/comm/c10d/gloo.h"
#include "autodist/comm/c10d/make_collectives.h"

namespace autodist::job {

std::optional<comm::LibraryFigures> measured_library(JoinedJob& job, const std::string& device,
                                                     bool wanted) {
  const Seconds limit = job.options().join_limit;
  const bool can = wanted && comm::has_gloo() && !job.encrypts() && job.size() > 1;
  if (!job.chief_says("library", can)) return {};
  const auto collectives =
      comm::make_collectives(job.transport(), job.own_address(), device, limit);
  std::optional<comm::LibraryFigures> figures;
  if (!collectives->is_on_device()) figures = comm::probe_library(*collectives, job.clock());
  comm::all_gather(job.transport(), "", "library", limit);  // nobody leaves while others still sum
  return figures;
}

}  // namespace autodist::job
