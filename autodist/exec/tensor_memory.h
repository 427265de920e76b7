// Memory of the CPU's tensors, which is kept from step to step.
//
// A step allocates and frees the same memory again and again: gradients, activations, slices off
// the wire. What glibc gives back to the kernel in between is cleared page by page when it comes
// again, a quarter of the time of a step of few samples.

#pragma once

#include <cstddef>

namespace autodist::exec {

// From here to the end of the process libtorch takes CPU tensors of at least `large` bytes from one
// KeptPages, and smaller ones from the heap by malloc(), aligned by hand (decision 204): where
// malloc() is glibc's and nobody else has given libtorch an allocator. To be called before other
// threads make tensors, as c10::SetAllocator is. A further call does nothing. REQUIRES: every call
// gives equal `large`.
void take_tensor_memory(std::size_t large);

// The heap of this process keeps what is freed, and what is too large for glibc's heaps keeps its
// pages as take_tensor_memory() has it.
void keep_freed_memory();

// Gives back what is kept of large tensors: what a capture held at once is no step's.
void start_large_tensors_over();

}  // namespace autodist::exec
