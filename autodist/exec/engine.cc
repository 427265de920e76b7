#include "autodist/exec/engine.h"

#include <c10/util/Exception.h>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/comm/exchange.h"

namespace autodist::exec {
namespace {

std::string text_of(const std::exception_ptr& reason) {
  try {
    std::rethrow_exception(reason);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "unknown exception";
  }
}

}  // namespace

Engine::Engine(const program::Program& program, program::Rank self,
               const capture::Bindings& bindings, const RunnerConnections& connections,
               const RunnerOptions& options, TraceRecorder& trace, const RankState& start)
    : rank_{program, self, options, signal_, trace},
      link_(rank_),
      calls_(program, self, options.first_step, options.wait_limit, signal_, call_peers()),
      small_collectives_(program, self, signal_, calls_, poster()),
      slices_(rank_, bindings),
      news_(rank_, slices_.variables, small_collectives_, link_),
      jobs_([this](const std::exception_ptr& reason) { abort(reason); }),
      driver_(rank_, slices_, news_, link_, jobs_),
      whole_(rank_, connections.collectives, slices_, news_, driver_),
      held_(rank_, slices_, whole_.all_reduces()),
      gathering_(rank_, bindings.buffers, slices_, held_, small_collectives_, link_, jobs_) {
  if (program.is_placed()) {
    stages_.emplace(program, self, slices_.staging, options.wait_limit, signal_,
                    [this](program::Rank to, program::StageTransferId id, std::uint64_t step,
                           const comm::Payload& payload) {
                      link_.post(to, {Topic::kTransfer, id}, step, payload);
                    });
  }
  if (start.scale) slices_.scaler.set_scale(*start.scale);
  if (!start.rules.empty()) held_.load_rules(start.rules);
  held_.load_owed(start.owed);
  link_.start(connections, [this](const comm::Frame& frame) { take(frame); });
  try {
    jobs_.start();  // now that there is an exchange to post to
  } catch (...) {   // no thread for it
    link_.stop();
    throw;
  }
}

// What the threads use is there until they have ended.
Engine::~Engine() {
  gathering_.await_state_shortly();
  signal_.fail(std::make_exception_ptr(Error(ErrorCode::kPeersLost, comm::kStoppedEarly)));
  gathering_.await_state();
  jobs_.stop();
  link_.stop();
}

PostNote Engine::poster() {
  return [this](std::uint32_t to, Subject subject, std::uint64_t step, const std::string& note) {
    link_.post_note(program::Rank(to), subject, step, note);
  };
}

CallPeers Engine::call_peers() {
  CallPeers peers;
  peers.post = poster();
  peers.show = [this](comm::Position position) { link_.show(position); };
  peers.where = [this](std::uint32_t rank) { return link_.position_of(program::Rank(rank)); };
  peers.say = rank_.options.exchange.say;
  peers.abort = [this](const std::exception_ptr& reason) { abort(reason); };
  return peers;
}

void Engine::take(const comm::Frame& frame) {
  const Topic topic = topic_of(frame.header);
  const std::uint64_t step = frame.header.step;
  if (SliceDriver::takes(topic)) return driver_.take(frame);
  if (Gathering::takes(topic)) return gathering_.take(frame);
  if (topic == Topic::kStepSums) {
    return news_.take_note(program::Rank(frame.header.from), step, frame.payload.to_string());
  }
  if (topic != Topic::kTransfer) return small_collectives_.take(frame);
  AD_CHECK(stages_ && frame.header.id < rank_.program.transfers.size())
      << "transfer " << frame.header.id;
  stages_->take(program::StageTransferId(frame.header.id), step, frame.payload);
}

void Engine::abort(const std::exception_ptr& reason) {
  if (calls_.has_ended() || is_job_end(reason)) return;
  signal_.fail(reason);
  link_.abort(text_of(reason));
}

void Engine::leave(const std::string& reason) {
  gathering_.await_state_shortly();
  signal_.fail(std::make_exception_ptr(Error(ErrorCode::kPeersLost, reason)));
  link_.leave(reason);
}

void Engine::finish(std::uint64_t step) {
  gathering_.await_state();  // the others stay until the chief comes here
  if (rank_.program.ranks.size() == 1) return;
  small_collectives_.leave(step);
  link_.finish();
}

}  // namespace autodist::exec
