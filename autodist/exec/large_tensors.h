// Large tensors of the CPU in pages that are kept from step to step.

#pragma once

#include <cstddef>

namespace autodist::exec {

// From here to the end of the process libtorch takes CPU tensors of at least `bytes` from one
// KeptPages, and smaller ones from its own allocator. To be called before other threads make
// tensors, as c10::SetAllocator is. A further call does nothing. REQUIRES: every call gives equal
// `bytes`.
void keep_large_tensors(std::size_t bytes);

// Gives back what is kept: what a capture held at once is no step's.
void start_large_tensors_over();

}  // namespace autodist::exec
