// From what a link can do to how slices use it: docs/tuning.md has the measurement behind the rule.

#pragma once

#include "autodist/base/clock.h"
#include "autodist/base/units.h"
#include "autodist/comm/link_probe.h"
#include "autodist/strategy/strategy.h"

namespace autodist::app {

// What may be on its way over one network card, in windows: more than one, so that a slow
// destination does not hold up the others.
inline constexpr std::int64_t kWindowsPerCard = 4;

struct LinkTuning {
  Bytes slice;
  Bytes window;

  friend bool operator==(const LinkTuning& a, const LinkTuning& b) {
    return a.slice == b.slice && a.window == b.window;
  }
};

// slice: the power of two from which on a message's cost is at most 3 % of its time on the wire;
// window: two slices, or what the link carries until an acknowledgement is back from a receiver
// that is busy computing. Powers of two: a job that measures again finds the same.
LinkTuning tune(const comm::LinkFigures& figures);

// Fills in what the strategy leaves open.
void put_tuning(const comm::LinkFigures& figures, strategy::Strategy& strategy);

// CPU time of this process.
class ProcessCpuClock final : public Clock {
 public:
  [[nodiscard]] Seconds now() const override;
};

}  // namespace autodist::app
