// Memory of the CPU's tensors that is kept from step to step.
//
// A step allocates and frees the same memory again and again: gradients, activations, slices off
// the wire. What glibc gives back to the kernel in between is cleared page by page when it comes
// again, a quarter of the time of a step of few samples.

#pragma once

#include <cstddef>

namespace autodist::exec {

// From here to the end of the process libtorch takes CPU tensors of at least `bytes` from one
// KeptPages, and smaller ones from its own allocator. To be called before other threads make
// tensors, as c10::SetAllocator is. A further call does nothing. REQUIRES: every call gives equal
// `bytes`.
void keep_large_tensors(std::size_t bytes);

// The heap of this process keeps what is freed, and what is too large for glibc's heaps keeps its
// pages as keep_large_tensors() has it.
void keep_freed_memory();

// Gives back what is kept: what a capture held at once is no step's.
void start_large_tensors_over();

}  // namespace autodist::exec
