// The end of a job, seen by a rank that would have gone on: no failure.

#pragma once

#include <string>

#include "autodist/base/error.h"

namespace autodist {

// The chief has finished, and with it the job. A program that ends because of it ends with code(),
// as one to which nothing happened.
class JobEnded : public Error {
 public:
  explicit JobEnded(const std::string& message) : Error(ErrorCode{0}, message) {}
};

}  // namespace autodist
