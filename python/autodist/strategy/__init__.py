"""AutoDist's strategy builders under their names and with their parameters.

``AutoDist(builder="PS:staleness=3")`` says the same as ``AutoDist(builder=PS(staleness=3))``; the
text has further options (``autodist.builders()``).
"""

from .base import NamedBuilder, Strategy, StrategyBuilder


class PS(NamedBuilder):
    """Every variable on the first CPU device.

    Parameters
    ----------
    local_proxy_variable : bool
        What comes back from a server crosses to each machine once, and is passed on there.
    sync : bool
        False: contributions are applied as they come, and no rank waits for another.
    staleness : int
        Steps by which a rank may compute on older values, 0 to 32; with ``sync`` alone.
    """

    name = "PS"

    def __init__(
        self, local_proxy_variable: bool = False, sync: bool = True, staleness: int = 0
    ) -> None:
        super().__init__(
            local_proxy_variable=local_proxy_variable, sync=sync, staleness=staleness
        )


class PSLoadBalancing(PS):
    """Each variable whole, on the server with the fewest bytes so far; parameters as of :class:`PS`."""

    name = "PSLoadBalancing"


class PartitionedPS(PS):
    """Each variable in shards along its first dimension, over the servers in order of load.

    As many as the least divisor above 1 of that dimension; parameters as of :class:`PS`.
    """

    name = "PartitionedPS"


class UnevenPartitionedPS(PS):
    """Like PartitionedPS, in the least number of shards that does not divide."""

    name = "UnevenPartitionedPS"


class AllReduce(NamedBuilder):
    """All-reduce, in groups of variables that travel together.

    Parameters
    ----------
    chunk_size : int
        Variables of a group, 1 or more.
    all_reduce_spec : {'AUTO', 'NCCL', 'RING'}
        'RING': contributions go around a ring of the ranks; else each goes to the slice's owner.
    compressor : str
        How gradients travel: 'NoneCompressor', 'fp16', 'bf16', 'fp16+ef' and 'bf16+ef' (with error
        feedback), 'topk' or 'powersgd'. Of AutoDist's names 'HorovodCompressor' means 'fp16',
        'HorovodCompressorEF' 'fp16+ef', 'PowerSGDCompressor' 'powersgd' of rank 1.
    """

    name = "AllReduce"

    def __init__(
        self,
        chunk_size: int = 128,
        all_reduce_spec: str = "NCCL",
        compressor: str = "NoneCompressor",
    ) -> None:
        super().__init__(
            chunk_size=chunk_size, all_reduce_spec=all_reduce_spec, compressor=compressor
        )


class PartitionedAR(NamedBuilder):
    """Shards as PartitionedPS, each all-reduced.

    Parameters
    ----------
    chunk_size : int
        Shards of a group, 1 or more; what is in one piece counts as one.
    """

    name = "PartitionedAR"

    def __init__(self, chunk_size: int = 128) -> None:
        super().__init__(chunk_size=chunk_size)


class RandomAxisPartitionAR(NamedBuilder):
    """Like PartitionedAR, along an axis drawn at random; the first where the gradient is sparse."""

    name = "RandomAxisPartitionAR"

    def __init__(self, chunk_size: int = 128) -> None:
        super().__init__(chunk_size=chunk_size)


class Parallax(NamedBuilder):
    """Dense variables as AllReduce, sparse ones as PSLoadBalancing.

    Parameters
    ----------
    chunk_size : int
        Variables of a group, as of :class:`AllReduce`; sparse ones count, too.
    local_proxy_variable : bool
        Without effect: for scripts that name it.
    sync, staleness
        Of the sparse ones, as of :class:`PS`.
    """

    name = "Parallax"

    def __init__(
        self,
        chunk_size: int = 128,
        local_proxy_variable: bool = False,
        sync: bool = True,
        staleness: int = 0,
    ) -> None:
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
