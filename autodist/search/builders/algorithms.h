// AutoDist's strategy builders, each as its published algorithm (docs/formats/strategy.md lists
// them). Variables in graph order; replicas: every GPU, then the CPUs of nodes without GPUs.
//
// All throw Error(kUsage) for an option whose value cannot be used.

#pragma once

#include "autodist/search/builders/builders.h"

namespace autodist::search {

strategy::Strategy build_ps(const ir::Graph&, const cluster::Cluster&, const BuilderOptions&);
strategy::Strategy build_ps_load_balancing(const ir::Graph&, const cluster::Cluster&,
                                           const BuilderOptions&);
strategy::Strategy build_partitioned_ps(const ir::Graph&, const cluster::Cluster&,
                                        const BuilderOptions&);
strategy::Strategy build_uneven_partitioned_ps(const ir::Graph&, const cluster::Cluster&,
                                               const BuilderOptions&);
strategy::Strategy build_all_reduce(const ir::Graph&, const cluster::Cluster&,
                                    const BuilderOptions&);
strategy::Strategy build_partitioned_all_reduce(const ir::Graph&, const cluster::Cluster&,
                                                const BuilderOptions&);

// Shards along the first dimension: its least divisor of at least 2, so that a prime n gives n;
// 1 for a scalar or a single row.
std::int64_t least_divisor(std::int64_t rows);
// The least number of at least 2 that does not divide it (of 2: 2); else as above.
std::int64_t least_non_divisor(std::int64_t rows);

}  // namespace autodist::search
