// One model's step, captured by a job that has met: what trials run.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <memory>
#include <optional>
#include <string>

#include "autodist/app/torch/model_source.h"
#include "autodist/comm/link_probe.h"
#include "autodist/job/torch/joined_job.h"
#include "autodist/job/torch/trials.h"

namespace autodist::app {

class TrialSubject {
 public:
  // By all ranks at the same point: captures `model` on random data (the chief measures its ops),
  // then measures the links between machines. `optimizer` is text as of `train`. Throws
  // Error(kUsage).
  TrialSubject(job::JoinedJob& job, const ModelRequest& model, const std::string& optimizer);

  [[nodiscard]] const std::shared_ptr<const ir::Graph>& graph() const { return graph_; }
  // Nothing where all ranks are on one machine.
  [[nodiscard]] const std::optional<comm::LinkFigures>& links() const { return links_; }
  // Refers to this object.
  [[nodiscard]] job::TrialStep step(passes::Options passes) const;

 private:
  ModelSource source_;
  std::uint64_t seed_;
  bool encrypted_;
  std::shared_ptr<const ir::Graph> graph_;
  capture::Bindings bindings_;
  std::optional<comm::LinkFigures> links_;
};

}  // namespace autodist::app
