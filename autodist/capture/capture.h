// A training step becomes a Graph: recorded below autograd at two small batch sizes, unified into
// one graph with a symbolic batch, checked against the step itself on other data, measured.
//
// Takes the opt-in training_step.h, and so includes torch.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "autodist/capture/bindings.h"
#include "autodist/capture/training_step.h"
#include "autodist/ir/graph.h"

namespace autodist::capture {

struct Options {
  // One graph for every batch size. Without it, or where the step does not allow it, the graph
  // serves the example's batch alone and says why (batch_fixed_reason).
  bool symbolic_batch = true;
  // Runs of the step per measured batch size; their median is the cost of an op. 0: no costs.
  int cost_repetitions = 3;
  // Compares graph and step on other data. Switch off only for what cannot compute (meta tensors).
  bool self_check = true;
  // No capture of this step has been before. It is called with the whole example then, as a model
  // may set itself up in its first call (a cache that is filled, weights from the first batch).
  // What that leaves in parameters and attributes stays; buffers are put back where the step would
  // set them up again (docs/decisions/196-the-first-call.md). And whether it runs on one sample is
  // asked (CapturedStep::needs_several_samples). Both are left out without self_check.
  bool first = true;
  // Of the random numbers that the step draws while it is captured.
  std::uint64_t seed = 0;
  // The last tensor of the step's example is a scalar, by which the loss is multiplied before the
  // backward pass (ir/loss_scaling.h); the step's functions do not get it. What the graph returns
  // is the loss itself.
  bool scaled_loss = false;
  // What the host reads of Booleans, in the places of the first that it asks for: the capture goes
  // the way of a step that has read these. The rest it reads of the example.
  std::vector<bool> booleans = {};
  // Called before every op, also between the two halves of a step; an Error that it throws ends the
  // capture. It then throws whenever it is called again.
  std::function<void()> look_around = {};
};

struct CapturedStep {
  ir::Graph graph;
  Bindings tensors;
  // The batch is symbolic, and yet a replay on one sample differs from the step by some bits: a
  // tensor with a dimension of 1 lies in memory as others do not, and kernels round by that. Such a
  // batch is to be captured by itself, without a symbolic one.
  bool single_sample_differs = false;
  // The step does not run on one sample, but on several: it has a batch norm, say.
  bool needs_several_samples = false;
};

// For messages: which number of data guard `index` of the graph is about, and what to write in its
// place; empty where it is a Boolean.
std::string number_of_data(const ir::Graph& graph, std::size_t index);

// Captures `step`. But for what it sets up in its first call (Options::first), its parameters,
// their gradients, its buffers and libtorch's default generators are afterwards as they were
// before. Costs about three runs of the step, the first time four, and no more memory than one, or
// than one of four samples where the step has fewer. Calls of several threads take turns.
//
// Where the host reads Booleans of tensors that depend on no gradient (`if mask.all():`), the graph
// is that of the way which the example takes, and has guards (ir::kGuardOp).
//
// Where it reads such an integer, or sizes of tensors follow from such data (`x[mask]`), the graph
// is that of the example's numbers, and has guards, too. Where they follow from the number of
// samples as well, it serves other batches.
//
// Throws Error(kUsage), naming op and module, for a step that a replay would get wrong: other
// control flow that depends on data, numbers or masks that the host makes anew for every
// batch, writes to parameters, anything in which graph and step differ by a bit; Error(kUsage) for
// an op that the step's device has no kernel for, and Error(kInfeasible) where it has no memory for
// one.
CapturedStep capture(const TrainingStep& step, const Options& options = {});
ir::Graph capture_step(const TrainingStep& step, const Options& options = {});

// The forward-only graph of step.evaluate; its outputs are what that returns. The same promises.
// Throws Error(kUsage) where step.evaluate is empty.
CapturedStep capture_evaluation(const TrainingStep& step, const Options& options = {});

// Compares `step` once more with the replay of its graph, bit for bit, on `batch`: what was
// captured may since have gone out of date (a loss weight that the host changes between epochs).
// Nothing is trained; parameters, buffers and generators are afterwards as they were. REQUIRES: the
// batch fits the graph. Throws Error(kUsage) naming what differs, and OtherWay (other_way.h) where
// a Boolean, an integer or a size that follows from data is another one.
void verify_replay(const TrainingStep& step, const ir::Graph& graph, const Bindings& tensors,
                   const Batch& batch, std::uint64_t seed);

}  // namespace autodist::capture
