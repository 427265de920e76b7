#include "autodist/job/torch/measured_library.h"

#include "autodist/comm/agreement.h"
#include "autodist/comm/c10d/gloo.h"

namespace autodist::job {

std::optional<comm::LibraryFigures> measured_library(JoinedJob& job,
                                                     comm::CollectiveLibrary library, bool wanted) {
  const bool can = wanted && library == comm::CollectiveLibrary::kGloo && !job.encrypts();
  if (!job.chief_says("library", can && job.size() > 1)) return std::nullopt;
  const Seconds limit = job.options().join_limit;
  const auto collectives = comm::make_gloo(job.transport(), job.own_address(), limit);
  const comm::LibraryFigures figures = comm::probe_library(*collectives, job.clock());
  comm::all_gather(job.transport(), "", "library", limit);  // nobody leaves while others still sum
  return figures;
}

}  // namespace autodist::job
