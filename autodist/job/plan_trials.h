// Which of several plans is the fastest, found while a job trains under them in turn: rounds in
// rotated order, compared round by round with one of them. No clock, no job; what a block of steps
// took is told.
//
// Blocks of one round see the same machine and links, so the logarithms of their ratios scatter
// less than times do. A plan is dropped when the 99 % interval of its mean ratio to the fastest so
// far lies above 1 (successive elimination, which looks after every round; Student's t over
// rounds). At the end the simulator's word counts as much as it is worth: a prediction of the ratio
// of two plans is right to kPredictionScatter, what was measured to its standard error, and the
// plan whose mean of both, weighted by their inverse variances, is best goes on. So a coarse
// measurement does not overrule a large predicted gain, and a fine one overrules any.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "autodist/base/units.h"

namespace autodist::job {

class PlanTrials {
 public:
  struct Limits {
    std::int64_t steps = 0;  // in all blocks; 0: no limit
    Seconds seconds{20};     // what the blocks and all between them take
  };
  static constexpr std::int64_t kLeastRounds = 3;
  static constexpr std::int64_t kMostRounds = 25;
  static constexpr double kPredictionScatter = 0.1;  // standard deviation of the logarithm

  // What a step of each plan is predicted to take, and which one the others are compared with.
  // REQUIRES: reference < predicted.size(); all are above 0.
  PlanTrials(std::vector<Seconds> predicted, std::size_t reference, const Limits& limits);

  // Whose block is next, of so many steps; nothing when it is decided, no whole round fits into the
  // limits any more, or one took longer than was to be expected. Asking twice names the same.
  [[nodiscard]] std::optional<std::size_t> next(std::int64_t block_steps) const;
  // A block of the plan that next() named, whose steps took so long on average, when so long has
  // passed since the first block began.
  void add(Seconds step, std::int64_t block_steps, Seconds since_the_first);

  // How many times as fast as the reference a plan was, and the 95 % interval of that; nothing
  // before both ran in two rounds.
  struct Gain {
    double mean = 1;
    double low = 1;
    double high = 1;
    double error = 0;  // standard error of the mean's logarithm
  };
  [[nodiscard]] std::optional<Gain> gain(std::size_t plan) const;
  // The plan to go on with; before kLeastRounds the one that is predicted to be fastest.
  [[nodiscard]] std::size_t best() const;
  // Whole rounds so far.
  [[nodiscard]] std::int64_t rounds() const { return rounds_; }
  // The median of a plan's blocks; 0 where it had none.
  [[nodiscard]] Seconds median(std::size_t plan) const;

  // Of Student's t, for one degree of freedom and more.
  using Quantiles = std::array<double, kMostRounds - 1>;

 private:
  [[nodiscard]] std::optional<Gain> ratio(std::size_t plan, std::size_t to,
                                          const Quantiles& quantiles) const;
  void end_round();
  [[nodiscard]] double expected_gain(std::size_t plan) const;

  std::vector<Seconds> predicted_;
  std::size_t reference_;
  Limits limits_;
  std::vector<std::vector<std::optional<Seconds>>> times_;  // by plan, by round
  std::vector<std::size_t> left_;                           // plans, in this round's order
  std::size_t at_ = 0;                                      // in it
  std::int64_t rounds_ = 0;
  std::int64_t steps_ = 0;
  Seconds passed_;
};

}  // namespace autodist::job
