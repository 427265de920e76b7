#include "autodist/job/place.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <fmt/ranges.h>

#include <array>
#include <map>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/mutex.h"
#include "autodist/base/numbers.h"
#include "autodist/base/text.h"
#include "autodist/job/job_memory.h"
#include "autodist/job/machine.h"

namespace autodist::job {
namespace {

constexpr std::size_t kKeyBytes = 32;
constexpr std::uint32_t kMostProcesses = 1U << 22;  // the kernel's own limit

std::string required(const Environment& environment, const std::string& name) {
  const std::optional<std::string> value = environment(name);
  if (!value) {
    fail(ErrorCode::kUsage,
         "environment: AUTODIST_RANK is set but {} is not. Set all that a rank needs, or unset "
         "AUTODIST_RANK.",
         name);
  }
  return *value;
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

// A pipe gives it once; a second job of this process gets it from here. The descriptor stays ours:
// a number that was given back would be somebody else's then.
std::string read_key(int descriptor) {
  static Mutex mutex;
  static std::map<int, std::string> read_before AD_GUARDED_BY(mutex);
  const MutexLock lock(mutex);
  if (const auto known = read_before.find(descriptor); known != read_before.end()) {
    return known->second;
  }
  std::string key(2 * kKeyBytes, '\0');
  std::size_t done = 0;
  while (done < key.size()) {
    const ssize_t got = ::read(descriptor, key.data() + done, key.size() - done);
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  if (done != key.size()) {
    fail(ErrorCode::kAuthentication,
         "the job's key could not be read from descriptor {}: got {} of {} characters. "
         "Start the ranks by `autodist run`, or give them AUTODIST_KEY_FILE.",
         descriptor, done, key.size());
  }
  read_before[descriptor] = key;
  return key;
}

}  // namespace

std::uint32_t number_of(const std::string& name, const std::string& text, std::uint32_t largest) {
  const auto value = as_number<std::uint32_t>(text);
  if (!value || *value > largest) {
    fail(ErrorCode::kUsage, "environment: {}='{}', a whole number of at most {} expected", name,
         text, largest);
  }
  return *value;
}

std::vector<std::string> lost_machines(const Environment& environment) {
  return split(environment(kLostMachines).value_or(""), ',');
}

std::string addresses_text(const std::vector<std::string>& lost) {
  return fmt::format("{}", fmt::join(lost, ","));
}

std::uint32_t standby_number(const Environment& environment) {
  constexpr std::uint32_t kMost = 1'000'000'000;
  const auto text = environment(kStandby);
  return text ? number_of(kStandby, *text, kMost) : 0;
}

bool is_rank_0(const Environment& environment) {
  return environment("AUTODIST_RANK").value_or("0") == "0";
}

std::optional<JobPlace> job_from_environment(const Environment& environment) {
  const std::optional<std::string> rank = environment("AUTODIST_RANK");
  if (!rank) return std::nullopt;
  JobPlace place;
  place.size = number_of("AUTODIST_SIZE", required(environment, "AUTODIST_SIZE"), kMostRanks);
  place.rank = number_of("AUTODIST_RANK", *rank, kMostRanks);
  if (place.size == 0 || place.rank >= place.size) {
    fail(ErrorCode::kUsage,
         "environment: AUTODIST_RANK={} of AUTODIST_SIZE={}: ranks count from 0. Set AUTODIST_RANK "
         "to less.",
         place.rank, place.size);
  }
  const std::string chief = required(environment, "AUTODIST_CHIEF");
  const auto listens = host_and_port(chief);
  if (!listens) {
    fail(ErrorCode::kUsage,
         "environment: AUTODIST_CHIEF='{}', ADDRESS:PORT expected ([ADDRESS]:PORT for IPv6)",
         chief);
  }
  place.chief_address = resolved(listens->host);
  place.chief_port = static_cast<std::uint16_t>(number_of("AUTODIST_CHIEF", listens->port, 65'535));
  if (const auto chief_process = environment("AUTODIST_STARTED_BY")) {
    place.started_by = number_of("AUTODIST_STARTED_BY", *chief_process, kMostProcesses);
  }
  const auto own = environment("AUTODIST_ADDRESS");
  place.own_address = own ? *own : address_towards(place.chief_address);
  if (const auto descriptor = environment("AUTODIST_KEY_FD")) {
    place.key = read_key(static_cast<int>(number_of("AUTODIST_KEY_FD", *descriptor, 1'048'576)));
  } else {
    place.key = trimmed(read_file(required(environment, "AUTODIST_KEY_FILE"), 4096));
  }
  return place;
}

std::vector<std::string> place_variables(const JobPlace& place, int key_descriptor) {
  std::vector<std::string> variables{
      fmt::format("AUTODIST_RANK={}", place.rank), fmt::format("AUTODIST_SIZE={}", place.size),
      fmt::format("AUTODIST_CHIEF={}", with_port(place.chief_address, place.chief_port)),
      fmt::format("AUTODIST_KEY_FD={}", key_descriptor)};
  if (!place.own_address.empty()) {
    variables.push_back(fmt::format("AUTODIST_ADDRESS={}", place.own_address));
  }
  if (place.started_by != 0) {
    variables.push_back(fmt::format("AUTODIST_STARTED_BY={}", place.started_by));
  }
  if (!place.lost.empty()) {
    variables.push_back(fmt::format("{}={}", kLostMachines, addresses_text(place.lost)));
  }
  if (place.standby > 0) variables.push_back(fmt::format("{}={}", kStandby, place.standby));
  if (place.rank == 0 && place.memory >= 0) {
    variables.push_back(fmt::format("{}={}", JobMemory::kVariable, place.memory));
  }
  return variables;
}

bool names_a_place(const std::string& variable) {
  const std::string name = variable.substr(0, variable.find('='));
  for (const char* each : {"AUTODIST_RANK", "AUTODIST_SIZE", "AUTODIST_CHIEF", "AUTODIST_ADDRESS",
                           "AUTODIST_STARTED_BY", JobMemory::kVariable, kLostMachines, kStandby}) {
    if (name == each) return true;
  }
  return name.rfind("AUTODIST_KEY_", 0) == 0;
}

std::string make_job_key() {
  std::array<unsigned char, kKeyBytes> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    fail(ErrorCode::kEnvironment,
         "the kernel gave no random bytes for the job's key. Start again when it has some.");
  }
  std::string key;
  for (unsigned char byte : bytes) key += fmt::format("{:02x}", byte);
  return key;
}

}  // namespace autodist::job
