// The rows that this rank asks the owners for, or whole variables: from the fetch to the variable's
// gate.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "autodist/comm/transport.h"
#include "autodist/exec/signal.h"
#include "autodist/exec/sparse_rows.h"
#include "autodist/program/program.h"

namespace autodist::exec {

class RowFetcher {
 public:
  // `program` and `signal` outlive it.
  RowFetcher(const program::Program& program, Signal& signal);

  // Rows of a slice that its owner is to be asked for.
  struct Wanted {
    program::SliceId slice;
    comm::Payload numbers;  // int64, ascending, from 0 within the slice
  };
  // The rows whose numbers the tensors (on the host) hold, each once. Nothing where the last call
  // was in this step and for these rows: they are here, or on their way. By the compute thread.
  // REQUIRES: for other rows, take_answers() was called since the last call.
  [[nodiscard]] std::vector<Wanted> want(ir::VariableId variable,
                                         const std::vector<torch::Tensor>& numbers,
                                         std::uint64_t step);

  // What a slice's owner answered. Any thread. Throws InternalError for what was not asked.
  void take(program::SliceId slice, std::uint64_t step, comm::Payload rows);

  // What came for a variable, each once: slices of a whole one, of a table rows by their numbers in
  // it. REQUIRES: all answers are here.
  struct Answers {
    std::vector<std::pair<program::SliceId, comm::Payload>> slices;
    std::vector<Rows> rows;
  };
  [[nodiscard]] Answers take_answers(ir::VariableId variable);

  // What a variable waits for: "12 rows of rank 1 (10.0.0.2) are missing", or nothing.
  [[nodiscard]] std::string missing_rows(ir::VariableId variable) const AD_ASSERTS_HELD(signal_);

 private:
  struct Wish {
    std::uint64_t step;
    std::vector<std::int64_t> rows;
  };
  struct Asked {
    std::uint64_t step = 0;
    std::vector<std::int64_t> numbers;  // empty: nothing is asked for
    bool answered = false;
    comm::Payload rows;
  };

  // Whether all elements of the variable are asked for.
  [[nodiscard]] bool is_whole(ir::VariableId variable) const;

  const program::Program& program_;
  Signal& signal_;
  std::vector<RowBlock> blocks_;                     // by slice
  std::vector<std::optional<Wish>> last_;            // by variable
  std::vector<Asked> asked_ AD_GUARDED_BY(signal_);  // by slice
};

}  // namespace autodist::exec
