// The rows of a table of variables: those that say the same of names that differ in numbers alone
// are one row, with their count, and only so many are shown.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace autodist::report {

class AlikeRows {
 public:
  struct Row {
    std::string name;  // "layer.{0,1}.weight ×2", "layer.*.weight ×12" where they are many
    std::vector<std::string> cells;
  };

  // Shows at most so many rows. 0: all, each by itself.
  explicit AlikeRows(std::size_t most) : most_(most) {}

  // `cells` is what stands beside the name.
  void add(const std::string& name, std::vector<std::string> cells);

  // In the order in which the first of each came.
  [[nodiscard]] std::vector<Row> shown() const;
  // How many were added that are in none of these.
  [[nodiscard]] std::size_t hidden() const;

 private:
  struct Alike {
    std::vector<std::vector<std::string>> name;  // letters and numbers in turns, each once
    std::vector<std::string> cells;
    std::size_t count = 1;
  };

  static bool join(const std::vector<std::string>& parts, const std::vector<std::string>& cells,
                   Alike& with);
  static std::string name_of(const Alike& alike);

  std::size_t most_;
  std::vector<Alike> alike_;
};

}  // namespace autodist::report
