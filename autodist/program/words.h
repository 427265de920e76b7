// What reports say to people of an exchange.

#pragma once

#include <string>

#include "autodist/program/exchange.h"

namespace autodist::program {

// What it adds to the name of a variable's synchronizer: "rows fetched", "as two factors"; "" where
// all elements travel.
std::string short_words(const Exchange& exchange);
// Why, in sentences; "" where there is nothing to say beyond the owners.
std::string reason(const Exchange& exchange);
// As plans in JSON name the way of rows: "fetch", "return", "gather"; "" where no rows travel.
std::string rows_name(const Exchange& exchange);

}  // namespace autodist::program
