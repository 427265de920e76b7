// What `--help` prints: wrapped at words, with defaults, and choices by name.

#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <memory>

namespace autodist::app {

// For lines of so many columns.
std::shared_ptr<CLI::Formatter> help_formatter(std::size_t columns);

}  // namespace autodist::app
