// What a rank keeps of its slices and variables: the bytes, and what is decided about them. Whoever
// performs effects works on it, and between steps whoever gathers states.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include "autodist/capture/bindings.h"
#include "autodist/exec/contributor.h"
#include "autodist/exec/device/staging.h"
#include "autodist/exec/local_variables.h"
#include "autodist/exec/loss_scaler.h"
#include "autodist/exec/norms.h"
#include "autodist/exec/owner.h"
#include "autodist/exec/rank_context.h"
#include "autodist/exec/row_fetcher.h"
#include "autodist/program/program.h"
#include "autodist/protocol/job.h"

namespace autodist::exec {

struct RankSlices {
  RankSlices(const RankContext& rank, const capture::Bindings& bindings);

  Staging staging;
  protocol::Job job;
  NormPlan plan;
  Norms norms;
  LossScaler scaler;
  LocalVariables variables;
  Owner owner;
  Contributor contributor;
  RowFetcher fetcher;
};

}  // namespace autodist::exec
