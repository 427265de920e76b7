// A hello, again and again, until there is an answer, over a ROUTER (chief) and DEALERs:
// docs/formats/wire.md, Rendezvous.

#include "autodist/comm/rendezvous.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "autodist/base/check.h"
#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/bytes.h"
#include "autodist/comm/wire.h"
#include "autodist/comm/zmq/listening_socket.h"
#include "autodist/comm/zmq/socket.h"
#include "autodist/comm/zmq/zmq_transport.h"

namespace autodist::comm {
namespace {

constexpr std::string_view kHello = "ADHI";
constexpr std::string_view kTable = "ADTB";
constexpr std::string_view kRefusal = "ADNO";
constexpr std::string_view kPatience = "ADWT";
constexpr RankNumber kLargestJob = 65'536;
constexpr Seconds kHelloEvery{0.5};
constexpr Seconds kStillThere{3};  // who said hello so lately waits for the answer
constexpr const char* kOneBuild = "Start all ranks with one build of AutoDist.";

struct Hello {
  std::uint16_t version = kWireVersion;
  std::string job_key;
  RankNumber rank = 0;
  RankNumber size = 0;
  Member member;
  std::string build;
};

// Time independent of where the keys differ, so that a key cannot be guessed byte by byte.
bool same_key(const std::string& a, const std::string& b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const char other = a.empty() ? '\0' : a[i % a.size()];
    difference |= static_cast<unsigned char>(other ^ b[i]);
  }
  return difference == 0;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

// The descriptor plus one: 0 stands for none.
void write(const SharedMemoryName& memory, ByteWriter& out) {
  out.u32(static_cast<std::uint32_t>(memory.descriptor + 1)).u64(memory.token);
}

SharedMemoryName read_memory(ByteReader& in) {
  SharedMemoryName memory;
  memory.descriptor = static_cast<std::int32_t>(in.u32() - 1);
  memory.token = in.u64();
  return memory;
}

std::string encode(const Hello& hello) {
  ByteWriter out;
  out.raw(kHello).u16(hello.version).string(hello.job_key);
  out.u32(hello.rank).u32(hello.size).u16(hello.member.port);
  out.u64(static_cast<std::uint64_t>(hello.member.pid));
  out.string(hello.member.address).string(hello.member.host).string(hello.build);
  write(hello.member.memory, out);
  return out.take();
}

// The part that every version has; nothing when it is not a hello.
std::optional<Hello> decode_opening(ByteReader& in) {
  Hello hello;
  if (in.raw(kHello.size()) != kHello) return std::nullopt;
  hello.version = in.u16();
  hello.job_key = in.string();
  return in.good() ? std::optional(hello) : std::nullopt;
}

bool decode_rest(ByteReader& in, Hello& hello) {
  hello.rank = in.u32();
  hello.size = in.u32();
  hello.member.port = in.u16();
  hello.member.pid = static_cast<std::int64_t>(in.u64());
  hello.member.address = in.string();
  hello.member.host = in.string();
  hello.build = in.string();
  hello.member.memory = read_memory(in);
  return in.at_end();
}

std::string encode_table(const std::vector<Member>& members) {
  ByteWriter out;
  out.raw(kTable).u32(static_cast<std::uint32_t>(members.size()));
  for (const Member& member : members) {
    out.string(member.address).u16(member.port);
    out.u64(static_cast<std::uint64_t>(member.pid)).string(member.host);
    write(member.memory, out);
  }
  return out.take();
}

std::string encode_refusal(const Error& error) {
  ByteWriter out;
  // A message may be longer than a string of the protocol.
  const std::string reason = std::string(error.what()).substr(0, kLongestString);
  return out.raw(kRefusal).u32(static_cast<std::uint32_t>(error.code())).string(reason).take();
}

std::string encode_patience(const std::string& whom) {
  return ByteWriter().raw(kPatience).string(whom.substr(0, kLongestString)).take();
}

// Whom all wait for, where the chief says no more than that.
std::optional<std::string> decode_patience(const std::string& bytes) {
  ByteReader in(bytes);
  if (in.raw(kPatience.size()) != kPatience) return std::nullopt;
  std::string whom = in.string();
  return in.at_end() ? std::optional(whom) : std::nullopt;
}

// The table of an answer. Throws what the chief refused with.
std::vector<Member> decode_answer(const std::string& bytes, RankNumber size) {
  ByteReader in(bytes);
  const std::string opening = in.raw(kTable.size());
  if (opening == kRefusal) {
    const auto code = static_cast<ErrorCode>(in.u32());
    const std::string reason = in.string();
    const bool known = code == ErrorCode::kUsage || code == ErrorCode::kAuthentication ||
                       code == ErrorCode::kEnvironment;
    if (in.at_end()) throw Error(known ? code : ErrorCode::kPeersLost, reason);
  }
  std::vector<Member> members;
  if (opening == kTable && in.u32() == size) {
    for (RankNumber rank = 0; rank < size && in.good(); ++rank) {
      Member member;
      member.address = in.string();
      member.port = in.u16();
      member.pid = static_cast<std::int64_t>(in.u64());
      member.host = in.string();
      member.memory = read_memory(in);
      members.push_back(std::move(member));
    }
    if (in.at_end()) return members;
  }
  fail(ErrorCode::kPeersLost, "rendezvous: what answers is not the chief of this job");
}

// Waits until `deadline` for something to read. A signal may end it early.
bool readable(zmq::socket_t& socket, const Clock& clock, Seconds deadline) {
  const Seconds left = deadline - clock.now();
  if (left <= Seconds{0}) return false;
  zmq::pollitem_t item{socket.handle(), 0, ZMQ_POLLIN, 0};
  return zmq_poll(&item, 1, to_milliseconds(left).count()) > 0;
}

}  // namespace

ChiefListener::ChiefListener(const std::string& address, std::uint16_t port,
                             const std::optional<std::string>& job_key)
    : socket_(std::make_unique<ListeningSocket>(
          zmq::context_t(), zmq::socket_type::router, SocketUse::kRendezvous, address, port,
          job_key ? std::optional(curve_keys_of(*job_key)) : std::nullopt)) {}
ChiefListener::~ChiefListener() = default;
std::uint16_t ChiefListener::port() const { return socket_->port; }

namespace {

// The chief's side: collects one hello per rank and answers all of them together.
class Reception {
 public:
  Reception(zmq::socket_t& socket, const RendezvousOptions& options, Member own)
      : socket_(socket), options_(options), guests_(options.size), began_(clock_.now()) {
    guests_[0].member = std::move(own);
  }

