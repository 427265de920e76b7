// The digest of bytes that come in pieces.

#pragma once

#include <cstddef>
#include <memory>

#include "autodist/base/digest.h"

namespace autodist {

class DigestStream {
 public:
  DigestStream();
  ~DigestStream();
  DigestStream(const DigestStream&) = delete;
  DigestStream& operator=(const DigestStream&) = delete;

  void add(const void* data, std::size_t size);
  // digest_of() of all of them together.
  [[nodiscard]] Digest result() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace autodist
