#include "autodist/ir/loss_scaling.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autodist/base/error.h"

namespace autodist::ir {
namespace {

TEST(LossScaling, ReadsItsText) {
  EXPECT_EQ(parse_loss_scaling("dynamic"), LossScaling());
  const LossScaling own = parse_loss_scaling("dynamic:scale=1024,growth=4,backoff=0.25,interval=7");
  EXPECT_EQ(own, (LossScaling{1024, 4, 0.25, 7}));
  const LossScaling fixed = parse_loss_scaling("128");
  EXPECT_EQ(fixed, (LossScaling{128, 1, 1, 2000}));
  for (const LossScaling& each : {LossScaling(), own, fixed}) {
    EXPECT_EQ(parse_loss_scaling(to_string(each)), each) << to_string(each);
  }
}

TEST(LossScaling, RefusesWhatIsNone) {
  for (const char* text :
       {"", "much", "0", "-3", "inf", "nan", "dynamics", "dynamic:", "dynamic:scale",
        "dynamic:scale=0", "dynamic:growth=0.5", "dynamic:backoff=0", "dynamic:backoff=1.5",
        "dynamic:interval=0", "dynamic:interval=1.5", "dynamic:scale=1,"}) {
    EXPECT_THROW(parse_loss_scaling(text), Error) << text;
  }
  try {
    parse_loss_scaling("dynamic:intervall=3");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'interval'"), std::string::npos);
  }
}

// _amp_update_scale_, written plainly.
void plain_update(float& scale, int& tracker, bool found_inf, double growth, double backoff,
                  int interval) {
  if (found_inf) {
    scale = static_cast<float>(scale * backoff);
    tracker = 0;
    return;
  }
  const int successful = tracker + 1;
  if (successful == interval) {
    const auto grown = static_cast<float>(scale * growth);
    if (std::isfinite(grown)) scale = grown;
    tracker = 0;
  } else {
    tracker = successful;
  }
}

TEST(LossScaling, FollowsGradScaler) {
  for (const char* text : {"dynamic:interval=3", "dynamic:scale=3e38,interval=1",
                           "dynamic:scale=0.7,growth=1.7,backoff=0.3,interval=2", "8"}) {
    const LossScaling scaling = parse_loss_scaling(text);
    LossScale ours = first_scale(scaling);
    float scale = scaling.scale;
    int tracker = 0;
    std::int64_t skipped = 0;
    for (int step = 0; step < 200; ++step) {
      const bool overflow = step * 7919 % 11 < 2;
      plain_update(scale, tracker, overflow, scaling.growth, scaling.backoff,
                   static_cast<int>(scaling.interval));
      skipped += overflow ? 1 : 0;
      ours = next_scale(scaling, ours, overflow);
      ASSERT_EQ(ours, (LossScale{scale, tracker, skipped})) << text << " step " << step;
    }
  }
}

}  // namespace
}  // namespace autodist::ir