  std::vector<Member> run() {
    std::vector<Member> members;
    try {
      for (auto missing = absent(); !missing.empty() || !all_answer(); missing = absent()) {
        if (!missing.empty()) asked_.reset();
        if (readable(socket_, clock_, clock_.now() + kLookAround)) take();
        if (missing.empty()) continue;
        if (options_.while_waiting) {
          options_.while_waiting(names_of(missing), clock_.now() - began_);
        }
        check_silence(missing);
      }
    } catch (const std::exception& error) {
      const auto* known = dynamic_cast<const Error*>(&error);
      const std::string refusal =
          encode_refusal(known ? *known : Error(ErrorCode::kPeersLost, error.what()));
      for (const std::string& id : asking_) send(id, refusal);
      throw;
    }
    for (Guest& guest : guests_) members.push_back(std::move(guest.member));
    const std::string table = encode_table(members);
    for (const Guest& guest : guests_) {
      if (!guest.connection.empty()) send(guest.connection, table);
    }
    return members;
  }

 private:
  // A rank, or the place for one.
  struct Guest {
    Member member;
    std::string connection;  // empty: has not come
    Seconds heard;
    // Another process that says that it is this rank: when it came, and when it last spoke.
    struct Rival {
      Seconds since;
      Seconds heard;
    };
    std::optional<Rival> rival;
  };

  // Those that have not come, went silent, or are two.
  [[nodiscard]] std::vector<RankNumber> absent() const {
    std::vector<RankNumber> ranks;
    for (RankNumber rank = 1; rank < options_.size; ++rank) {
      const Guest& guest = guests_[rank];
      const bool two = guest.rival && is_there(guest.rival->heard);
      if (guest.connection.empty() || !is_there(guest.heard) || two) ranks.push_back(rank);
    }
    return ranks;
  }
  // When all have come, each is asked whether it still is there: one may have been killed since.
  bool all_answer() {
    if (!asked_) {
      asked_ = clock_.now();
      for (const Guest& guest : guests_) {
        if (!guest.connection.empty()) send(guest.connection, encode_patience(""));
      }
    }
    return std::all_of(guests_.begin() + 1, guests_.end(),
                       [&](const Guest& guest) { return guest.heard > *asked_; });
  }
  [[nodiscard]] bool is_there(Seconds heard) const { return clock_.now() - heard <= kStillThere; }

