#include "autodist/comm/link_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/mutex.h"
#include "autodist/base/statistics.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/exchange.h"

namespace autodist::comm {
namespace {

constexpr std::uint32_t kProbeGeneration = 0;  // plans count from 1

// What ranks say while they measure, with the number of the message for an id.
constexpr FrameKind kAsk{16};
constexpr FrameKind kAnswer{17};
constexpr FrameKind kTell{18};

// Ranks do not count the same steps here, so there is one; slices have different ids.
constexpr std::uint64_t kStep = 0;
constexpr std::size_t kMostPeers = 16;
constexpr MessageId kPings = 64;
constexpr std::size_t kPiece = 128 << 10;
constexpr MessageId kFirstPieces = 8;  // doubled until they take long enough
constexpr MessageId kMostProbes = 512;
// Long against a shaper's bucket and TCP's start, which let the first bytes through faster or more
// slowly than the rest.
constexpr Seconds kLongEnough{0.04};

// Both ends: one rank posts and counts what comes back, the others send back what comes.
class Probe {
 public:
  Probe(Transport& transport, const Clock& clock, const Clock& cpu, Seconds limit)
      : transport_(transport), clock_(clock), cpu_(cpu), limit_(limit) {
    ExchangeOptions options;
    options.generation = kProbeGeneration;
    options.window = Bytes{2 * std::int64_t{kMostProbes} * std::int64_t{kPiece}};
    options.nic_budget = options.window;
    options.first_contact = limit;
    Handlers handlers;
    handlers.message = [this](const Frame& frame) {
      const FrameHeader& header = frame.header;
      if (header.kind != kAsk) return count(header.kind);
      exchange().post(header.from, {kAnswer, header.step, header.id, 0, Seconds{}, frame.payload});
    };
    const MutexLock lock(mutex_);
    exchange_ = std::make_unique<Exchange>(transport, clock, options, std::move(handlers));
    exchange_->on_failure([this] { changed_.notify_all(); });
  }

  LinkFigures measure(RankNumber peer) {
    LinkFigures figures;
    next_ = 0;
    echo(peer, 1, kPayload);  // connects
    std::vector<Seconds> trips;
    const Seconds cpu_before = cpu_.now();
    for (MessageId ping = 0; ping < kPings; ++ping) trips.push_back(echo(peer, 1, kPayload));
    // This rank's part of a slice there and of one back: both ends of one.
    figures.message_cost = (cpu_.now() - cpu_before) * (1.0 / kPings);
    figures.round_trip = median_of(std::move(trips));
    MessageId pieces = kFirstPieces;
    Seconds took = echo(peer, pieces, kPiece);
    while (took < kLongEnough && pieces < kMostProbes) {
      pieces *= 2;
      took = echo(peer, pieces, kPiece);
    }
    const double moving = std::max((took - figures.round_trip).value, took.value / 2);
    figures.bandwidth_bytes_per_s = static_cast<double>(pieces * kPiece) / moving;
    return figures;
  }

  // It may measure, or all is done.
  void tell(RankNumber rank) { exchange_->post(rank, {kTell, kStep, 0, 0, Seconds{}, {}}); }
  // Answers until somebody tells this rank; as many pairs may be measured before.
  void wait_until_told(std::size_t pairs) {
    ++expected_;
    wait_for(kTell, expected_, limit_ * static_cast<double>(pairs));
  }

  // The last rank that measures tells the others.
  void finish(RankNumber last, std::size_t pairs) {
    if (transport_.self() != last) {
      wait_until_told(pairs);
    } else {
      for (RankNumber rank = 0; rank < transport_.size(); ++rank) {
        if (rank != last) tell(rank);
      }
    }
    exchange_->finish(limit_);
  }

 private:
  static constexpr std::size_t kPayload = 8;

  // Sends so many slices and waits until all are back.
  Seconds echo(RankNumber peer, MessageId slices, std::size_t bytes) {
    const std::uint64_t target = (asked_ += slices);
    const Payload payload{bytes_.data(), bytes, nullptr};
    const Seconds start = clock_.now();
    for (MessageId slice = 0; slice < slices; ++slice) {
      exchange_->post(peer, {kAsk, kStep, next_++, 0, Seconds{}, payload});
    }
    wait_for(kAnswer, target, limit_);
    return clock_.now() - start;
  }

