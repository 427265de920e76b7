// What tests leave out, loudly, where a build has no all-reduces by a library (pip's libtorch comes
// without the headers of its Gloo).

#pragma once

#include <iostream>
#include <string>

namespace autodist::testing_jobs {

// Whether jobs of this builder need what this build does not have.
inline bool is_left_out(const std::string& builder) {
  const bool by_library = builder.find("algorithm=library") != std::string::npos ||
                          builder.find("compressor=powersgd") != std::string::npos;
  if (!by_library || AUTODIST_GLOO != 0) return false;
  std::cout << "LEFT OUT: " << builder << ": this build has no Gloo\n";
  return true;
}

}  // namespace autodist::testing_jobs
