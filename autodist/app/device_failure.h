// What a message of libtorch's says beside a refusal of what model and data ask for.

#pragma once

#include <string>

namespace autodist::app {

// A device, or a library that works on it or connects it with others, has failed in the midst of
// its work, which says nothing of model and data: another start may go well. Not so for memory that
// has run out, and for what is refused each time (a label that is no class, another device than
// libtorch is built for).
bool is_device_failure(const std::string& message);

// Memory has run out, of the host or of a device.
bool is_out_of_memory(const std::string& message);

}  // namespace autodist::app
