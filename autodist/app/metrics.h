// A training's figures, step by step, in files that other programs read: JSON lines, CSV, and the
// event files of TensorBoard.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace autodist::app {

struct StepMetrics {
  std::int64_t step = 0;
  double unix_seconds = 0;
  std::vector<std::pair<std::string, double>> values;  // the same names at every step
  // That the step ran under; empty: not said. TensorBoard has no place for it.
  std::string plan = "";
};

// Writes each step at once, so that a run that ends early has left all of it. A step that cannot be
// written is left out whole, and the next one is tried again.
class MetricsLog {
 public:
  virtual ~MetricsLog() = default;
  // Returns whether it is written.
  virtual bool write(const StepMetrics& metrics) = 0;
  // "--log run.csv: No space left on device", of the first step that is missing; else empty.
  [[nodiscard]] virtual const std::string& failure() const = 0;
};

// One line per step, appended: CSV where the name ends in .csv (with a head where the file is
// empty), else JSON. `names` are those of all steps' values. Throws Error(kUsage) where it cannot
// be written, is no log, or has other columns. `option` names it in messages.
std::unique_ptr<MetricsLog> open_lines(const std::string& option, const std::string& path,
                                       const std::vector<std::string>& names);
// Refuses before the work what open_lines() would refuse. Throws Error(kEnvironment) where the file
// is closed to us. An empty path is none.
void expect_lines(const std::string& option, const std::string& path,
                  const std::vector<std::string>& names);

// A new event file in `folder`, which is made where it is missing. Throws
// Error(kUsage).
std::unique_ptr<MetricsLog> open_tensorboard(const std::string& option, const std::string& folder,
                                             double unix_seconds);

// One record of an event file: its length, its bytes, a masked CRC-32C of each.
std::string tensorboard_record(const std::string& bytes);

}  // namespace autodist::app
