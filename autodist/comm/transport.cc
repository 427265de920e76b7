#include "autodist/comm/transport.h"

#include <tuple>
#include <utility>

#include "autodist/base/check.h"

namespace autodist::comm {

std::string_view name_of(FrameKind kind) {
  switch (kind) {
    case FrameKind::kContribute:
      return "contribution";
    case FrameKind::kResult:
      return "result";
    case FrameKind::kNorm:
      return "norm";
    case FrameKind::kNote:
      return "note";
    case FrameKind::kAcknowledge:
      return "acknowledgement";
    case FrameKind::kHeartbeat:
      return "heartbeat";
    case FrameKind::kControl:
      return "control";
    case FrameKind::kGoodbye:
      return "goodbye";
  }
  AD_CHECK(false) << "frame kind " << static_cast<int>(kind);
  return "";
}

bool operator==(const FrameHeader& a, const FrameHeader& b) {
  return std::tie(a.kind, a.epoch, a.step, a.slice, a.from, a.samples, a.piece, a.pieces) ==
         std::tie(b.kind, b.epoch, b.step, b.slice, b.from, b.samples, b.piece, b.pieces);
}

Payload Payload::copy_of(const std::string& bytes) {
  auto keep = std::make_shared<const std::string>(bytes);
  return {reinterpret_cast<const std::byte*>(keep->data()), keep->size(), keep};
}

std::string Payload::to_string() const {
  return size == 0 ? std::string() : std::string(reinterpret_cast<const char*>(data), size);
}

std::optional<Frame> Transport::receive(Seconds timeout) {
  if (given_back_.empty()) return receive_next(timeout);
  Frame frame = std::move(given_back_.front());
  given_back_.pop_front();
  return frame;
}

}  // namespace autodist::comm
