// The rows of a table of variables: those that say the same of names that differ in numbers alone
// are one row, with their count, and only so many are shown.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace autodist::report {

class AlikeRows {
 public:
  // Shows at most so many rows. 0: all, each by itself.
  explicit AlikeRows(std::size_t most) : most_(most) {}

  // The name, and what stands beside it.
  void add(std::vector<std::string> row);

  // As they are added, in the order in which the first of each came; a name is then
  // "layer.{0,1}.weight ×2", or "layer.*.weight ×12" where they are many.
  [[nodiscard]] std::vector<std::vector<std::string>> shown() const;
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
