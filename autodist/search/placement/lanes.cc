#include "autodist/search/placement/lanes.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace autodist::search::placement {

void run_lanes(std::size_t lanes, std::size_t threads,
               const std::function<void(std::size_t)>& work) {
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  threads = std::min(threads, lanes);
  std::vector<std::exception_ptr> failures(lanes);
  std::atomic<std::size_t> next{0};
  const auto serve = [&] {
    for (std::size_t lane = next++; lane < lanes; lane = next++) {
      try {
        work(lane);
      } catch (...) {
        failures[lane] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < threads; ++i) others.emplace_back(serve);
  serve();
  for (std::thread& thread : others) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace autodist::search::placement
