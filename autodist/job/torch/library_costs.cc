#include "autodist/job/torch/library_costs.h"

#include "autodist/comm/agreement.h"
#include "autodist/comm/c10d/gloo.h"
#include "autodist/comm/c10d/make_collectives.h"
#include "autodist/comm/library_probe.h"
#include "autodist/planning/link_tuning.h"

namespace autodist::job {

sim::Calibration measured_library(JoinedJob& job, const torch::Device& device, bool wanted) {
  const Seconds limit = job.options().join_limit;
  const bool can = wanted && comm::has_gloo() && !job.encrypts() && job.size() > 1;
  if (comm::broadcast(job.transport(), 0, can ? "yes" : "", "library", limit).empty()) return {};
  const auto collectives =
      comm::make_collectives(job.transport(), job.own_address(), device.str(), limit);
  sim::Calibration costs;
  if (!collectives->is_on_device()) {
    costs = planning::library_costs(comm::probe_library(*collectives, job.clock()), job.size(),
                                    job.cluster());
  }
  comm::all_gather(job.transport(), "", "library", limit);  // nobody leaves while others still sum
  return costs;
}

}  // namespace autodist::job
