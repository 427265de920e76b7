// The search in a job that has met: the chief searches, and where trials are asked for, all ranks
// run the most promising plans and the fastest is taken.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include "autodist/job/torch/step_plan.h"
#include "autodist/job/torch/trials.h"

namespace autodist::job {

// By all ranks at the same point; JobOptions::search says how. The links of `plan` fill in what
// strategies leave open; what all-reduces by its library take is measured here. Without `may_try`
// there are no trials. Its `trials` becomes the number of exchanges that trials have used, and its
// `rivals`, at every rank where there are some, what trials that count compare (other ranks get no
// plans). Throws as search_plan, Trials and make_collectives() do; other ranks wait as long as the
// budget says, or an hour where it counts simulations.
strategy::Strategy search_together(JoinedJob& job, const TrialStep& what, bool may_try,
                                   StepPlan& plan);

}  // namespace autodist::job
