// Random training graphs of three families, after those of Placeto's paper, whose own files are not
// public any more.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/search/placement/task_graph.h"

namespace autodist::search::placement {

// "cells": a stack of ENAS-like cells, each of five nodes that read two random earlier ones (image
// classification). "attention": an attention encoder-decoder (translation). "recurrent": layers of
// recurrent cells unrolled over time, with a softmax per step (language model).
std::vector<std::string> families();

// A graph of about 300 tasks, forward and backward, costs in µs and tensors in bytes; sizes and
// wiring follow from the seed. Throws Error(kUsage) for an unknown family.
TaskGraph generate(const std::string& family, std::uint64_t seed);

}  // namespace autodist::search::placement
