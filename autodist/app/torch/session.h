// AutoDist as a C++ library: what a program includes.

#pragma once

#include "autodist/job/torch/session.h"
