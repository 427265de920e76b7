#include "autodist/app/torch/session.h"

#include "autodist/app/this_process.h"
#include "autodist/base/check.h"
#include "autodist/job/torch/joined_job.h"

namespace autodist {

AutoDist::AutoDist(const std::string& cluster, JobOptions options)
    : job_(std::make_unique<job::JoinedJob>(cluster, std::move(options), app::this_process())) {
  rank_ = job_->rank();
  size_ = job_->size();
  launcher_ = job_->launcher();
}
AutoDist::~AutoDist() = default;
AutoDist::AutoDist(AutoDist&&) noexcept = default;

Session AutoDist::distribute(TrainingStep step, const ir::Optimizer& optimizer) {
  AD_CHECK(job_ != nullptr) << "distribute() was called before";
  return job::distribute(std::move(job_), std::move(step), optimizer);
}

Steps AutoDist::distribute(std::vector<NamedStep> steps) {
  AD_CHECK(job_ != nullptr) << "distribute() was called before";
  return job::distribute(std::move(job_), std::move(steps));
}

}  // namespace autodist
