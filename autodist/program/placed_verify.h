// The part of verify() that is about the streams of a placed graph.

#pragma once

#include "autodist/program/program.h"

namespace autodist::program {

// Runs the streams of one replica's stages against each other, as their ranks would, and throws
// InternalError where an op reads what its stage does not have, is missing or stands twice, where a
// variable is read or contributes at a stage that does not hold it, or where no stage can go on.
// REQUIRES: the tables are verified, and that every rank has one role; program.is_placed().
void verify_placed_roles(const Program& program);

}  // namespace autodist::program
