// What shells complete after `autodist`, and its manual page, from the table of verbs.

#pragma once

#include <string>
#include <vector>

namespace autodist::app {

// "bash", "zsh", "fish", "man".
const std::vector<std::string>& completion_kinds();

// A script for the shell to source, or a page for man(1). Options of a verb are asked of its
// --help when they are completed, so they are those of the program that is installed.
//
// REQUIRES: one of completion_kinds().
std::string completion_of(const std::string& kind);

}  // namespace autodist::app
