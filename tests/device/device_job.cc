// device_job SITE SEED: parts of the engine and small jobs on the test device with one of the
// engine's waits left out (-1: none). Prints what was noticed and the waits that were reached; exit
// code 1 where anything was noticed, which ends it unless nothing is left out.

#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "autodist/exec/device/wait_site.h"
#include "tests/device/jobs.h"
#include "tests/device/scenes.h"

namespace autodist::test_device {
namespace {

std::vector<DeviceJob> jobs() {
  std::vector<DeviceJob> all{
      {"digits", "PS", 2},
      {"digits", "AllReduce", 2},
      {"digits", "AllReduce:algorithm=library", 2, 1, "", false, false, true},
      {"digits", "PS:staleness=2", 2},
      {"digits", "PS:results=asked", 2},
      // Updates on the host, of a rank that nobody sends anything to.
      {"digits", "AllReduce", 1, 1, "lamb:lr=1e-3"},
      {"digits", "AllReduce", 2, 1, "sgd:lr=0.02,clip=0.5"},
      {"digits", "AllReduce", 2, 1, "", /*scales_loss=*/true},
      {"ncf-small-sparse", "PS", 2, 1, "sgd:lr=0.02"},
      {"digits", "PS", 2, 3, "", false, false, false, /*stages=*/2}};
  for (DeviceJob& job : all) job.reads_at_end = job.builder == "PS" && job.stages == 1;
  return all;
}

bool is_stale(const DeviceJob& job) { return job.builder.find("staleness") != std::string::npos; }

// Whether anything was noticed of what `run` does, or reports by a text.
bool notices(const std::string& name, const std::function<std::string()>& run) {
  std::string said;
  try {
    said = run();
  } catch (const std::exception& error) {
    said = error.what();
  }
  if (!said.empty()) std::cout << "noticed by " << name << ": " << said << std::endl;
  const std::vector<std::string> found = reports();
  for (const std::string& report : found) {
    std::cout << "noticed by " << name << ": " << report << std::endl;
  }
  return !said.empty() || !found.empty();
}

int run(std::optional<exec::WaitSite> site, std::uint64_t seed) {
  bool noticed = false;
  exec::leave_out(site);
  for (const Scene& scene : kScenes) {
    begin({seed, 1, std::chrono::milliseconds(5)});
    noticed |= notices(scene.name, [&] {
      scene.play();
      return std::string();
    });
    if (noticed && site) return 1;
  }
  for (const DeviceJob& job : jobs()) {
    noticed |= notices(name_of(job), [&] {
      exec::leave_out(std::nullopt);
      const testing_jobs::Parameters cpu = train(job, false);
      begin({seed});
      exec::leave_out(site);
      const testing_jobs::Parameters there = train(job, true);
      return is_stale(job) || equal(there, cpu) ? std::string() : "other values than on the CPU";
    });
    if (noticed && site) return 1;
  }
  for (int i = 0; i < exec::kWaitSites; ++i) {
    if (exec::was_reached(static_cast<exec::WaitSite>(i))) std::cout << "reached " << i << '\n';
  }
  return noticed ? 1 : 0;
}

}  // namespace
}  // namespace autodist::test_device

int main(int count, char** words) {
  if (count != 3) {
    std::cerr << "usage: device_job SITE SEED\n";
    return 2;
  }
  const int site = std::atoi(words[1]);
  const auto seed = static_cast<std::uint64_t>(std::atoll(words[2]));
  std::optional<autodist::exec::WaitSite> left_out;
  if (site >= 0) left_out = static_cast<autodist::exec::WaitSite>(site);
  return autodist::test_device::run(left_out, seed);
}