  // Not before it is made: its threads are faster than its constructor.
  Exchange& exchange() {
    const MutexLock lock(mutex_);
    return *exchange_;
  }

  void count(FrameKind kind) {
    {
      const MutexLock lock(mutex_);
      ++counts_[kind];
    }
    changed_.notify_all();
  }

  void wait_for(FrameKind kind, std::uint64_t target, Seconds limit) {
    const MutexLock lock(mutex_);
    const bool came = changed_.wait_for(mutex_, limit, [&]() AD_REQUIRES(mutex_) {
      return counts_[kind] >= target || exchange_->failure() != nullptr;
    });
    if (exchange_->failure()) std::rethrow_exception(exchange_->failure());
    if (!came) {
      fail(ErrorCode::kTimeout,
           "measuring the links: waited {} for an answer. Look at the ranks' last lines.",
           to_string(limit));
    }
  }

  Transport& transport_;
  const Clock& clock_;
  const Clock& cpu_;
  Seconds limit_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kPiece);
  MessageId next_ = 0;          // id, to the peer that is measured
  std::uint64_t asked_ = 0;     // slices, of all answers
  std::uint64_t expected_ = 0;  // to be told
  Mutex mutex_;
  ConditionVariable changed_;
  std::map<FrameKind, std::uint64_t> counts_ AD_GUARDED_BY(mutex_);  // of messages to this rank
  std::unique_ptr<Exchange> exchange_;  // its threads use everything above
};

}  // namespace

std::optional<LinkFigures> probe_links(Transport& transport, const Clock& clock, const Clock& cpu,
                                       Seconds limit) {
  AD_CHECK(transport.size() > 1) << "a rank alone has no links";
  Probe probe(transport, clock, cpu, limit);
  std::optional<LinkFigures> worst;
  if (transport.self() == 0) {
    const std::size_t peers = transport.size() - 1;
    const std::size_t asked = std::min(peers, kMostPeers);
    for (std::size_t i = 0; i < asked; ++i) {
      const LinkFigures link = probe.measure(static_cast<RankNumber>(1 + i * peers / asked));
      if (!worst) worst = link;
      worst->bandwidth_bytes_per_s =
          std::min(worst->bandwidth_bytes_per_s, link.bandwidth_bytes_per_s);
      worst->round_trip = std::max(worst->round_trip, link.round_trip);
      worst->message_cost = std::max(worst->message_cost, link.message_cost);
    }
  }
  probe.finish(0, kMostPeers);
  return worst;
}

std::vector<ProbedLink> probe_all_links(Transport& transport,
                                        const std::vector<RankNumber>& members, const Clock& clock,
                                        const Clock& cpu, Seconds limit) {
  AD_CHECK(members.size() > 1) << members.size() << " members have no links";
  const std::size_t pairs = members.size() * (members.size() - 1) / 2;
  const auto self = static_cast<std::size_t>(
      std::find(members.begin(), members.end(), transport.self()) - members.begin());
  const std::size_t last = members.size() - 2;  // who measures; its only pair is with the one left
  std::string own;
  {
    Probe probe(transport, clock, cpu, limit);
    if (self <= last) {
      if (self > 0) probe.wait_until_told(pairs);
      for (std::size_t other = self + 1; other < members.size(); ++other) {
        const LinkFigures link = probe.measure(members[other]);
        own +=
            fmt::format("{} {} {} {} {}\n", members[self], members[other],
                        link.bandwidth_bytes_per_s, link.round_trip.value, link.message_cost.value);
      }
      if (self < last) probe.tell(members[self + 1]);
    }
    probe.finish(members[last], pairs);
  }
  std::vector<ProbedLink> links;
  for (const std::string& of_rank : all_gather(transport, own, "links", limit)) {
    std::istringstream lines(of_rank);
    ProbedLink link;
    while (lines >> link.from >> link.to >> link.figures.bandwidth_bytes_per_s >>
           link.figures.round_trip.value >> link.figures.message_cost.value) {
      links.push_back(link);
    }
  }
  return links;
}

}  // namespace autodist::comm
