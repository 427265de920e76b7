// Everything goes through rank 0: the others send to it and are sent to by it. So a rank that is
// already one exchange further can only be heard by rank 0, which keeps such frames for later.
//
// A message is one opening frame (what, total size) and then chunks; every chunk is acknowledged
// and only a few are on their way, so that hundreds of megabytes need no queue of that size.

#include "autodist/comm/agreement.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/comm/bytes.h"
#include "autodist/comm/control.h"

namespace autodist::comm {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 20;
constexpr std::size_t kChunksOnTheWay = 8;
constexpr std::uint64_t kLargestMessage = std::uint64_t{1} << 40;
constexpr RankNumber kHub = 0;
constexpr Seconds kDeaf{1};    // between two looks
constexpr Seconds kUnread{2};  // the last frame of a rank that has gone is read sooner

void say_goodbye(Transport& transport, RankNumber to, std::uint32_t generation,
                 std::uint16_t channel, const std::string& reason) {
  Frame goodbye;
  goodbye.header.kind = FrameKind::kGoodbye;
  goodbye.header.generation = generation;
  goodbye.header.channel = channel;
  goodbye.payload = Payload::copy_of(reason);
  transport.send(to, std::move(goodbye));
}

// One collective exchange at one rank: keeps the frames that are not its own and gives them back.
class Conversation {
 public:
  Conversation(Transport& transport, const std::string& what, Seconds limit,
               const char* option = kJoinLimit, std::uint32_t generation = 0)
      : transport_(transport),
        what_(what),
        limit_(limit),
        option_(option),
        generation_(generation) {}
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;
  ~Conversation() { transport_.give_back(std::move(later_)); }

  void send(const std::vector<RankNumber>& to, const std::string& bytes);
  // The message of each of `from`, in that order.
  std::vector<std::string> receive(const std::vector<RankNumber>& from);

 private:
  struct Incoming {
    bool opened = false;
    std::uint64_t size = 0;
    std::string bytes;
    [[nodiscard]] bool complete() const { return opened && bytes.size() == size; }
  };

  enum class Want { kMessage, kReceipt };
  // The next such frame from one of `accepted`. Throws when one of `missing` is silent for longer
  // than the limit, or gone.
  Frame next(Want want, const std::vector<RankNumber>& accepted,
             const std::vector<RankNumber>& missing);
  void check_life(const std::map<RankNumber, Seconds>& heard,
                  const std::vector<RankNumber>& missing, Seconds now);
  static bool is_a(Want want, ControlRole role) {
    if (want == Want::kReceipt) return role == ControlRole::kReceipt;
    return role == ControlRole::kOpening || role == ControlRole::kBody;
  }
  void open(Incoming& message, const Frame& frame) const;
  void check_stays(const FrameHeader& header, const std::vector<RankNumber>& missing);
  [[nodiscard]] std::string names(const std::vector<RankNumber>& ranks) const;

  Transport& transport_;
  const std::string& what_;
  Seconds limit_;
  const char* option_;
  std::uint32_t generation_;  // that none of the others may have come to; 0: whichever
  SteadyClock clock_;
  std::vector<Frame> later_;
};

void Conversation::send(const std::vector<RankNumber>& to, const std::string& bytes) {
  const Payload first = Payload::copy_of(ByteWriter().u64(bytes.size()).raw(what_).take());
  const Payload whole = Payload::copy_of(bytes);
  for (const RankNumber rank : to) {
    transport_.send(rank, control_frame(ControlRole::kOpening, first));
  }

  std::map<RankNumber, std::size_t> receipts;
  for (const RankNumber rank : to) receipts[rank] = 0;
  const std::size_t chunks = (bytes.size() + kChunk - 1) / kChunk;
  const auto await_receipts = [&](std::size_t count) {
    const auto behind = [&] {
      std::vector<RankNumber> ranks;
      for (const auto& [rank, got] : receipts) {
        if (got < count) ranks.push_back(rank);
      }
      return ranks;
    };
    for (auto ranks = behind(); !ranks.empty(); ranks = behind()) {
      ++receipts[next(Want::kReceipt, to, ranks).header.from];
    }
  };
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk >= kChunksOnTheWay) await_receipts(chunk - kChunksOnTheWay + 1);
    const std::size_t begin = chunk * kChunk;
    const std::size_t size = std::min(kChunk, bytes.size() - begin);
    for (const RankNumber rank : to) {
      transport_.send(rank,
                      control_frame(ControlRole::kBody, {whole.data + begin, size, whole.keep}));
    }
  }
  await_receipts(chunks);
}

