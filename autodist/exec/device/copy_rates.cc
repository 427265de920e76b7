#include "autodist/exec/device/copy_rates.h"

#include <torch/types.h>

#include <algorithm>

#include "autodist/base/clock.h"
#include "autodist/exec/device/queue.h"
#include "autodist/exec/device/staging.h"

namespace autodist::exec {
namespace {

constexpr int kRepetitions = 8;

class Measured {
 public:
  Measured(torch::Device device, Bytes size)
      : size_(size),
        staging_(device, size * 2),
        up_(Queue::for_copies(device)),
        down_(Queue::for_copies(device)),
        source_(staging_.take({size.value}, torch::kUInt8)),
        target_(staging_.take({size.value}, torch::kUInt8)),
        filled_(torch::zeros({size.value}, torch::dtype(torch::kUInt8).device(device))),
        read_(torch::zeros({size.value}, torch::dtype(torch::kUInt8).device(device))) {
    Queue::current(device).record().block_host(WaitSite::kRateBegin);
  }

  double rate(bool up, bool down) {
    double best = 0;
    for (int i = 0; i < kRepetitions; ++i) {
      const Seconds start = clock_.now();
      const Mark arrived = up ? copy(up_, source_, filled_) : Mark();
      const Mark left = down ? copy(down_, read_, target_) : Mark();
      arrived.block_host(WaitSite::kRateUp);
      left.block_host(WaitSite::kRateDown);
      const double bytes = static_cast<double>(size_.value) * (up && down ? 2 : 1);
      best = std::max(best, bytes / (clock_.now() - start).value);
    }
    return best;
  }

 private:
  static Mark copy(const Queue& queue, const torch::Tensor& from, torch::Tensor& to) {
    const Queue::Scope here(queue);
    to.copy_(from, /*non_blocking=*/true);
    return queue.record();
  }

  const Bytes size_;
  SteadyClock clock_;
  Staging staging_;
  const Queue up_;
  const Queue down_;
  torch::Tensor source_;
  torch::Tensor target_;
  torch::Tensor filled_;
  torch::Tensor read_;
};

}  // namespace

CopyRates measure_copies(const std::string& device, Bytes size) {
  const torch::NoGradGuard no_gradients;
  Measured measured(torch::Device(device), size);
  return {measured.rate(true, false), measured.rate(false, true), measured.rate(true, true)};
}

}  // namespace autodist::exec
