// What it is that libtorch refuses, by its message: most of its exceptions are of one type.

#pragma once

#include <string>

namespace autodist::app {

enum class Refused {
  kModelAndData,  // by what they ask for, each time: a label that is no class, a device of a kind
                  // that libtorch is not built for
  kMemory,        // has run out, of the host or of a device
  // A device, or a library that works on it or connects it with others, has failed in the midst of
  // its work, which says nothing of model and data: another start may go well.
  kDevice,
};

// The only place that reads such a message. Of several lines, any may say it.
Refused refused_by(const std::string& message);

// Throws Error(kPeersLost), so that whoever has started the training starts it again, where a
// device has failed. `who` begins its line: "train: step 3".
void fail_of_device(const std::string& who, const std::string& message);

}  // namespace autodist::app
