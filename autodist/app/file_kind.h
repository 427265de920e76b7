// What a file is, told by its contents: AutoDist's files carry no magic word, and data sets name
// them as they like.

#pragma once

#include <cstdint>
#include <string>

namespace autodist::app {

enum class FileKind : std::uint8_t {
  kGraph,       // a captured step
  kGraphItem,   // AutoDist's
  kStrategy,    // raw or as text
  kCluster,     // a resource specification, a host file, a list of hosts
  kRuntimes,    // measured step times of AutoSync's data set
  kTrace,       // of `train --trace` or `simulate --trace`
  kLog,         // of `train --log`
  kPrediction,  // what `simulate --json` printed
  kSweep,       // the same where one value of --what-if varies
};

// The end of the name decides where the contents do not: of a damaged file, of one with a few words
// of text. Throws Error(kUsage) where neither does, and for an empty one.
FileKind kind_of(const std::string& bytes, const std::string& name);

}  // namespace autodist::app
