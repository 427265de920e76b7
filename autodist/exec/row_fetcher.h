// The rows that this rank asks the owners for: from the fetch to the variable's gate.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "autodist/comm/transport.h"
#include "autodist/exec/signal.h"
#include "autodist/exec/sparse_rows.h"
#include "autodist/ir/program.h"

namespace autodist::exec {

class RowFetcher {
 public:
  // Asks the slice's owner for rows by their numbers (int64, ascending, from 0 within the slice).
  using Ask = std::function<void(ir::SliceId, std::uint64_t step, comm::Payload numbers)>;

  // `program` and `signal` outlive it.
  RowFetcher(const ir::Program& program, Signal& signal, Ask ask);

  // Asks for the rows whose numbers the tensors hold, each once. By the compute thread. REQUIRES:
  // once per variable and step; install() of the step before was called.
  void fetch(ir::VariableId variable, const std::vector<torch::Tensor>& numbers,
             std::uint64_t step);

  // What a slice's owner answered. Any thread. Throws InternalError for what was not asked.
  void take(ir::SliceId slice, std::uint64_t step, comm::Payload rows);

  // Waits for all answers and puts the rows into the variable, whose other rows stay as they are;
  // nothing where none were asked for. By the compute thread. Throws as Signal::wait.
  void install(ir::VariableId variable, torch::Tensor table, Seconds limit);

 private:
  struct Asked {
    RowBlock block;
    std::uint64_t step = 0;
    std::vector<std::int64_t> numbers;  // empty: nothing is asked for
    bool answered = false;              // guarded by the signal's lock, as is `rows`
    comm::Payload rows;
  };

  const ir::Program& program_;
  Signal& signal_;
  Ask ask_;
  std::vector<Asked> asked_;  // by slice
};

}  // namespace autodist::exec
