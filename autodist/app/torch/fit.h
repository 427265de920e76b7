// Training and evaluating over a data set: what a program includes.

#pragma once

#include "autodist/app/torch/session.h"
#include "autodist/job/torch/fit.h"