std::vector<std::string> Conversation::receive(const std::vector<RankNumber>& from) {
  std::map<RankNumber, Incoming> messages;
  for (const RankNumber rank : from) messages[rank];
  const auto incomplete = [&] {
    std::vector<RankNumber> ranks;
    for (const auto& [rank, message] : messages) {
      if (!message.complete()) ranks.push_back(rank);
    }
    return ranks;
  };
  for (auto ranks = incomplete(); !ranks.empty(); ranks = incomplete()) {
    const Frame frame = next(Want::kMessage, ranks, ranks);
    Incoming& message = messages[frame.header.from];
    if (!message.opened) {
      open(message, frame);
      continue;
    }
    if (role_of(frame) != ControlRole::kBody ||
        frame.payload.size > message.size - message.bytes.size()) {
      fail(ErrorCode::kPeersLost,
           "{}: {} does not keep to the protocol. Start all ranks with the same build.", what_,
           transport_.describe(frame.header.from));
    }
    message.bytes += frame.payload.to_string();
    transport_.send(frame.header.from, control_frame(ControlRole::kReceipt, {}));
  }
  std::vector<std::string> bytes;
  for (const RankNumber rank : from) bytes.push_back(std::move(messages[rank].bytes));
  return bytes;
}

void Conversation::open(Incoming& message, const Frame& frame) const {
  const std::string bytes = frame.payload.to_string();
  ByteReader in(bytes);
  message.size = in.u64();
  const bool opens = role_of(frame) == ControlRole::kOpening && in.good();
  const std::string theirs = opens ? in.raw(in.left()) : "";
  if (!opens || theirs != what_) {
    fail(ErrorCode::kUsage,
         "{} sends '{}' while {} expects '{}': the ranks run different programs. Start all of them "
         "with the same one.",
         transport_.describe(frame.header.from), theirs, transport_.describe(transport_.self()),
         what_);
  }
  message.opened = true;
  if (message.size > kLargestMessage) {
    fail(ErrorCode::kUsage, "{}: {} announces {} bytes. Start all ranks with the same build.",
         what_, transport_.describe(frame.header.from), message.size);
  }
}

Frame Conversation::next(Want want, const std::vector<RankNumber>& accepted,
                         const std::vector<RankNumber>& missing) {
  const Seconds began = clock_.now();
  std::map<RankNumber, Seconds> heard;
  for (const RankNumber rank : missing) heard[rank] = began;
  Seconds before = began;
  for (;;) {
    transport_.look_around({what_, missing, clock_.now() - began});
    std::optional<Frame> frame = transport_.receive(std::min(limit_, kLookAround));
    const Seconds now = clock_.now();
    if (now - before > kDeaf) {  // suspended, perhaps: what they said meanwhile lies unread
      for (auto& [rank, when] : heard) when = now;
    }
    before = now;
    if (frame) heard[frame->header.from] = now;
    check_life(heard, missing, now);
    if (!frame) continue;
    const FrameHeader& header = frame->header;
    if (header.kind == FrameKind::kGoodbye && frame->payload.size > 0) {
      fail(ErrorCode::kPeersLost, "{}: {} left: {}", what_, transport_.describe(header.from),
           frame->payload.to_string());
    }
    const bool ours = header.kind == FrameKind::kControl && is_a(want, role_of(*frame)) &&
                      std::find(accepted.begin(), accepted.end(), header.from) != accepted.end();
    if (ours) return std::move(*frame);
    check_stays(header, missing);
    if (!is_sign_of_life(header.kind)) later_.push_back(std::move(*frame));
  }
}

void Conversation::check_life(const std::map<RankNumber, Seconds>& heard,
                              const std::vector<RankNumber>& missing, Seconds now) {
  const std::optional<RankNumber> gone = transport_.gone();
  std::vector<RankNumber> silent;
  for (const RankNumber rank : missing) {
    const Seconds silence = now - heard.at(rank);
    if (silence > limit_) silent.push_back(rank);
    // What it sent before it went may still lie here; and whoever started it knows more soon.
    if (gone != rank || silence < kUnread) continue;
    fail(ErrorCode::kPeersLost, "{}: {} {}", what_, transport_.describe(rank), kIsGone);
  }
  if (silent.empty()) return;
  fail(ErrorCode::kPeersLost, "{}: nothing from {} for {}; {} waits longer", what_, names(silent),
       to_string(limit_), option_);
}

// Frames of a rank keep their order, so one whose exchange is heard does not come here any more.
// It is told why this rank leaves, which is not in that exchange.
void Conversation::check_stays(const FrameHeader& header, const std::vector<RankNumber>& missing) {
  const bool went_on = generation_ != 0 && header.kind != FrameKind::kControl &&
                       header.generation >= generation_ &&
                       std::find(missing.begin(), missing.end(), header.from) != missing.end();
  if (!went_on) return;
  const std::string reason = fmt::format(
      "rank {} called {}, rank {} is at its first step. Every rank calls it before that.",
      transport_.self(), what_, header.from);
  say_goodbye(transport_, header.from, header.generation, header.channel, reason);
  fail(ErrorCode::kUsage, "{}", reason);
}

