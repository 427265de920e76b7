// The builders' algorithms: AutoDist's as published (docs/formats/strategy.md lists them), and what
// users of other systems run. Variables in graph order; replicas: every GPU, then the CPUs of nodes
// without GPUs.
//
// All throw Error(kUsage) for an option whose value cannot be used.

#pragma once

#include "autodist/search/builders/builders.h"

namespace autodist::search {

using Build = strategy::Strategy(const ir::Graph&, const cluster::Cluster&, const BuilderOptions&);

Build build_ps;
Build build_ps_load_balancing;
Build build_partitioned_ps;
Build build_uneven_partitioned_ps;
Build build_all_reduce;
Build build_partitioned_all_reduce;
Build build_random_axis_partition_all_reduce;
Build build_parallax;

Build build_byteps;
Build build_ddp_like;
Build build_horovod_like;
Build build_p3;

// Shards of an axis of `rows`: their least divisor of at least 2, so that a prime n gives n; 1 for
// a single row. With a cap above 0, the least divisor up to it, or the cap where there is none.
std::int64_t least_divisor(std::int64_t rows, std::int64_t cap = 0);
// The least number of at least 2 that does not divide it (of 2: 2), or the cap if that is lower.
std::int64_t least_non_divisor(std::int64_t rows, std::int64_t cap = 0);

// The part of all bytes that one server owns, so that every link carries the same load.
struct ServerShares {
  double server_only = 0;
  double co_located = 0;  // with a worker
};
// For `ranks` workers with a server each and `server_only` nodes without workers. Jiang et al., "A
// unified architecture for accelerating distributed DNN training", OSDI 2020, section 4.1.
ServerShares byteps_shares(std::int64_t ranks, std::int64_t server_only);

}  // namespace autodist::search
