#include "autodist/app/torch/session.h"

#include "autodist/app/this_process.h"
#include "autodist/base/error.h"
#include "autodist/job/torch/joined_job.h"

namespace autodist {
namespace {

std::unique_ptr<job::JoinedJob> taken(std::unique_ptr<job::JoinedJob>& job) {
  if (job == nullptr) {
    fail(ErrorCode::kUsage,
         "distribute: this AutoDist has its session already. Make another one, or give one call "
         "several steps.");
  }
  return std::move(job);
}

}  // namespace

AutoDist::AutoDist(const std::string& cluster, JobOptions options)
    : job_(std::make_unique<job::JoinedJob>(cluster, std::move(options), app::this_process())) {
  rank_ = job_->rank();
  size_ = job_->size();
  launcher_ = job_->launcher();
}
AutoDist::~AutoDist() = default;
AutoDist::AutoDist(AutoDist&&) noexcept = default;

Session AutoDist::distribute(TrainingStep step, const ir::Optimizer& optimizer) {
  return job::distribute(taken(job_), std::move(step), optimizer);
}

Steps AutoDist::distribute(std::vector<NamedStep> steps) {
  return job::distribute(taken(job_), std::move(steps));
}

}  // namespace autodist
