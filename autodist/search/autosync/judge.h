// The dear judge: the simulator. A strategy is rewritten into its Program, which is simulated; what
// cannot be carried out is an answer, not an error.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodist/passes/pipeline.h"
#include "autodist/sim/simulator.h"

namespace autodist::search {

struct Judgement {
  Seconds step;               // simulated, and corrected where measurements say otherwise
  Seconds simulated;          // not corrected
  bool in_full = true;        // else its first steps showed that it is not the best
  bool by_library = false;    // it has all-reduces by a library
  bool symmetric = false;     // some ranks stood for others, so that it took less time
  Seconds plan_bound;         // no schedule of this plan is faster
  Seconds problem_bound;      // no synchronous strategy is
  std::string bound;          // what sets the plan's: "compute", "10.0.0.1 sends", …
  Bytes peak;                 // of the fullest device
  Bytes missing;              // by how much it does not fit; 0: it fits
  std::vector<double> waits;  // seconds per step, by variable

  [[nodiscard]] bool fits() const { return missing == Bytes{0}; }
  // What fits before what does not, then by time.
  friend bool operator<(const Judgement& a, const Judgement& b) {
    return a.fits() != b.fits()  ? a.fits()
           : !(a.step == b.step) ? a.step < b.step
                                 : a.in_full && !b.in_full;
  }
};

class Judge {
 public:
  using Costs = std::function<sim::CostModel(const program::Program&)>;
  // What a plan will take, from what was measured of others (learning/residual.h).
  using Correct = std::function<Seconds(const strategy::Strategy&, const program::Program&,
                                        const sim::Simulation&)>;

  // `cluster` must outlive the judge. `costs` may throw as sim::cost_model does.
  Judge(std::shared_ptr<const ir::Graph> graph, const cluster::Cluster& cluster,
        passes::Options options, Costs costs, sim::SimulationOptions how = {},
        Correct correct = {});

  // Fixes the strategy's priorities, as planning does. Nothing where the passes refuse it, with
  // their reason in `why_not`.
  //
  // The simulation ends as soon as it shows that a step takes more than `hopeless`; 0: in full.
  std::optional<Judgement> operator()(const strategy::Strategy& strategy, std::string& why_not,
                                      Seconds hopeless = {}) const;

  [[nodiscard]] program::Program program_of(strategy::Strategy strategy) const;
  [[nodiscard]] sim::CostModel costs_of(const program::Program& program) const {
    return costs_(program);
  }

 private:
  std::shared_ptr<const ir::Graph> graph_;
  const cluster::Cluster& cluster_;
  passes::Options options_;
  Costs costs_;
  sim::SimulationOptions how_;
  Correct correct_;
};

}  // namespace autodist::search
