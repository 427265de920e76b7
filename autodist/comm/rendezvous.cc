// One hello, one answer, over a ROUTER (chief) and DEALERs: docs/formats/wire.md, Rendezvous.

#include "autodist/comm/rendezvous.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "autodist/base/check.h"
#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/comm/bytes.h"
#include "autodist/comm/wire.h"
#include "autodist/comm/zmq/connection_limit.h"
#include "autodist/comm/zmq/socket.h"
#include "autodist/comm/zmq/zmq_transport.h"

namespace autodist::comm {
namespace {

constexpr std::string_view kHello = "ADHI";
constexpr std::string_view kTable = "ADTB";
constexpr std::string_view kRefusal = "ADNO";
constexpr RankNumber kLargestJob = 65'536;
constexpr Seconds kLookAround{0.2};

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

// The table of an answer. Throws what the chief refused with.
std::vector<Member> decode_answer(const std::string& bytes, RankNumber size) {
  ByteReader in(bytes);
  const std::string opening = in.raw(kTable.size());
  if (opening == kRefusal) {
    const auto code = static_cast<ErrorCode>(in.u32());
    const std::string reason = in.string();
    const bool known = code == ErrorCode::kUsage || code == ErrorCode::kAuthentication;
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
  return zmq_poll(&item, 1, static_cast<long>(std::ceil(left.value * 1e3))) > 0;
}

}  // namespace

class ChiefListener::Impl {
 public:
  Impl(const std::string& address, std::uint16_t port, const std::optional<std::string>& job_key)
      : socket(context, zmq::socket_type::router) {
    configure(socket.handle(), SocketUse::kRendezvous);
    if (job_key) {
      const CurveKeys keys = curve_keys_of(*job_key);
      gate.emplace(context, keys);
      secure(socket.handle(), CurveSide::kServer, keys);
    }
    limit.emplace(context, socket.handle(), most_connections());
    this->port = bind(socket.handle(), address, port);
  }

  zmq::context_t context;
  std::optional<ClientGate> gate;  // as long as the socket
  zmq::socket_t socket;
  std::optional<ConnectionLimit> limit;
  std::uint16_t port = 0;
};

ChiefListener::ChiefListener(const std::string& address, std::uint16_t port,
                             const std::optional<std::string>& job_key)
    : impl_(std::make_unique<Impl>(address, port, job_key)) {}
ChiefListener::~ChiefListener() = default;
std::uint16_t ChiefListener::port() const { return impl_->port; }

namespace {

// The chief's side: collects one hello per rank and answers all of them together.
class Reception {
 public:
  Reception(zmq::socket_t& socket, const RendezvousOptions& options, Member own)
      : socket_(socket), options_(options), members_(options.size) {
    members_[0] = std::move(own);
    joined_[0] = "";
  }

  std::vector<Member> run() {
    try {
      const Seconds deadline = clock_.now() + options_.limit;
      while (joined_.size() < options_.size) {
        if (readable(socket_, clock_, std::min(deadline, clock_.now() + kLookAround))) {
          take();
        } else if (options_.while_waiting && clock_.now() < deadline) {
          options_.while_waiting();
        } else if (clock_.now() >= deadline) {
          fail(ErrorCode::kPeersLost, "rendezvous: {} did not join within {}", missing(),
               to_string(options_.limit));
        }
      }
    } catch (const Error& error) {
      tell_all(encode_refusal(error));
      throw;
    }
    tell_all(encode_table(members_));
    return members_;
  }

 private:
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
    asking_.push_back(id);
    if (hello->version != kWireVersion) {
      fail(ErrorCode::kUsage, "rendezvous: a rank speaks protocol version {}, the chief {}",
           hello->version, kWireVersion);
    }
    if (!decode_rest(in, *hello)) fail(ErrorCode::kUsage, "rendezvous: a hello is damaged");
    check(*hello);
    if (const auto [first, fresh] = joined_.emplace(hello->rank, id); !fresh) {
      asking_.pop_back();
      refuse(id, {ErrorCode::kUsage,
                  fmt::format("rendezvous: rank {} has joined already, from {} (pid {})",
                              hello->rank, members_[hello->rank].host, members_[hello->rank].pid)});
      return;
    }
    members_[hello->rank] = std::move(hello->member);
  }

  void check(const Hello& hello) const {
    const std::string who = fmt::format("rank {} ({}, {}, pid {})", hello.rank,
                                        hello.member.address, hello.member.host, hello.member.pid);
    if (hello.size != options_.size) {
      fail(ErrorCode::kUsage, "rendezvous: {} expects {} ranks, the chief {}", who, hello.size,
           options_.size);
    }
    if (hello.build != options_.build) {
      fail(ErrorCode::kUsage, "rendezvous: {} is build '{}', the chief is build '{}'", who,
           hello.build, options_.build);
    }
    if (hello.rank >= options_.size) {
      fail(ErrorCode::kUsage, "rendezvous: {} in a job of {} ranks", who, options_.size);
    }
  }

  void refuse(const std::string& id, const Error& error) { send(id, encode_refusal(error)); }

  void tell_all(const std::string& answer) {
    for (const std::string& id : asking_) send(id, answer);
  }

  // ROUTER drops what is for a peer that has gone.
  void send(const std::string& id, const std::string& answer) {
    if (socket_.send(zmq::buffer(id), zmq::send_flags::sndmore | zmq::send_flags::dontwait)) {
      (void)socket_.send(zmq::buffer(answer), zmq::send_flags::dontwait);
    }
  }

  [[nodiscard]] std::string missing() const {
    std::vector<RankNumber> ranks;
    for (RankNumber rank = 0; rank < options_.size; ++rank) {
      if (joined_.count(rank) == 0) ranks.push_back(rank);
    }
    return fmt::format("rank{} {}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "));
  }

  SteadyClock clock_;
  zmq::socket_t& socket_;
  const RendezvousOptions& options_;
  std::vector<Member> members_;
  std::map<RankNumber, std::string> joined_;  // with the connection's identity
  std::vector<std::string> asking_;           // connections that hold the key and wait
};

// The other ranks' side: says hello and waits for the table.
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
    fail(ErrorCode::kUsage, "rendezvous: '{}' is no address to connect to", chief);
  }
  const Hello hello{kWireVersion, options.job_key, options.rank, options.size, own, options.build};
  socket.send(zmq::buffer(encode(hello)), zmq::send_flags::none);

  const SteadyClock clock;
  const Seconds deadline = clock.now() + options.limit;
  while (clock.now() < deadline) {
    zmq::message_t answer;
    if (!readable(socket, clock, deadline)) continue;
    if (socket.recv(answer, zmq::recv_flags::dontwait)) {
      return decode_answer(answer.to_string(), options.size);
    }
  }
  fail(ErrorCode::kPeersLost,
       "rendezvous: rank 0 (the chief, {}) gave rank {} no answer within {}: it is not reachable, "
       "still waits for other ranks{}",
       chief, options.rank, to_string(options.limit),
       options.encrypt ? ", or has another key or none (--encrypt)" : " or wants to be encrypted");
}

}  // namespace

std::unique_ptr<Transport> join(const RendezvousOptions& options, ChiefListener* listener) {
  if (options.size == 0 || options.size > kLargestJob || options.rank >= options.size) {
    fail(ErrorCode::kUsage, "rendezvous: rank {} of {} ranks", options.rank, options.size);
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
                                    ? Reception(listener->impl().socket, options, own).run()
                                    : ask(options, own);
  return std::make_unique<ZmqTransport>(std::move(frames), options.rank, std::move(members),
                                        std::move(blocks));
}

}  // namespace autodist::comm
