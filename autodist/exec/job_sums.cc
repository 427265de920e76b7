#include "autodist/exec/job_sums.h"

#include <fmt/format.h>

#include <utility>

namespace autodist::exec {

std::shared_ptr<const StepSums> JobSums::open(std::uint64_t step) {
  auto sums = std::make_shared<StepSums>(step);
  const MutexLock lock(signal_);
  open_[step] = sums;
  return sums;
}

void JobSums::put(std::uint64_t step, std::vector<double> sums) {
  {
    const MutexLock lock(signal_);
    const auto found = open_.find(step);
    if (found == open_.end()) return;
    StepSums& filled = *found->second;
    if (!sums.empty()) {
      filled.samples_ = static_cast<std::int64_t>(sums.front());
      sums.erase(sums.begin());
    }
    filled.sums_ = std::move(sums);
    filled.known_.store(true, std::memory_order_release);
    open_.erase(found);
  }
  signal_.notify();
}

void JobSums::await_all_before(std::uint64_t step, Seconds limit) {
  const MutexLock lock(signal_);
  signal_.wait(
      limit, [&]() AD_REQUIRES(signal_) { return open_.empty() || open_.begin()->first >= step; },
      [&]() AD_REQUIRES(signal_) {
        return fmt::format(
            "step {}: another rank has not computed it, and this one is {} steps on.",
            open_.begin()->first, step - open_.begin()->first);
      });
}

void JobSums::await(const StepSums& sums, Seconds limit) {
  const MutexLock lock(signal_);
  signal_.wait(
      limit, [&] { return sums.known(); },
      [&] {
        return fmt::format("step {}: another rank's part of the loss is missing.", sums.step());
      });
}

std::optional<std::map<std::uint32_t, std::string>> JobSums::take_note(std::uint64_t step,
                                                                       std::uint32_t from,
                                                                       std::size_t ranks,
                                                                       std::string note) {
  const MutexLock lock(signal_);
  auto& notes = notes_[step];
  notes[from] = std::move(note);
  if (notes.size() < ranks) return std::nullopt;
  return std::move(notes_.extract(step).mapped());
}

}  // namespace autodist::exec