  void check_silence(const std::vector<RankNumber>& missing) const {
    const Seconds now = clock_.now();
    std::vector<RankNumber> silent;
    for (const RankNumber rank : missing) {
      const Guest& guest = guests_[rank];
      const bool came = !guest.connection.empty();
      if (!came && options_.runs && options_.runs(rank)) continue;
      if (now - (came ? guest.heard : began_) > options_.limit) silent.push_back(rank);
    }
    if (silent.empty()) return;
    fail(ErrorCode::kPeersLost, "rendezvous: {} did not join within {}; {} waits longer",
         names_of(silent), to_string(options_.limit), kJoinLimit);
  }

  void take() {
    zmq::message_t id;
    if (!socket_.recv(id, zmq::recv_flags::dontwait)) return;
    zmq::message_t body;
    bool more = id.more();
    std::size_t parts = 0;
    for (zmq::message_t part; more; more = part.more(), ++parts) {
      (void)socket_.recv(part);
      if (parts == 0) body.copy(part);
    }
    if (parts == 1) greet(id.to_string(), body.to_string());
  }

  // A stranger is refused and the chief goes on waiting; a member that differs ends it for all.
  void greet(const std::string& id, const std::string& bytes) {
    ByteReader in(bytes);
    std::optional<Hello> hello = decode_opening(in);
    if (!hello) return;
    if (!same_key(hello->job_key, options_.job_key)) {
      refuse(id, {ErrorCode::kAuthentication,
                  "rendezvous: the chief belongs to another job. Start all ranks with one key"});
      return;
    }
    if (std::find(asking_.begin(), asking_.end(), id) == asking_.end()) asking_.push_back(id);
    if (hello->version != kWireVersion) {
      fail(ErrorCode::kUsage, "rendezvous: a rank speaks protocol version {}, the chief {}. {}",
           hello->version, kWireVersion, kOneBuild);
    }
    if (!decode_rest(in, *hello)) {
      fail(ErrorCode::kUsage, "rendezvous: a hello is damaged. {}", kOneBuild);
    }
    check(*hello);
    if (!seat(id, *hello)) return;
    const std::vector<RankNumber> missing = absent();
    if (!missing.empty()) send(id, encode_patience(names_of(missing)));
  }

  // False for a process whose place another one has, which still says that it is there: after a
  // while one of the two is silent, or the second is refused.
  bool seat(const std::string& id, const Hello& hello) {
    const Seconds now = clock_.now();
    Guest& guest = guests_[hello.rank];
    const bool taken = !guest.connection.empty() && !(guest.member == hello.member);
    if (taken && is_there(guest.heard)) {
      if (!guest.rival || !is_there(guest.rival->heard)) guest.rival = Guest::Rival{now, now};
      guest.rival->heard = now;
      if (now - guest.rival->since <= kStillThere) return false;
      guest.rival.reset();
      asking_.erase(std::remove(asking_.begin(), asking_.end(), id), asking_.end());
      refuse(id, {ErrorCode::kUsage,
                  fmt::format("rendezvous: rank {} has joined already, from {} (pid {}), and is "
                              "still there: two processes are started as this rank",
                              hello.rank, guest.member.host, guest.member.pid)});
      return false;
    }
    if (taken) guest.rival.reset();
    guest.member = hello.member;
    guest.connection = id;
    guest.heard = now;
    return true;
  }

  void check(const Hello& hello) const {
    const std::string who = fmt::format("rank {} ({}, {}, pid {})", hello.rank,
                                        hello.member.address, hello.member.host, hello.member.pid);
    if (hello.size != options_.size) {
      fail(ErrorCode::kUsage,
           "rendezvous: {} expects {} ranks, the chief {}. Start all ranks with one cluster file "
           "and one size.",
           who, hello.size, options_.size);
    }
    if (hello.rank >= options_.size) {
      fail(ErrorCode::kUsage, "rendezvous: {} in a job of {} ranks. Ranks count from 0.", who,
           options_.size);
    }
    if (hello.build != options_.build) {
      throw OtherBuild(hello.rank,
                       fmt::format("rendezvous: {} is build '{}', the chief is build '{}'. {}", who,
                                   hello.build, options_.build, kOneBuild));
    }
  }

  void refuse(const std::string& id, const Error& error) { send(id, encode_refusal(error)); }

  // ROUTER drops what is for a peer that has gone.
  void send(const std::string& id, const std::string& answer) {
    if (socket_.send(zmq::buffer(id), zmq::send_flags::sndmore | zmq::send_flags::dontwait)) {
      (void)socket_.send(zmq::buffer(answer), zmq::send_flags::dontwait);
    }
  }

