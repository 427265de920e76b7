// Encryption and authentication of a job's sockets: CurveZMQ (rfc.zeromq.org/spec/26) with keys
// that every rank derives from the job's key, so that nothing but that key has to be handed out.
//
// libzmq alone lets in any client that knows the server's public key; who may come in is decided by
// a handler of its authentication protocol (rfc.zeromq.org/spec/27): here exactly the job's client
// key. Each connection has ephemeral keys: who learns the job's key later cannot read what was
// said.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <zmq.hpp>

namespace autodist::comm {

// In Z85, with the final zero.
using CurveKey = std::array<char, 41>;

struct CurveKeys {
  CurveKey server_public{}, server_secret{};
  CurveKey client_public{}, client_secret{};
};

// Equal keys at all ranks that are given this job's key. Throws Error(kEnvironment) where libzmq
// was built without CURVE.
CurveKeys curve_keys_of(const std::string& job_key);

enum class CurveSide : std::uint8_t { kServer, kClient };

// For a fresh socket, before bind or connect.
void secure(void* socket, CurveSide side, const CurveKeys& keys);

// SHA-256 (FIPS 180-4) of `bytes`.
std::array<unsigned char, 32> sha256(const std::string& bytes);

// The handler of one context, on a thread of its own. Outlives the context's server sockets, and is
// running before the first of them is bound.
class ClientGate {
 public:
  ClientGate(zmq::context_t& context, const CurveKeys& keys);
  ~ClientGate();
  ClientGate(const ClientGate&) = delete;
  ClientGate& operator=(const ClientGate&) = delete;

  // Clients with another key. (Whoever does not know the server's key does not come so far.)
  [[nodiscard]] std::uint64_t refused() const { return refused_; }

 private:
  void answer_all();
  bool answer_one();

  std::array<unsigned char, 32> admitted_{};
  zmq::socket_t requests_;
  zmq::socket_t stop_here_, stop_there_;
  std::atomic<std::uint64_t> refused_{0};
  std::thread thread_;
};

}  // namespace autodist::comm
