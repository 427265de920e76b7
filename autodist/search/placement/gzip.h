// Published graphs travel gzipped.

#pragma once

#include <string>
#include <string_view>

namespace autodist::search::placement {

// Whether the bytes begin as a gzip file does.
bool is_gzip(std::string_view bytes);

// What a gzip file holds, at most `limit_bytes` of it. Throws Error(kUsage), prefixed with `where`,
// for a damaged file or one that holds more.
std::string gunzip(const std::string& bytes, const std::string& where,
                   std::size_t limit_bytes = std::size_t{1} << 30);

}  // namespace autodist::search::placement
