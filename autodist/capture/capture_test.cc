#include "autodist/capture/capture.h"

#include <gtest/gtest.h>

#include "autodist/base/error.h"
#include "autodist/capture/test_models.h"

namespace autodist::capture {
namespace {

TEST(Capture, AConvolutionalNetworkWithBatchNormAndDropoutReplaysToTheBit) {
  expect_replays_at_any_batch(convolutional_network(), 5);
}

TEST(Capture, ATransformerEncoderReplaysToTheBit) { expect_replays_at_any_batch(transformer(), 5); }

TEST(Capture, AnLstmReplaysToTheBit) { expect_replays_at_any_batch(lstm(), 5); }

TEST(Capture, ASparseEmbeddingReplaysToTheBitAndItsGradientIsSparse) {
  const TrainingStep step = sparse_embedding();
  expect_replays_at_any_batch(step, 5);
  EXPECT_TRUE(capture_step(step).variables[0].sparse_gradient);
}

}  // namespace
}  // namespace autodist::capture
