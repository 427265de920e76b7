#include "autodist/exec/nonfinite.h"

#include "autodist/capture/other_way.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/finite.h"
#include "autodist/exec/tensor_data.h"

namespace autodist::exec {

bool is_finite(const torch::Tensor& tensor) {
  if (tensor.is_sparse()) return is_finite(tensor._values());
  if (!tensor.is_cpu() || !tensor.is_contiguous())
    return torch::isfinite(tensor).all().item<bool>();
  return all_finite(memory_of(tensor), dtype_of(tensor.scalar_type()), tensor.numel());
}

std::string first_nonfinite(Replay& replay, const Batch& rows, std::uint64_t seed, ir::OpId last) {
  const ir::Graph& graph = replay.graph();
  for (const ir::Variable& variable : graph.variables) {
    if (!is_finite(replay.tensor(variable.value))) {
      return fmt::format("variable '{}' is not finite since an earlier update", variable.name);
    }
  }
  replay.begin(rows, seed);
  for (std::uint32_t i = 0; i <= last.value; ++i) {
    try {
      replay.run(ir::OpId(i));
    } catch (const capture::OtherWay&) {  // by a buffer that is another one by now
      return "it goes another way when it is run again";
    }
    bool finite = true;
    ir::for_each_result(graph.ops[i], [&](ir::ValueId result) {
      const torch::Tensor& tensor = replay.tensor(result);
      finite = finite && (!tensor.defined() || is_finite(tensor));
    });
    if (finite) continue;
    const std::string& scope = graph.scopes[graph.ops[i].scope.value];
    return fmt::format("first in {}{}{}", graph.ops[i].name, scope.empty() ? "" : " of ", scope);
  }
  return "no single op stands out";
}

}  // namespace autodist::exec
