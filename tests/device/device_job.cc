// device_job SITE SEED: small jobs on the test device with one of the engine's waits left out (-1:
// none). Prints what was noticed; exit code 1 where anything was.

#include <cstdlib>
#include <exception>
#include <iostream>

#include "autodist/exec/device/wait_site.h"
#include "tests/device/jobs.h"

int main(int count, char** words) {
  using namespace autodist;
  using namespace autodist::test_device;
  if (count != 3) {
    std::cerr << "usage: device_job SITE SEED\n";
    return 2;
  }
  const int site = std::atoi(words[1]);
  const auto seed = static_cast<std::uint64_t>(std::atoll(words[2]));
  bool noticed = false;
  for (const DeviceJob& job :
       {DeviceJob{"digits", "PS", 2}, DeviceJob{"digits", "AllReduce", 2},
        DeviceJob{"digits", "AllReduce:algorithm=library", 2, 1, "", false, false, true},
        DeviceJob{"digits", "PS:staleness=2", 2}}) {
    const bool stale = job.builder.find("staleness") != std::string::npos;
    try {
      exec::leave_out(std::nullopt);
      const testing_jobs::Parameters cpu = train(job, false);
      begin({seed});
      if (site >= 0) exec::leave_out(static_cast<exec::WaitSite>(site));
      const testing_jobs::Parameters there = train(job, true);
      if (!stale && !equal(there, cpu)) {
        std::cout << job.builder << ": other values than on the CPU\n";
        noticed = true;
      }
    } catch (const std::exception& error) {
      std::cout << job.builder << ": " << error.what() << '\n';
      noticed = true;
    }
    for (const std::string& report : reports()) {
      std::cout << job.builder << ": " << report << '\n';
      noticed = true;
    }
  }
  return noticed ? 1 : 0;
}
