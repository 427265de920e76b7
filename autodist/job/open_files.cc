#include "autodist/job/open_files.h"

#include <sys/resource.h>

#include "autodist/base/error.h"

namespace autodist::job {
namespace {

constexpr std::uint64_t kOwnFiles = 64;
constexpr std::uint64_t kFilesPerRank = 8;

}  // namespace

std::uint64_t raise_open_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_max : before;
}

std::uint64_t open_files_for(std::uint32_t ranks) { return kOwnFiles + kFilesPerRank * ranks; }

void check_open_files(std::uint32_t ranks, std::uint64_t limit) {
  if (limit >= open_files_for(ranks)) return;
  fail(
      ErrorCode::kEnvironment,
      "open files: each of {} ranks has up to {} open, and this machine lets a process have {}. "
      "Raise the hard limit (ulimit -Hn, LimitNOFILE=, docker run --ulimit nofile=…), or use fewer "
      "ranks",
      ranks, open_files_for(ranks), limit);
}

}  // namespace autodist::job
