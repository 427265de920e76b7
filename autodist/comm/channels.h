// Several exchanges at a time over one transport: each has a channel, which is a transport to it.
//
// A frame's header says its channel. Control frames and those of other channels go back to the
// transport in the end.

#pragma once

#include <cstdint>
#include <memory>

#include "autodist/comm/transport.h"

namespace autodist::comm {

class Channels {
 public:
  // Channels 0 … count - 1. `transport` outlives it, and nobody else uses the transport meanwhile.
  Channels(Transport& transport, std::uint16_t count);
  ~Channels();
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  // The transport of one exchange. Channels may be used by different threads at a time. Closing one
  // does nothing: they share what lies below. REQUIRES: channel < count.
  Transport& at(std::uint16_t channel);

 private:
  class Shared;
  class Channel;
  std::unique_ptr<Shared> shared_;
};

}  // namespace autodist::comm
