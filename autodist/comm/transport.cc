#include "autodist/comm/transport.h"

#include <iterator>
#include <tuple>
#include <utility>

namespace autodist::comm {

std::string name_of(FrameKind kind) {
  switch (kind) {
    case FrameKind::kAcknowledge:
      return "acknowledgement";
    case FrameKind::kHeartbeat:
      return "heartbeat";
    case FrameKind::kAlive:
      return "sign of life";
    case FrameKind::kControl:
      return "control";
    case FrameKind::kGoodbye:
      return "goodbye";
    default:
      return "message of kind " + std::to_string(static_cast<int>(kind));
  }
}

bool operator==(const FrameHeader& a, const FrameHeader& b) {
  const auto fields = [](const FrameHeader& each) {
    return std::tie(each.kind, each.generation, each.step, each.id, each.from, each.samples,
                    each.piece, each.pieces, each.channel);
  };
  return fields(a) == fields(b);
}

Payload Payload::copy_of(const std::string& bytes) {
  auto keep = std::make_shared<const std::string>(bytes);
  return {reinterpret_cast<const std::byte*>(keep->data()), keep->size(), keep};
}

std::string Payload::to_string() const {
  return size == 0 ? std::string() : std::string(reinterpret_cast<const char*>(data), size);
}

void Transport::give_back(std::vector<Frame> frames) {
  given_back_.insert(given_back_.begin(), std::make_move_iterator(frames.begin()),
                     std::make_move_iterator(frames.end()));
}

std::optional<Frame> Transport::receive(Seconds timeout) {
  if (given_back_.empty()) return receive_next(timeout);
  Frame frame = std::move(given_back_.front());
  given_back_.pop_front();
  return frame;
}

}  // namespace autodist::comm
