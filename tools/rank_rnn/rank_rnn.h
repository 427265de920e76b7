// AutoSync's other ranker: a recurrent network reads a plan variable by variable and scores it,
// trained on the order of pairs (RankRNN; Zhang et al., NeurIPS 2020, section 4.2). Sizes, the rows
// it reads and how long it is trained are this file's.

#pragma once

#include <cstdint>
#include <vector>

#include "autodist/search/learning/evaluation.h"

namespace autodist::learned {

// By cell, then by point: rows of kStepFeatures numbers (tools/rank_rnn/plan_sequence.h).
using Sequences = std::vector<std::vector<std::vector<std::vector<float>>>>;

struct RankRnnOptions {
  std::int64_t hidden = 32;
  std::uint32_t epochs = 40;  // each cell once in an epoch
  double rate = 3e-3;         // of Adam
  // Of a cell so many plans at once, drawn anew in each epoch: their pairs grow with the square.
  std::int64_t plans_at_once = 64;
  std::uint64_t seed = 0;  // of weights and draws
};

// A ranker of samples whose plans are `sequences`, which outlive it. Deterministic with one thread
// on one machine. Without pairs that are not alike every score is 0.
search::Ranker rank_rnn(const Sequences& sequences, const RankRnnOptions& options = {});

}  // namespace autodist::learned
