// `autodist bench gpus`: how fast this machine's GPUs and its memory copy to each other.
// `autodist doctor` runs it where there is a driver.

#include <fmt/format.h>
#include <torch/cuda.h>

#include <nlohmann/json.hpp>

#include "autodist/comm/c10d/nccl.h"
#include "autodist/exec/device/copy_rates.h"
#include "autodist/studies/torch/bench.h"

namespace autodist::studies {

int bench_gpus(app::Console& console) {
  constexpr Bytes kSize{64LL << 20};
  nlohmann::ordered_json json{{"nccl", comm::has_nccl()},
                              {"gpus", nlohmann::ordered_json::array()}};
  const auto count = static_cast<std::size_t>(torch::cuda::device_count());
  for (std::size_t i = 0; i < count; ++i) {
    const exec::CopyRates rates = exec::measure_copies(fmt::format("cuda:{}", i), kSize);
    json["gpus"].push_back({{"bytes_per_second_to_it", rates.to_device},
                            {"bytes_per_second_from_it", rates.to_host},
                            {"bytes_per_second_both", rates.both}});
    if (console.json) continue;
    console.out << fmt::format("GPU {}  to it {:.1f} GB/s, from it {:.1f}, both at once {:.1f}\n",
                               i, 1e-9 * rates.to_device, 1e-9 * rates.to_host, 1e-9 * rates.both);
  }
  if (console.json) {
    console.out << json.dump() << "\n";
  } else if (count == 0) {
    console.out << "libtorch finds no GPU here\n";
  }
  return 0;
}

}  // namespace autodist::studies
