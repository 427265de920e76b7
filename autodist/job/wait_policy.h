// How OpenMP's threads wait for each other in a rank.

#pragma once

#include "autodist/job/place.h"

namespace autodist::job {

// What a rank is started with unless its environment says otherwise: threads that wait sleep, since
// other ranks and the communication want their cores
// (docs/decisions/027-cores-and-waiting.md).
inline constexpr const char* kWaitPolicy = "OMP_WAIT_POLICY";
inline constexpr const char* kPassive = "passive";

inline bool says_how_to_wait(const Environment& environment) {
  return environment(kWaitPolicy).has_value() || environment("GOMP_SPINCOUNT").has_value();
}

}  // namespace autodist::job