  static std::string names_of(const std::vector<RankNumber>& ranks) {
    return fmt::format("rank{} {}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "));
  }

  SteadyClock clock_;
  zmq::socket_t& socket_;
  const RendezvousOptions& options_;
  std::vector<Guest> guests_;        // by rank
  std::vector<std::string> asking_;  // connections that hold the key and wait
  Seconds began_;
  std::optional<Seconds> asked_;  // whether all are there
};

// The other ranks' side: says hello until it has the table.
std::vector<Member> ask(const RendezvousOptions& options, const Member& own) {
  zmq::context_t context;
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  configure(socket.handle(), SocketUse::kRendezvous);
  if (options.encrypt) {
    secure(socket.handle(), CurveSide::kClient, curve_keys_of(options.job_key));
  }
  socket.set(zmq::sockopt::maxmsgsize, std::int64_t{64} << 20);  // the table of a large job
  socket.set(zmq::sockopt::linger, 0);
  const std::string chief = endpoint(options.chief_address, options.chief_port);
  if (zmq_connect(socket.handle(), chief.c_str()) != 0) {
    fail(ErrorCode::kUsage,
         "rendezvous: '{}' is no address to connect to. ADDRESS:PORT of rank 0 expected.", chief);
  }
  const Hello hello{kWireVersion, options.job_key, options.rank, options.size, own, options.build};
  const std::string greeting = encode(hello);

  const SteadyClock clock;
  const Seconds began = clock.now();
  Seconds heard = began;
  Seconds greet_next = began;
  std::string whom = "the chief";
  while (clock.now() - heard < options.limit) {
    if (clock.now() >= greet_next) {
      (void)socket.send(zmq::buffer(greeting), zmq::send_flags::dontwait);
      greet_next = clock.now() + kHelloEvery;
    }
    zmq::message_t answer;
    const Seconds until = std::min(clock.now() + kLookAround, heard + options.limit);
    if (readable(socket, clock, until) && socket.recv(answer, zmq::recv_flags::dontwait)) {
      const std::string bytes = answer.to_string();
      const auto patience = decode_patience(bytes);
      if (!patience) return decode_answer(bytes, options.size);
      heard = clock.now();
      if (patience->empty()) greet_next = heard;  // the chief asks whether we are still there
      whom = patience->empty() ? "the chief" : *patience;
    }
    if (options.while_waiting) options.while_waiting(whom, clock.now() - began);
  }
  fail(ErrorCode::kPeersLost,
       "rendezvous: rank 0 (the chief, {}) gave rank {} no answer within {}: it is not reachable "
       "or {}; {} waits longer",
       chief, options.rank, to_string(options.limit),
       options.encrypt ? "has another key or none (--encrypt)" : "wants to be encrypted",
       kJoinLimit);
}

}  // namespace

std::unique_ptr<Transport> join(const RendezvousOptions& options, ChiefListener* listener) {
  if (options.size == 0 || options.size > kLargestJob || options.rank >= options.size) {
    fail(ErrorCode::kUsage,
         "rendezvous: rank {} of {} ranks: ranks count from 0, and 1 to {} of them are expected",
         options.rank, options.size, kLargestJob);
  }
  AD_CHECK(options.job_key.size() <= kLongestString && options.build.size() <= kLongestString);
  AD_CHECK((options.rank == 0) == (listener != nullptr) || options.size == 1)
      << "the chief, and nobody else, has a listener";
  std::optional<CurveKeys> keys;
  if (options.encrypt) keys = curve_keys_of(options.job_key);
  ZmqListener frames(options.own_address, 0, keys);
  std::unique_ptr<SharedBlocks> blocks;
  if (options.size > 1 && options.shared_memory > Bytes{0}) {
    blocks = SharedBlocks::make(static_cast<std::size_t>(options.shared_memory.value));
  }
  const Member own{options.own_address, frames.port(), host_name(), getpid(),
                   blocks ? blocks->name() : SharedMemoryName{}};
  if (options.size == 1) {
    return std::make_unique<ZmqTransport>(std::move(frames), 0, std::vector<Member>{own});
  }
  std::vector<Member> members = listener != nullptr
                                    ? Reception(listener->socket().socket, options, own).run()
                                    : ask(options, own);
  return std::make_unique<ZmqTransport>(std::move(frames), options.rank, std::move(members),
                                        std::move(blocks));
}

}  // namespace autodist::comm
