// The end of a job, seen by a rank that would have gone on: no failure.

#pragma once

#include <exception>
#include <string>

#include "autodist/base/error.h"

namespace autodist {

// The chief has finished, and with it the job. A program that ends because of it ends with code(),
// as one to which nothing happened.
class JobEnded : public Error {
 public:
  explicit JobEnded(const std::string& message) : Error(ErrorCode{0}, message) {}
};

// With which a program ends that has caught this: the code of an Error, else 1.
inline int exit_code_of(const std::exception& error) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  return known != nullptr ? static_cast<int>(known->code()) : 1;
}

}  // namespace autodist
