#include "autodist/ir/parsed_size.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <limits>

namespace autodist::ir {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr std::int64_t kMessage = 512;  // with the struct of ours that is made of it
constexpr std::int64_t kString = 64;
constexpr std::int64_t kNumber = 16;
constexpr std::int64_t kUnknown = 64;

class Walk {
 public:
  Walk(CodedInputStream& in, std::int64_t limit) : in_(in), limit_(limit) {}

  // Ends with the message, or returns false at the limit or at damage. `type` is null for a
  // group, which no message of ours has.
  bool message(const Descriptor* type) {
    if (!add(kMessage) || !in_.IncrementRecursionDepth()) return false;
    while (const std::uint32_t tag = in_.ReadTag()) {
      if (WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_END_GROUP) break;
      const int number = WireFormatLite::GetTagFieldNumber(tag);
      if (!field(tag, type == nullptr ? nullptr : type->FindFieldByNumber(number))) return false;
    }
    in_.DecrementRecursionDepth();
    return true;
  }

  [[nodiscard]] std::int64_t total() const { return total_; }

 private:
  bool add(std::int64_t bytes) {
    total_ += bytes;
    return total_ < limit_;
  }

  bool field(std::uint32_t tag, const FieldDescriptor* known) {
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_START_GROUP:
        return message(nullptr);
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        return block(known);
      default:
        return add(known == nullptr ? kUnknown : kNumber) && WireFormatLite::SkipField(&in_, tag);
    }
  }

  bool block(const FieldDescriptor* known) {
    int size = 0;
    if (!in_.ReadVarintSizeAsInt(&size)) return false;
    if (known != nullptr && known->type() == FieldDescriptor::TYPE_MESSAGE) {
      const auto outer = in_.PushLimit(size);
      const bool whole = message(known->message_type());
      in_.PopLimit(outer);
      return whole;
    }
    const bool numbers = known != nullptr && known->is_packable();
    return add(numbers ? kNumber * size : kString + size) && in_.Skip(size);
  }

  CodedInputStream& in_;
  const std::int64_t limit_;
  std::int64_t total_ = 0;
};

}  // namespace

std::int64_t parsed_size(const std::string& bytes, const Descriptor& type, std::int64_t limit) {
  CodedInputStream in(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  in.SetTotalBytesLimit(std::numeric_limits<int>::max());
  Walk walk(in, limit);
  walk.message(&type);
  return walk.total();
}

}  // namespace autodist::ir
