// Large tensors of the CPU in pages that are kept from step to step.

#pragma once

#include <cstddef>

namespace autodist::exec {

// Has libtorch take CPU tensors of at least `bytes`, the same at every call of a process, from one
// KeptPages; smaller ones come from where they came from before. For the rest of the process. To
// be called before other threads make tensors, as c10::SetAllocator is; again it does nothing.
void keep_large_tensors(std::size_t bytes);

// Gives back what is kept: what a capture held at once is no step's.
void start_large_tensors_over();

}  // namespace autodist::exec
