// How many files a rank of a job has open, and may have.

#pragma once

#include <cstdint>

namespace autodist::job {

// Raises this process's soft limit to its hard one, and returns that.
std::uint64_t raise_open_files();

// What a rank of a job of so many has open at most: sockets to and from every other, and the files
// of a program that trains.
std::uint64_t open_files_for(std::uint32_t ranks);

// Throws Error(kEnvironment) where `limit` does not hold them.
void check_open_files(std::uint32_t ranks, std::uint64_t limit);

}  // namespace autodist::job
