// What `--help` prints: wrapped at words, with defaults, and choices by name.

#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <memory>

namespace autodist::app {

// For lines of so many columns. Where nobody reads them at a terminal, the values of an option stay
// on one line, from which shells complete.
std::shared_ptr<CLI::Formatter> help_formatter(std::size_t columns, bool at_terminal);

}  // namespace autodist::app
