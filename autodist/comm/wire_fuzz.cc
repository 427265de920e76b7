// Whatever a socket gives: decode refuses it or re-encodes it to the same bytes.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "autodist/comm/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace autodist::comm;
  // The first byte of the step says how much of the rest is a rider.
  const std::size_t rider = size > kWireHeaderSize ? data[16] : 0;
  const std::size_t header_size = std::min(size, kWireHeaderSize + rider);
  const std::size_t payload_size = size - header_size;
  const auto decoded = decode(data, header_size, payload_size);
  if (const auto* header = std::get_if<FrameHeader>(&decoded)) {
    if (rider_of(data, header_size).size() != header_size - kWireHeaderSize) std::abort();
    const WireHeader again = encode(*header, payload_size, place_of(data));
    if (std::memcmp(again.data(), data, kWireHeaderSize) != 0) std::abort();
  }
  return 0;
}
