"""AutoDist's strategy builders under their names and with their parameters.

``AutoDist(builder="PS:staleness=3")`` says the same as ``AutoDist(builder=PS(staleness=3))``; the
text has further options (``autodist.builders()``).
"""

from .base import NamedBuilder, Strategy, StrategyBuilder


class PS(NamedBuilder):
    """Every variable on the first CPU device."""

    name = "PS"

    def __init__(self, local_proxy_variable=False, sync=True, staleness=0):
        super().__init__(
            local_proxy_variable=local_proxy_variable, sync=sync, staleness=staleness
        )


class PSLoadBalancing(PS):
    """Each variable whole, on the server with the fewest bytes so far."""

    name = "PSLoadBalancing"


class PartitionedPS(PS):
    """Each variable in shards along its first dimension, over the servers in order of load."""

    name = "PartitionedPS"


class UnevenPartitionedPS(PS):
    """Like PartitionedPS, in a number of shards that does not divide."""

    name = "UnevenPartitionedPS"


class AllReduce(NamedBuilder):
    """All-reduce, ``chunk_size`` variables to a group."""

    name = "AllReduce"

    def __init__(self, chunk_size=128, all_reduce_spec="NCCL", compressor="NoneCompressor"):
        super().__init__(
            chunk_size=chunk_size, all_reduce_spec=all_reduce_spec, compressor=compressor
        )


class PartitionedAR(NamedBuilder):
    """Shards as PartitionedPS, each all-reduced; groups count shards."""

    name = "PartitionedAR"

    def __init__(self, chunk_size=128):
        super().__init__(chunk_size=chunk_size)


class RandomAxisPartitionAR(NamedBuilder):
    """Like PartitionedAR, along an axis drawn at random."""

    name = "RandomAxisPartitionAR"

    def __init__(self, chunk_size=128):
        super().__init__(chunk_size=chunk_size)


class Parallax(NamedBuilder):
    """Dense variables as AllReduce, sparse ones as PSLoadBalancing."""

    name = "Parallax"

    def __init__(self, chunk_size=128, local_proxy_variable=False, sync=True, staleness=0):
        super().__init__(
            chunk_size=chunk_size,
            local_proxy_variable=local_proxy_variable,
            sync=sync,
            staleness=staleness,
        )


__all__ = [
    "AllReduce",
    "PS",
    "PSLoadBalancing",
    "Parallax",
    "PartitionedAR",
    "PartitionedPS",
    "RandomAxisPartitionAR",
    "Strategy",
    "StrategyBuilder",
    "UnevenPartitionedPS",
]
