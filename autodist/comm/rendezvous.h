// How the ranks of a job find each other over TCP: the chief listens, the others join, everybody
// learns every address.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "autodist/base/error.h"
#include "autodist/comm/transport.h"

namespace autodist::comm {

struct RendezvousOptions {
  RankNumber rank = 0;
  RankNumber size = 1;
  std::string chief_address = "127.0.0.1";
  std::uint16_t chief_port = 0;           // for the chief: 0 takes a free one (see ChiefListener)
  std::string own_address = "127.0.0.1";  // where this rank listens; never all interfaces
  // Everything between ranks is encrypted, the meeting included (zmq/curve.h). The same at all
  // ranks.
  bool encrypt = false;
  std::string job_key;  // joins of another job are refused: Error(kAuthentication)
  std::string build;    // version of the program; must be equal everywhere
  // For the silence of who is waited for, not for the meeting: a rank that waits says so, and the
  // chief answers it.
  Seconds limit{60};
  // Ranks of one machine pass large payloads through memory that they share, at most this much per
  // sender; 0: never.
  Bytes shared_memory{std::int64_t{64} << 20};
  // For the chief: whether a rank that has not come yet is known to run. It is then waited for.
  std::function<bool(RankNumber)> runs;
  // Called several times a second by who waits, with whom all wait for ("ranks 1, 3") and for how
  // long; what it throws ends the wait, the chief's for all.
  std::function<void(const std::string& whom, Seconds since)> while_waiting;
};

struct ListeningSocket;

// Bound before the other ranks are started, so that they can be told the port.
class ChiefListener {
 public:
  // With a key, only who holds it comes in (RendezvousOptions::encrypt). Throws Error(kEnvironment)
  // when the port is taken.
  ChiefListener(const std::string& address, std::uint16_t port,
                const std::optional<std::string>& job_key = std::nullopt);
  ~ChiefListener();
  [[nodiscard]] std::uint16_t port() const;

  [[nodiscard]] ListeningSocket& socket() { return *socket_; }  // for join()

 private:
  std::unique_ptr<ListeningSocket> socket_;
};

// At the chief: this rank's program is of another build.
class OtherBuild : public Error {
 public:
  OtherBuild(RankNumber rank, const std::string& message)
      : Error(ErrorCode::kEnvironment, message), rank_(rank) {}
  [[nodiscard]] RankNumber rank() const { return rank_; }

 private:
  RankNumber rank_;
};

// The connected transport. A rank that is started again during the meeting takes the place of the
// process that it was before; a second one beside the first is refused. Throws Error(kPeersLost)
// naming the ranks that did not join within the limit, Error(kUsage) when sizes differ and
// Error(kEnvironment) when builds do (both shown; at the chief OtherBuild), Error(kAuthentication).
// A build that is so far apart that it has another version of the protocol is Error(kUsage): its
// hello cannot be read as far as its rank.
// The chief passes its listener; the others pass nullptr.
std::unique_ptr<Transport> join(const RendezvousOptions& options, ChiefListener* listener);

}  // namespace autodist::comm
