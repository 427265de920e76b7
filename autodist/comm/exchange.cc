// One mutex guards what both threads and the callers share; it is never held while a frame is sent,
// received or handled. The sending thread owns the order (outbox), the receiving thread owns
// admission and the peers' heartbeats.

#include "autodist/comm/exchange.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "autodist/base/background.h"
#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/mutex.h"
#include "autodist/comm/admission.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/assembly.h"
#include "autodist/comm/failure_detector.h"
#include "autodist/comm/outbox.h"

namespace autodist::comm {
namespace {

constexpr double kNanoseconds = 1e9;   // the unit of the time that an acknowledgement carries
constexpr int kLongestBurst = 8;       // of frames, before the sender hears of them
constexpr Seconds kLongestWait{0.02};  // of the receiving thread, before it looks around

// Acknowledgements carry the kind of what they answer; these bytes live as long as the program.
constexpr std::array<std::byte, kKindLimit> kKinds = [] {
  std::array<std::byte, kKindLimit> kinds{};
  for (std::size_t i = 0; i < kinds.size(); ++i) kinds[i] = static_cast<std::byte>(i);
  return kinds;
}();

std::string reason_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an unknown error";
  }
}

}  // namespace

class Exchange::Impl {
 public:
  Impl(Transport& transport, const Clock& clock, ExchangeOptions options, Handlers handlers);
  ~Impl();

  void post(RankNumber to, Outgoing outgoing);
  [[nodiscard]] std::exception_ptr failure() const {
    const MutexLock lock(mutex_);
    return failure_;
  }
  void on_failure(std::function<void()> wake);
  [[nodiscard]] ExchangeCounters counters() const {
    const MutexLock lock(mutex_);
    return counters_;
  }
  [[nodiscard]] std::optional<ClockDifference> clock_of(RankNumber peer) const {
    const MutexLock lock(mutex_);
    return clocks_.at(peer);
  }
  void set_position(Position position) {
    const MutexLock lock(mutex_);
    position_ = position;
  }
  [[nodiscard]] std::optional<Position> position_of(RankNumber peer) const {
    const MutexLock lock(mutex_);
    return positions_.at(peer);
  }
  void finish(Seconds limit);
  void leave(const std::string& reason);

 private:
  // The sending thread.
  void send_loop();
  [[nodiscard]] std::vector<Addressed> due(Seconds now) AD_REQUIRES(mutex_);
  [[nodiscard]] std::vector<Addressed> to_all(FrameKind kind, const std::string& payload) const;
  void send(std::vector<Addressed> batch);
  void say_farewell();

  // The receiving thread.
  void receive_loop();
  void take(Frame frame, Seconds now);
  void take_message(Frame frame, Seconds now);
  // True where a frame, or with it the last piece of a message, came for the first time: then
  // `frame` is the whole message.
  bool admit(Frame& frame);
  void take_acknowledgement(const Frame& frame, Seconds now);
  void compare_clocks(RankNumber peer, Seconds left, Seconds there, Seconds now)
      AD_REQUIRES(mutex_);
  void take_goodbye(const Frame& frame);
  void check_heartbeats(Seconds now);
  void say_news(Seconds now);

  void fail_with(const std::exception_ptr& failure);
  void stop();
  [[nodiscard]] bool stopping() const {
    const MutexLock lock(mutex_);
    return stop_;
  }
  [[nodiscard]] bool all_said_goodbye() const AD_REQUIRES(mutex_);
  [[nodiscard]] std::string whom_we_wait_for() const AD_REQUIRES(mutex_);

  Transport& transport_;
  const Clock& clock_;
  const ExchangeOptions options_;
  const Handlers handlers_;

