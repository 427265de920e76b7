#include "autodist/search/placement/gzip.h"

#include <zlib.h>

#include <array>

#include "autodist/base/error.h"

namespace autodist::search::placement {

bool is_gzip(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b';
}

std::string gunzip(const std::string& bytes, const std::string& where, std::size_t limit_bytes) {
  constexpr int kGzipWindow = 15 + 16;  // largest window, gzip's header
  z_stream stream{};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) {
    fail(ErrorCode::kEnvironment, "{}: zlib cannot start", where);
  }
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string text;
  std::array<char, 1 << 16> piece{};
  int state = Z_OK;
  while (state == Z_OK && text.size() <= limit_bytes) {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = piece.size();
    state = inflate(&stream, Z_NO_FLUSH);
    text.append(piece.data(), piece.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  if (text.size() > limit_bytes) {
    fail(ErrorCode::kUsage, "{}: unpacks to more than {} bytes. Give a smaller graph.", where,
         limit_bytes);
  }
  if (state != Z_STREAM_END) {
    fail(ErrorCode::kUsage, "{}: a damaged gzip file. Pack it again, or give it unpacked.", where);
  }
  return text;
}

}  // namespace autodist::search::placement
