// Ranks as threads of one process: the reference transport, and the one that tests bend.
//
// Frames go through mailboxes, one per rank; payloads are passed by reference. A test may delay,
// double or drop any frame and may kill a rank, as a cable or a SIGKILL would.

#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "autodist/comm/transport.h"

namespace autodist::comm {

class InProcessHub {
 public:
  explicit InProcessHub(RankNumber size);

  // The transport of one rank; it may outlive the hub. A rank connects once; frames that were sent
  // to it before wait in its mailbox.
  std::unique_ptr<Transport> connect(RankNumber rank);

  // What becomes of a frame: it arrives once after each of the delays. {Seconds{0}} is the ordinary
  // fate, {} loses the frame, two delays double it. Frames of a pair arrive in the order of their
  // arrival times, so unequal delays let a later frame overtake.
  using Fate = std::function<std::vector<Seconds>(RankNumber to, const Frame& frame)>;
  // For frames sent from here on. Called on the sending ranks' threads, several at a time.
  void bend(Fate fate);

  // From here on the rank is silent: what it sends and what is sent to it vanishes, and its
  // receive() gives nothing. Any thread.
  void kill(RankNumber rank);

 private:
  class Mailbox;
  class State;
  class Endpoint;
  std::shared_ptr<State> state_;
};

}  // namespace autodist::comm