  mutable Mutex mutex_;
  ConditionVariable work_;   // for the sending thread
  ConditionVariable ended_;  // for finish()
  Outbox outbox_ AD_GUARDED_BY(mutex_);
  std::vector<Addressed> urgent_ AD_GUARDED_BY(mutex_);  // acknowledgements: bypass the window
  ExchangeCounters counters_ AD_GUARDED_BY(mutex_);
  std::vector<std::optional<ClockDifference>> clocks_ AD_GUARDED_BY(mutex_);  // by peer
  Position position_ AD_GUARDED_BY(mutex_);
  std::vector<std::optional<Position>> positions_ AD_GUARDED_BY(mutex_);  // by peer
  bool finishing_ AD_GUARDED_BY(mutex_) = false;  // say goodbye when the outbox is empty
  bool said_goodbye_ AD_GUARDED_BY(mutex_) = false;
  std::vector<bool> peer_said_goodbye_ AD_GUARDED_BY(mutex_);
  bool stop_ AD_GUARDED_BY(mutex_) = false;
  // The reason to tell the peers when stopping.
  std::optional<std::string> farewell_ AD_GUARDED_BY(mutex_);
  std::exception_ptr failure_ AD_GUARDED_BY(mutex_);
  std::function<void()> wake_ AD_GUARDED_BY(mutex_);

  // Used by the sending thread alone.
  Seconds next_heartbeat_;

  // Used by the receiving thread alone.
  FailureDetector failures_;
  std::vector<std::map<FrameKind, Admission>> admissions_;  // by peer and kind
  Assembly assembly_;
  std::vector<Frame> for_later_readers_;
  int untold_ = 0;  // frames that give the sender something to do

  Mutex joining_;  // a stream and the compute thread may both give up
  std::thread sender_;
  std::thread receiver_;
};

Exchange::Impl::Impl(Transport& transport, const Clock& clock, ExchangeOptions options,
                     Handlers handlers)
    : transport_(transport),
      clock_(clock),
      options_(options),
      handlers_(std::move(handlers)),
      outbox_(transport.self(), transport.size(), options,
              options.heartbeat * options.missed_heartbeats),
      clocks_(transport.size()),
      positions_(transport.size()),
      peer_said_goodbye_(transport.size(), false),
      next_heartbeat_(clock.now()),
      failures_(transport.self(), transport.size(), options.silence_limit, options.first_contact,
                clock.now(), options.name),
      admissions_(transport.size()),
      assembly_(options.piece) {
  AD_CHECK(options.heartbeat > Seconds{0} && options.missed_heartbeats > 0) << "no heartbeats";
  peer_said_goodbye_[transport.self()] = true;
  const BackgroundThreads from_here;
  sender_ = std::thread([this] { send_loop(); });
  receiver_ = std::thread([this] { receive_loop(); });
}

Exchange::Impl::~Impl() {
  leave(kStoppedEarly);
  transport_.give_back(std::move(for_later_readers_));
}

// The callers' side.

void Exchange::Impl::post(RankNumber to, Outgoing outgoing) {
  {
    const MutexLock lock(mutex_);
    // A rank that finishes has all that it waits for, and so have its peers; what its other threads
    // still answer, nobody misses.
    if (failure_ || farewell_ || said_goodbye_) return;
    outbox_.post(to, std::move(outgoing), clock_.now());
  }
  work_.notify_one();
}

void Exchange::Impl::on_failure(std::function<void()> wake) {
  {
    const MutexLock lock(mutex_);
    if (!failure_) {
      wake_ = std::move(wake);
      return;
    }
  }
  wake();
}

void Exchange::Impl::finish(Seconds limit) {
  bool ended = false;
  std::exception_ptr failure;
  std::string missing;
  {
    const MutexLock lock(mutex_);
    finishing_ = true;
    work_.notify_one();
    ended = ended_.wait_for(mutex_, limit, [this]() AD_REQUIRES(mutex_) {
      return failure_ != nullptr || (said_goodbye_ && all_said_goodbye());
    });
    failure = failure_;
    if (!ended) missing = whom_we_wait_for();
  }
  if (failure || ended) stop();
  if (failure) std::rethrow_exception(failure);
  if (ended) return;
  const std::string reason = fmt::format("waited {} for {}", to_string(limit), missing);
  leave(reason);
  fail(ErrorCode::kTimeout, "end of the exchange: {}", reason);
}

void Exchange::Impl::leave(const std::string& reason) {
  {
    const MutexLock lock(mutex_);
    if (!stop_) farewell_ = reason;
  }
  stop();
}

