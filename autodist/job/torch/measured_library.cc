#include "autodist/job/torch/measured_library.h"

#include "autodist/comm/agreement.h"
#include "autodist/comm/c10d/gloo.h"
#include "autodist/comm/c10d/make_collectives.h"

namespace autodist::job {

MeasuredLibrary measured_library(JoinedJob& job, const std::string& device, bool wanted) {
  const Seconds limit = job.options().join_limit;
  const bool can = wanted && !job.encrypts() && job.size() > 1;
  if (!job.chief_says("library", can)) return {comm::has_gloo(), {}};
  const comm::CollectiveLibrary library = comm::library_for(job.transport(), device, limit);
  MeasuredLibrary measured{library != comm::CollectiveLibrary::kNone, {}};
  if (library != comm::CollectiveLibrary::kGloo) return measured;
  const auto collectives = comm::make_gloo(job.transport(), job.own_address(), limit);
  measured.figures = comm::probe_library(*collectives, job.clock());
  comm::all_gather(job.transport(), "", "library", limit);  // nobody leaves while others still sum
  return measured;
}

}  // namespace autodist::job
