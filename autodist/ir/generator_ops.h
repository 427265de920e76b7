// Names of the ops around one that draws the same random numbers as an earlier one, as a dropout
// does that the backward pass computes again.

#pragma once

namespace autodist::ir {

// (device, generator) to the generator's state, and (device, generator, state) to the state that it
// had before. Both are random, and so keep their places among what draws.
inline constexpr char kKeepGeneratorOp[] = "autodist::generator_state";
inline constexpr char kSetGeneratorOp[] = "autodist::set_generator_state";

}  // namespace autodist::ir
