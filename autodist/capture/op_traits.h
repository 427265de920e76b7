// What libtorch's schemas do not say about an op: the tables that capture adds to them.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace autodist::capture {

// Arguments that a kernel of libtorch writes although its schema does not say so.
const std::vector<std::uint32_t>& undeclared_writes(const std::string& op_name);

// Makes a tensor whose contents nobody has written yet (aten::empty and its like).
bool leaves_uninitialised(const std::string& op_name);

// Writes its target without reading what was there (aten::copy_, aten::zero_, random fills).
bool overwrites_target(const std::string& op_name, const std::string& overload);

}  // namespace autodist::capture
