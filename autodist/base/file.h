// Whole files, read with a bound and written so that a reader sees the old or the new one.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace autodist {

// The file's bytes. Throws Error(kUsage) naming the path when it is missing, not a plain file, not
// readable or larger than `limit_bytes`.
std::string read_file(const std::string& path, std::int64_t limit_bytes = std::int64_t{4} << 30);

// Writes beside the target, syncs, renames. Throws Error(kEnvironment) naming the path and the
// reason.
void write_file_atomically(const std::string& path, std::string_view bytes);

}  // namespace autodist
