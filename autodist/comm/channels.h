// Several exchanges at a time over one transport: each has a channel, which is a transport to it.
//
// A frame belongs to the channel whose number its epoch is; what belongs to none (control frames,
// epochs from outside) goes back to the transport in the end.

#pragma once

#include <cstdint>
#include <memory>

#include "autodist/comm/transport.h"

namespace autodist::comm {

class Channels {
 public:
  // Channels 1 … count. `transport` outlives it, and nobody else uses the transport meanwhile.
  Channels(Transport& transport, std::uint32_t count);
  ~Channels();
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  // The transport of an exchange whose ExchangeOptions::epoch is `epoch`. Channels may be used by
  // different threads at a time. Closing one does nothing: they share what lies below. REQUIRES:
  // 1 <= epoch <= count.
  Transport& at(std::uint32_t epoch);

 private:
  class Shared;
  class Channel;
  std::unique_ptr<Shared> shared_;
};

}  // namespace autodist::comm
