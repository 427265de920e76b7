#include "autodist/comm/zmq/curve.h"

#include <zmq.h>

#include <algorithm>
#include <vector>

#include "autodist/base/check.h"
#include "autodist/base/error.h"

namespace autodist::comm {
namespace {

constexpr const char* kZapEndpoint = "inproc://zeromq.zap.01";
constexpr const char* kZapDomain = "autodist";
constexpr const char* kStopEndpoint = "inproc://autodist.gate.stop";
constexpr std::size_t kZapParts = 7;  // version, id, domain, address, identity, mechanism, key

constexpr std::array<std::uint32_t, 64> kRound{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t rotated(std::uint32_t x, int by) { return (x >> by) | (x << (32 - by)); }

void add_block(const unsigned char* block, std::array<std::uint32_t, 8>& state) {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 4; ++j) w[i] = w[i] << 8 | block[4 * i + j];
  }
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t a = rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const std::uint32_t b = rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + a + w[i - 7] + b;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t t1 = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
                             ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const std::uint32_t t2 =
        (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::array<std::uint32_t, 8> mixed{a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state[i] += mixed[i];
}

void set(void* socket, int option, const void* value, std::size_t size) {
  AD_CHECK(zmq_setsockopt(socket, option, value, size) == 0)
      << "option " << option << ": " << zmq_strerror(zmq_errno());
}

// A pair whose secret half is a hash of the job's key; any 32 bytes are a secret of Curve25519.
void derive(const std::string& purpose, const std::string& job_key, CurveKey& public_key,
            CurveKey& secret_key) {
  const auto secret = sha256("autodist " + purpose + '\0' + job_key);
  AD_CHECK(zmq_z85_encode(secret_key.data(), secret.data(), secret.size()) != nullptr);
  AD_CHECK(zmq_curve_public(public_key.data(), secret_key.data()) == 0)
      << zmq_strerror(zmq_errno());
}

}  // namespace

std::array<unsigned char, 32> sha256(const std::string& bytes) {
  std::array<std::uint32_t, 8> state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::string padded = bytes + '\x80';
  while (padded.size() % 64 != 56) padded += '\0';
  const std::uint64_t bits = 8 * std::uint64_t{bytes.size()};
  for (int shift = 56; shift >= 0; shift -= 8) padded += static_cast<char>(bits >> shift);
  for (std::size_t at = 0; at < padded.size(); at += 64) {
    add_block(reinterpret_cast<const unsigned char*>(padded.data()) + at, state);
  }
  std::array<unsigned char, 32> digest{};
  for (std::size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<unsigned char>(state[i / 4] >> (24 - 8 * (i % 4)));
  }
  return digest;
}

CurveKeys curve_keys_of(const std::string& job_key) {
  if (zmq_has("curve") == 0) {
    fail(ErrorCode::kEnvironment,
         "encryption: this libzmq was built without CURVE. Install one that has it, or use "
         "--encrypt off on a trusted network");
  }
  CurveKeys keys;
  derive("server", job_key, keys.server_public, keys.server_secret);
  derive("client", job_key, keys.client_public, keys.client_secret);
  return keys;
}

void secure(void* socket, CurveSide side, const CurveKeys& keys) {
  constexpr std::size_t kSize = std::tuple_size<CurveKey>::value;
  if (side == CurveSide::kServer) {
    const int server = 1;
    set(socket, ZMQ_CURVE_SERVER, &server, sizeof server);
    set(socket, ZMQ_CURVE_SECRETKEY, keys.server_secret.data(), kSize);
    set(socket, ZMQ_ZAP_DOMAIN, kZapDomain, std::char_traits<char>::length(kZapDomain));
    return;
  }
  set(socket, ZMQ_CURVE_SERVERKEY, keys.server_public.data(), kSize);
  set(socket, ZMQ_CURVE_PUBLICKEY, keys.client_public.data(), kSize);
  set(socket, ZMQ_CURVE_SECRETKEY, keys.client_secret.data(), kSize);
}

ClientGate::ClientGate(zmq::context_t& context, const CurveKeys& keys)
    : requests_(context, zmq::socket_type::rep),
      stop_here_(context, zmq::socket_type::pair),
      stop_there_(context, zmq::socket_type::pair) {
  AD_CHECK(zmq_z85_decode(admitted_.data(), keys.client_public.data()) != nullptr);
  for (zmq::socket_t* socket : {&requests_, &stop_here_, &stop_there_}) {
    socket->set(zmq::sockopt::linger, 0);
  }
  requests_.bind(kZapEndpoint);
  stop_there_.bind(kStopEndpoint);
  stop_here_.connect(kStopEndpoint);
  thread_ = std::thread([this] { answer_all(); });
}

ClientGate::~ClientGate() {
  stop_here_.send(zmq::message_t(), zmq::send_flags::none);
  thread_.join();
}

void ClientGate::answer_all() {
  while (true) {
    std::array<zmq::pollitem_t, 2> items{
        {{requests_.handle(), 0, ZMQ_POLLIN, 0}, {stop_there_.handle(), 0, ZMQ_POLLIN, 0}}};
    if (zmq_poll(items.data(), static_cast<int>(items.size()), -1) < 0) continue;  // a signal
    if ((items[1].revents & ZMQ_POLLIN) != 0) return;
    if ((items[0].revents & ZMQ_POLLIN) != 0 && !answer_one()) ++refused_;
  }
}

bool ClientGate::answer_one() {
  std::vector<zmq::message_t> request;
  do {
    request.emplace_back();
    (void)requests_.recv(request.back());
  } while (request.back().more());
  const bool whole = request.size() == kZapParts;
  const bool admitted =
      whole && request[5].to_string() == "CURVE" && request[6].size() == admitted_.size() &&
      std::equal(admitted_.begin(), admitted_.end(), request[6].data<unsigned char>());
  const std::string id = whole ? request[1].to_string() : "";
  const std::array<std::string, 6> answer{
      "1.0", id, admitted ? "200" : "400", admitted ? "OK" : "not of this job", "", ""};
  for (std::size_t i = 0; i < answer.size(); ++i) {
    const bool last = i + 1 == answer.size();
    requests_.send(zmq::buffer(answer[i]), last ? zmq::send_flags::none : zmq::send_flags::sndmore);
  }
  return admitted;
}

}  // namespace autodist::comm
