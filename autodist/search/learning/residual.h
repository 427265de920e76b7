// What measurements say beyond the simulator: a score whose first part is the simulated time and
// whose second part, gradient-boosted trees over features of the plan (XGBoost, Chen and Guestrin,
// KDD 2016), is trained on the order of measured pairs, so that a simulator that is wrong by a
// factor costs nothing and one that is wrong about kinds of plans is put right.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/search/learning/sample.h"

namespace autodist::search {

class Residual {
 public:
  // From samples that can be simulated; the others are passed over. Deterministic: one thread, no
  // sampling. With fewer than two pairs that are not alike it corrects nothing.
  static Residual fit(const std::vector<Sample>& samples);

  // A model that to_json() wrote. `where` names the source. Throws Error(kUsage) for text that is
  // none, or whose features are not ours.
  static Residual parse(const std::string& text, const std::string& where);
  [[nodiscard]] std::string to_json() const;

  // The simulated time times what was learned for plans like this one: for comparing plans of one
  // graph on one cluster. Above 0. By one thread at a time.
  [[nodiscard]] Seconds correct(const std::vector<double>& features, Seconds simulated) const;
  // The median of measured over corrected time among `samples`; correct() times this is what a step
  // will take.
  [[nodiscard]] double bias(const std::vector<Sample>& samples) const;

  // Measured plans that it was trained on.
  [[nodiscard]] std::size_t samples() const { return samples_; }

 private:
  class Trees;

  double trust_ = 1;  // score per unit of log(simulated): how much the simulator is believed
  std::size_t samples_ = 0;
  std::shared_ptr<const Trees> trees_;  // nullptr: nothing to correct
};

}  // namespace autodist::search
