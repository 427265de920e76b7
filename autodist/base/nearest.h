// "Did you mean": the known word that is closest to a misspelt one.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace autodist {

// The candidate with the least edit distance to `word`, or "" when none is nearer than half of the
// word's length; one that begins with it is near. The first of equals.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);
// nearest() as a sentence behind a message: " Did you mean 'resnet50'?", or "" when there is none.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);
// nearest() as the end of a message: ". Nearest: 'resnet50'.", or "." when there is none.
std::string nearest_hint(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace autodist
