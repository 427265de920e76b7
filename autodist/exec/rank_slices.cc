#include "autodist/exec/rank_slices.h"

#include <vector>

namespace autodist::exec {
namespace {

// Of all variables, dense and row-major.
class Values {
 public:
  Values(const program::Program& program, const LocalVariables& variables) {
    for (std::size_t i = 0; i < program.variables.size(); ++i) {
      dense_.push_back(variables.dense(ir::VariableId(i)));
      bytes_.push_back(static_cast<const std::byte*>(dense_.back().data_ptr()));
    }
  }
  [[nodiscard]] const std::vector<const std::byte*>& bytes() const { return bytes_; }

 private:
  std::vector<torch::Tensor> dense_;
  std::vector<const std::byte*> bytes_;
};

}  // namespace

RankSlices::RankSlices(const program::Program& program, program::Rank self,
                       const capture::Bindings& bindings, const RunnerOptions& options,
                       Signal& signal)
    : job(program),
      plan(program, job),
      norms(job.norms.parts, signal),
      scaler(program::loss_scaling_of(program), options.first_step, signal),
      variables(program, norms, scaler, options.user_rules, bindings, signal),
      owner(program, job, self, options.first_step, Values(program, variables).bytes(), plan, norms,
            scaler, options.user_rules, signal),
      contributor(program),
      fetcher(program, signal) {}

}  // namespace autodist::exec
