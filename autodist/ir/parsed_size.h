// What a protobuf message would take in memory, said before it is parsed: two bytes of a file may
// stand for an object of hundreds.

#pragma once

#include <cstdint>
#include <string>

namespace google::protobuf {
class Descriptor;
}

namespace autodist::ir {

// An upper estimate in bytes of the parsed message and of what is made of it, fields that `type`
// does not know included; stops at `limit`. Of damaged bytes what comes before the damage.
std::int64_t parsed_size(const std::string& bytes, const google::protobuf::Descriptor& type,
                         std::int64_t limit);

}  // namespace autodist::ir