std::string Conversation::names(const std::vector<RankNumber>& ranks) const {
  std::vector<std::string> names;
  for (const RankNumber rank : ranks) names.push_back(transport_.describe(rank));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<RankNumber> all_but(RankNumber left_out, RankNumber size) {
  std::vector<RankNumber> ranks;
  for (RankNumber rank = 0; rank < size; ++rank) {
    if (rank != left_out && rank != kHub) ranks.push_back(rank);
  }
  return ranks;
}

// Messages by rank, each behind its length.
std::string pack(const std::vector<std::string>& messages) {
  ByteWriter packed;
  for (const std::string& message : messages) packed.u64(message.size()).raw(message);
  return packed.take();
}

std::vector<std::string> unpack(const std::string& packed, std::size_t count,
                                const std::string& what) {
  ByteReader in(packed);
  std::vector<std::string> messages;
  while (messages.size() < count && in.good()) messages.push_back(in.raw(in.u64()));
  if (!in.at_end())
    fail(ErrorCode::kPeersLost,
         "{}: the chief's answer is damaged. Start all ranks with the same build.", what);
  return messages;
}

struct Claim {
  Digest digest;
  std::string summary;
};

std::string encode(const Claim& claim) {
  return ByteWriter().u64(claim.digest.high).u64(claim.digest.low).raw(claim.summary).take();
}

Claim decode(const std::string& bytes, const std::string& what) {
  ByteReader in(bytes);
  Claim claim;
  claim.digest = {in.u64(), in.u64()};
  claim.summary = in.raw(in.left());
  if (!in.good())
    fail(ErrorCode::kPeersLost,
         "{}: a peer's digest is damaged. Start all ranks with the same build.", what);
  return claim;
}

}  // namespace

std::string broadcast(Transport& transport, RankNumber root, const std::string& bytes,
                      const std::string& what, Seconds limit, const char* option) {
  AD_CHECK(root < transport.size()) << "root " << root;
  Conversation conversation(transport, what, limit, option);
  const RankNumber self = transport.self();
  if (self != kHub) {
    if (self != root) return conversation.receive({kHub}).front();
    conversation.send({kHub}, bytes);
    return bytes;
  }
  const std::string message = root == kHub ? bytes : conversation.receive({root}).front();
  conversation.send(all_but(root, transport.size()), message);
  return message;
}

std::vector<std::string> all_gather(Transport& transport, const std::string& bytes,
                                    const std::string& what, Seconds limit) {
  Conversation conversation(transport, what, limit);
  if (transport.self() != kHub) {
    conversation.send({kHub}, bytes);
    return unpack(conversation.receive({kHub}).front(), transport.size(), what);
  }
  const std::vector<RankNumber> others = all_but(kHub, transport.size());
  std::vector<std::string> messages = conversation.receive(others);
  messages.insert(messages.begin(), bytes);
  conversation.send(others, pack(messages));
  return messages;
}

void meet(Transport& transport, const std::string& what, std::uint32_t generation, Seconds limit) {
  Conversation conversation(transport, what, limit, kJoinLimit, generation);
  if (transport.self() != kHub) {
    conversation.send({kHub}, "");
    conversation.receive({kHub});
    return;
  }
  const std::vector<RankNumber> others = all_but(kHub, transport.size());
  conversation.receive(others);
  conversation.send(others, "");
}

void leave(Transport& transport, std::uint32_t generation, const std::string& reason) {
  for (RankNumber rank = 0; rank < transport.size(); ++rank) {
    if (rank != transport.self()) say_goodbye(transport, rank, generation, 0, reason);
  }
}

void agree(Transport& transport, const std::string& what, const Digest& digest,
           const std::string& summary, Seconds limit) {
  const std::vector<std::string> claims =
      all_gather(transport, encode({digest, summary}), what, limit);
  std::map<std::string, std::vector<RankNumber>> holders;
  for (RankNumber rank = 0; rank < claims.size(); ++rank) holders[claims[rank]].push_back(rank);
  std::vector<std::string> sides;
  std::map<std::string, int> digests;
  for (const auto& [bytes, ranks] : holders) {
    const Claim claim = decode(bytes, what);
    ++digests[to_string(claim.digest)];
    sides.push_back(fmt::format("{} {} ({}) at rank{} {}", what, to_string(claim.digest),
                                claim.summary, ranks.size() > 1 ? "s" : "",
                                fmt::join(ranks, ", ")));
  }
  if (digests.size() > 1) {
    fail(ErrorCode::kUsage,
         "the ranks differ: {}. Start all of them with the same files and build, and with one seed "
         "for what their programs draw",
         fmt::join(sides, "; "));
  }
}

}  // namespace autodist::comm