void Exchange::Impl::stop() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  work_.notify_one();
  const MutexLock joining(joining_);
  if (sender_.joinable()) sender_.join();
  if (receiver_.joinable()) receiver_.join();
}

void Exchange::Impl::fail_with(const std::exception_ptr& failure) {
  std::function<void()> wake;
  {
    const MutexLock lock(mutex_);
    if (stop_) return;
    failure_ = failure;
    farewell_ = reason_of(failure);
    stop_ = true;
    wake = std::move(wake_);
  }
  work_.notify_one();
  ended_.notify_all();
  if (wake) wake();
}

bool Exchange::Impl::all_said_goodbye() const {
  return std::all_of(peer_said_goodbye_.begin(), peer_said_goodbye_.end(),
                     [](bool b) { return b; });
}

std::string Exchange::Impl::whom_we_wait_for() const {
  std::vector<std::string> names;
  for (RankNumber rank = 0; rank < peer_said_goodbye_.size(); ++rank) {
    if (rank == transport_.self()) continue;
    const std::size_t pending = outbox_.pending(rank);
    if (pending > 0) {
      names.push_back(fmt::format("{} to take {} messages", transport_.describe(rank), pending));
    } else if (!peer_said_goodbye_[rank]) {
      names.push_back(fmt::format("the goodbye of {}", transport_.describe(rank)));
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// The sending thread.

void Exchange::Impl::send_loop() {
  try {
    MutexLock lock(mutex_);
    while (!stop_) {
      const Seconds now = clock_.now();
      std::vector<Addressed> batch = due(now);
      if (batch.empty()) {
        work_.wait_for(mutex_, std::max(Seconds{0}, next_heartbeat_ - now));
        continue;
      }
      lock.unlock();
      send(std::move(batch));
      lock.lock();
    }
  } catch (...) {
    fail_with(std::current_exception());
  }
  say_farewell();
}

// What leaves now: signs of life and acknowledgements before slices, and one slice at a time, so
// that the next decision knows what came meanwhile.
std::vector<Addressed> Exchange::Impl::due(Seconds now) {
  std::vector<Addressed> batch = std::exchange(urgent_, {});
  if (now >= next_heartbeat_) {
    next_heartbeat_ = now + options_.heartbeat;
    for (Addressed& beat : to_all(FrameKind::kHeartbeat, "")) {
      beat.frame.header.step = position_.step;
      beat.frame.header.id = position_.place;
      batch.push_back(std::move(beat));
    }
    for (Addressed& late : outbox_.overdue(now)) batch.push_back(std::move(late));
  }
  if (!batch.empty()) return batch;
  if (auto slice = outbox_.next(now)) {
    batch.push_back(std::move(*slice));
  } else if (finishing_ && !said_goodbye_ && outbox_.empty()) {
    batch = to_all(FrameKind::kGoodbye, "");
    said_goodbye_ = true;
    ended_.notify_all();
  }
  return batch;
}

std::vector<Addressed> Exchange::Impl::to_all(FrameKind kind, const std::string& payload) const {
  std::vector<Addressed> batch;
  for (RankNumber rank = 0; rank < transport_.size(); ++rank) {
    if (rank == transport_.self()) continue;
    Frame frame;
    frame.header.kind = kind;
    frame.header.generation = options_.generation;
    frame.header.from = transport_.self();
    frame.payload = Payload::copy_of(payload);
    batch.push_back({rank, std::move(frame)});
  }
  return batch;
}

void Exchange::Impl::send(std::vector<Addressed> batch) {
  std::uint64_t payload_bytes = 0;
  for (Addressed& addressed : batch) {
    if (is_message(addressed.frame.header.kind)) payload_bytes += addressed.frame.payload.size;
    transport_.send(addressed.to, std::move(addressed.frame));
  }
  const MutexLock lock(mutex_);
  counters_.payload_bytes_sent += payload_bytes;
}

void Exchange::Impl::say_farewell() {
  std::optional<std::string> reason;
  {
    const MutexLock lock(mutex_);
    reason = farewell_;
  }
  if (!reason) return;
  for (Addressed& goodbye : to_all(FrameKind::kGoodbye, *reason)) {
    try {
      transport_.send(goodbye.to, std::move(goodbye.frame));
    } catch (const std::exception&) {
      // The reason that we leave for is the one to report; who cannot be told finds out by silence.
    }
  }
}

// The receiving thread.

void Exchange::Impl::receive_loop() {
  try {
    const Seconds wait = std::min(options_.heartbeat * 0.25, kLongestWait);
    Seconds before = clock_.now();
    while (!stopping()) {
      // What is there already is taken before the sender is woken: once for all of it.
      std::optional<Frame> frame = transport_.receive(untold_ == 0 ? wait : Seconds{0});
      if (untold_ == kLongestBurst || (untold_ > 0 && !frame)) {
        untold_ = 0;
        work_.notify_one();
      }
      const Seconds now = clock_.now();
      // A handler that took long, or a process that was suspended.
      if (now - before > options_.heartbeat) failures_.deaf_until(now);
      before = now;
      if (frame) take(std::move(*frame), now);
      check_heartbeats(now);
    }
  } catch (...) {
    fail_with(std::current_exception());
  }
}

void Exchange::Impl::take(Frame frame, Seconds now) {
  const FrameHeader& header = frame.header;
  AD_CHECK(header.from < transport_.size() && header.from != transport_.self())
      << "frame from rank " << header.from;
  const FrameUse use = use_of(header, options_.generation);
  if (use == FrameUse::kRefused) {
    const MutexLock lock(mutex_);
    ++counters_.frames_refused;
    return;
  }
  failures_.heard(header, now);
  if (use == FrameUse::kSignOfLife) return;
  if (use == FrameUse::kLater) {
    for_later_readers_.push_back(std::move(frame));
    return;
  }
  if (header.kind == FrameKind::kHeartbeat) {
    const MutexLock lock(mutex_);
    positions_[header.from] = Position{header.step, header.id};
  }
  if (header.kind == FrameKind::kAcknowledge) take_acknowledgement(frame, now);
  if (header.kind == FrameKind::kGoodbye) take_goodbye(frame);
  if (is_message(header.kind)) take_message(std::move(frame), now);
}

bool Exchange::Impl::admit(Frame& frame) {
  FrameHeader& header = frame.header;
  Admission& admission = admissions_[header.from][header.kind];
  if (header.pieces == 1) return admission.admit(header.step, header.id);
  if (admission.came(header.step, header.id)) return false;
  Assembly::Taken taken = assembly_.add(frame);
  if (!taken.whole) return taken.first;
  header.piece = 0;
  header.pieces = 1;
  frame.payload = std::move(*taken.whole);
  frame.rider = std::move(taken.rider);
  return admission.admit(header.step, header.id);
}

void Exchange::Impl::take_message(Frame frame, Seconds now) {
  const auto kind = static_cast<std::size_t>(frame.header.kind);
  Addressed acknowledgement{frame.header.from, {frame.header, {&kKinds[kind], 1, nullptr}}};
  const std::size_t bytes = frame.payload.size;
  const bool first = admit(frame);
  acknowledgement.frame.header.kind = FrameKind::kAcknowledge;
  acknowledgement.frame.header.from = transport_.self();
  acknowledgement.frame.header.samples = std::llround(now.value * kNanoseconds);
  {
    const MutexLock lock(mutex_);
    urgent_.push_back(std::move(acknowledgement));  // for a copy too: the first may have been lost
    counters_.payload_bytes_received += first ? bytes : 0;
    counters_.duplicates_dropped += first ? 0 : 1;
  }
  ++untold_;
  if (!first || frame.header.pieces != 1) return;
  AD_CHECK(handlers_.message) << "nobody handles messages";
  handlers_.message(frame);
}

void Exchange::Impl::take_acknowledgement(const Frame& frame, Seconds now) {
  if (frame.payload.size != 1) return;
  const FrameHeader& header = frame.header;
  const auto kind = static_cast<FrameKind>(frame.payload.data[0]);
  std::optional<Delivered> delivered;  // its payload is let go of after the lock
  {
    const MutexLock lock(mutex_);
    delivered = outbox_.acknowledge(header.from, kind, header.step, header.id, header.piece);
    // Which of two copies was acknowledged is not known.
    if (delivered && !delivered->again) {
      const Seconds there{static_cast<double>(header.samples) / kNanoseconds};
      compare_clocks(header.from, delivered->left, there, now);
    }
  }
  ++untold_;
  if (!delivered || !delivered->whole || !handlers_.delivered) return;
  handlers_.delivered({kind, header.from, header.step, header.id, delivered->bytes,
                       delivered->posted, delivered->left, now});
}

void Exchange::Impl::compare_clocks(RankNumber peer, Seconds left, Seconds there, Seconds now) {
  const Seconds trip = now - left;
  std::optional<ClockDifference>& best = clocks_[peer];
  if (best && best->round_trip <= trip) return;
  best = ClockDifference{there - left - trip * 0.5, trip};
}

void Exchange::Impl::take_goodbye(const Frame& frame) {
  if (frame.payload.size > 0) {
    fail(ErrorCode::kPeersLost, "{} left: {}", transport_.describe(frame.header.from),
         frame.payload.to_string());
  }
  {
    const MutexLock lock(mutex_);
    peer_said_goodbye_[frame.header.from] = true;
  }
  ended_.notify_all();
}

void Exchange::Impl::say_news(Seconds now) {
  const Seconds noticed = options_.heartbeat * options_.missed_heartbeats;
  while (const auto news = failures_.news(noticed, now)) {
    if (!options_.say) continue;
    const std::string who = transport_.describe(news->rank);
    options_.say(news->back
                     ? fmt::format("{} is heard again, after {}", who, to_string(news->silent))
                     : fmt::format("{} is {}; waiting for it until {}", who,
                                   failures_.account(news->rank, now),
                                   to_string(options_.silence_limit)));
  }
}

void Exchange::Impl::check_heartbeats(Seconds now) {
  say_news(now);
  const std::optional<RankNumber> gone = transport_.gone();
  const std::optional<RankNumber> killed =
      !gone && options_.killed ? options_.killed() : std::nullopt;
  const std::optional<RankNumber> lost = gone ? gone : killed ? killed : failures_.lost(now);
  if (!lost) return;
  {
    const MutexLock lock(mutex_);
    // When both have said goodbye, the peer may be gone while we wait for others.
    if (said_goodbye_ && peer_said_goodbye_[*lost]) {
      failures_.excuse(*lost);
      return;
    }
  }
  const std::string account = failures_.account(*lost, now);
  if (gone) {
    fail(ErrorCode::kPeersLost, "{} {}; {}", transport_.describe(*lost), kIsGone, account);
  }
  if (killed) {
    fail(ErrorCode::kPeersLost, "{} {}; {}", transport_.describe(*lost), kIsKilled, account);
  }
  fail(ErrorCode::kPeersLost, "{} is lost: {}. {} waits longer", transport_.describe(*lost),
       account, kSilenceLimit);
}

Exchange::Exchange(Transport& transport, const Clock& clock, ExchangeOptions options,
                   Handlers handlers)
    : impl_(std::make_unique<Impl>(transport, clock, options, std::move(handlers))) {}
Exchange::~Exchange() = default;

void Exchange::post(RankNumber to, Outgoing outgoing) { impl_->post(to, std::move(outgoing)); }
std::exception_ptr Exchange::failure() const { return impl_->failure(); }
void Exchange::on_failure(std::function<void()> wake) { impl_->on_failure(std::move(wake)); }
ExchangeCounters Exchange::counters() const { return impl_->counters(); }
std::optional<ClockDifference> Exchange::clock_of(RankNumber peer) const {
  return impl_->clock_of(peer);
}
void Exchange::set_position(Position position) { impl_->set_position(position); }
std::optional<Position> Exchange::position_of(RankNumber peer) const {
  return impl_->position_of(peer);
}
void Exchange::finish(Seconds limit) { impl_->finish(limit); }
void Exchange::abort(const std::string& reason) {
  impl_->leave(reason.empty() ? "no reason given" : reason);
}

}  // namespace autodist::comm
