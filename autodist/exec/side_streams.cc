#include "autodist/exec/side_streams.h"

#include <exception>
#include <string>
#include <variant>

#include "autodist/base/error.h"
#include "autodist/capture/op_call.h"
#include "autodist/exec/device/queue.h"

namespace autodist::exec {

SideStreams::SideStreams(Engine& engine) : engine_(engine), signal_(engine.signal()) {
  for (const program::Stream& stream : role_of(engine.rank().program, engine.rank().self).streams) {
    if (stream.kind == program::StreamKind::kCompute || stream.instructions.empty()) continue;
    threads_.emplace_back([this, &stream] { run(stream); });
  }
}

SideStreams::~SideStreams() {
  signal_.fail(std::make_exception_ptr(Error(ErrorCode::kPeersLost, "run: this rank is leaving.")));
  for (std::thread& thread : threads_) thread.join();
}

void SideStreams::start(std::uint64_t step) {
  if (threads_.empty()) return;
  {
    const MutexLock lock(signal_);
    steps_started_ = step + 1;
  }
  signal_.notify();
}

void SideStreams::run(const program::Stream& stream) {
  const capture::BelowAutograd below_autograd;
  const Queue::Scope here(Queue::for_copies(engine_.slices().staging.device()));
  try {
    for (std::uint64_t step = engine_.rank().options.first_step;; ++step) {
      wait_for_start(step);
      for (const program::Instruction& instruction : stream.instructions) {
        if (const auto* reduce = std::get_if<program::AllReduce>(&instruction)) {
          engine_.whole().all_reduce(reduce->collective, step);
        } else if (const auto* update = std::get_if<program::Update>(&instruction)) {
          engine_.whole().update({update->variable}, step);
        }
      }
    }
  } catch (...) {
    // Where a failure has ended a wait of this thread, the run ends for that one already.
    if (!signal_.failure()) engine_.abort(std::current_exception());
  }
}

void SideStreams::wait_for_start(std::uint64_t step) {
  const MutexLock lock(signal_);
  signal_.wait(
      kYears, [&]() AD_REQUIRES(signal_) { return steps_started_ > step; },
      [] { return std::string("run: no further step."); }, Heeds::kFailure);
}

}  // namespace autodist::exec
