// What kernels allocate for themselves, measured where a job has its own memory for tensors.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "autodist/capture/capture.h"
#include "autodist/exec/tensor_memory.h"
#include "autodist/models/catalogue.h"

namespace autodist {
namespace {

// By op, at the example's batch.
std::vector<std::int64_t> scratch_of(const std::string& model) {
  const ir::Graph graph = capture::capture_step(models::make_model(model, {}));
  std::vector<std::int64_t> bytes;
  bytes.reserve(graph.ops.size());
  for (const ir::Op& op : graph.ops) bytes.push_back(op.cost.scratch.at(graph.example_batch));
  return bytes;
}

TEST(Scratch, IsTheSameWithinAJob) {
  const std::vector<std::int64_t> before = scratch_of("vgg-small");
  exec::keep_freed_memory();
  EXPECT_EQ(scratch_of("vgg-small"), before);
  EXPECT_GT(*std::max_element(before.begin(), before.end()), 0);
}

}  // namespace
}  // namespace autodist
