// data/digits/digits.csv.gz, embedded at build time (models/CMakeLists.txt).

#pragma once

#include <cstddef>

namespace autodist::models {

extern const unsigned char kDigitsFile[];
extern const std::size_t kDigitsFileSize;

}  // namespace autodist::models
