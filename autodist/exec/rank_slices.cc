#include "autodist/exec/rank_slices.h"

#include <vector>

#include "autodist/exec/tensor_data.h"
#include "autodist/program/host_memory.h"

namespace autodist::exec {
namespace {

// Of all variables, dense and row-major.
class Values {
 public:
  Values(const program::Program& program, const LocalVariables& variables) {
    for (std::size_t i = 0; i < program.variables.size(); ++i) {
      dense_.push_back(variables.dense(ir::VariableId(i)));
      bytes_.push_back(memory_of(dense_.back()));
    }
  }
  [[nodiscard]] const std::vector<const std::byte*>& bytes() const { return bytes_; }

 private:
  std::vector<torch::Tensor> dense_;
  std::vector<const std::byte*> bytes_;
};

}  // namespace

RankSlices::RankSlices(const RankContext& rank, const capture::Bindings& bindings)
    : staging(device_of(*rank.program.graph, bindings), program::kMostPinnedMemory),
      job(rank.program),
      plan(rank.program, job),
      norms(job.norms.parts, rank.signal),
      scaler(program::loss_scaling_of(rank.program), rank.options.first_step, rank.signal),
      variables(rank.program, norms, scaler, rank.options.user_rules, bindings, staging,
                rank.signal),
      owner(rank, job, Values(rank.program, variables).bytes(), plan, norms, scaler),
      contributor(rank.program, staging.device()),
      fetcher(rank.program, rank.signal) {}

}  // namespace autodist::exec
