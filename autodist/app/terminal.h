// Text that fits the terminal it is written to.

#pragma once

#include <cstddef>
#include <optional>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

namespace autodist::app {

// Columns of the terminal that a descriptor is; nothing where it is none, or does not know.
std::optional<std::size_t> terminal_columns(int descriptor);

// The line in at most so many columns; one that is cut ends with "…".
std::string cut(std::string_view line, std::size_t columns);

// As many of the parts, two spaces between them, as there are columns for; the first is cut.
std::string first_that_fit(const std::vector<std::string>& parts, std::size_t columns);

// The text with no line longer than so many columns, but for words that are. A longer one is broken
// at spaces and goes on below its second column (behind two spaces or more), if that is in the left
// half, else a little further in than it begins; or by `indent`.
std::string wrapped(std::string_view text, std::size_t columns,
                    std::optional<std::size_t> indent = {});

// Hands on what is written to it line by line, wrapped. Ends with what it has of a last line.
class WrappingBuffer : public std::streambuf {
 public:
  WrappingBuffer(std::streambuf& target, std::size_t columns)
      : target_(target), columns_(columns) {}
  ~WrappingBuffer() override { sync(); }

 protected:
  int overflow(int c) override;
  int sync() override;

 private:
  std::streambuf& target_;
  const std::size_t columns_;
  std::string line_;
};

}  // namespace autodist::app
