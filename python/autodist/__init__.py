"""AutoDist trains a step written for one device on several processes.

    ad = autodist.AutoDist("cluster.yml", builder="PartitionedPS")
    step = ad.distribute(model, loss_fn, "adam:lr=1e-3", example_batch)
    for batch in loader:
        loss = step(*batch)

`loss_fn(model, *batch)` is plain PyTorch. docs/python.md has the whole of it.
"""

import torch as _torch  # its libraries, before ours needs them

from . import _built

if not _torch.__version__.startswith(_built.SERIES + "."):
    raise ImportError(
        f"autodist is built for torch {_built.TORCH}, and this Python has {_torch.__version__} in "
        f"{_torch.__path__[0]}; install autodist again (pip builds it for the torch that is there), "
        f"or pip install torch=={_built.SERIES}.*")

from ._autodist import (
    AllReduceSynchronizer,
    Cluster,
    ClusterNode,
    DeviceSpec,
    Graph,
    GraphItem,
    ItemVariable,
    LossScale,
    PSSynchronizer,
    PlanChange,
    SSHConfig,
    StepReport,
    StepSummary,
    Strategy,
    StrategyNode,
    StrategyNodes,
    Variable,
    __version__,
)
from . import _collectives, checkpoint, strategy
from ._errors import (
    AuthenticationError,
    CheckpointError,
    Error,
    InfeasibleError,
    JobEnded,
    MachineError,
    PeersLostError,
    TimeoutError,
    UsageError,
)
from ._job import AutoDist
from ._kept import Epoch
from ._loss import Loss
from ._planning import build_strategy, builders, capture
from ._session import Session
from ._steps import Steps, TrainingStep

_collectives.install()

# AutoDist's own name for what describes a cluster.
ResourceSpec = Cluster

__all__ = [
    "AllReduceSynchronizer",
    "AuthenticationError",
    "AutoDist",
    "CheckpointError",
    "Cluster",
    "ClusterNode",
    "DeviceSpec",
    "Epoch",
    "Error",
    "Graph",
    "GraphItem",
    "InfeasibleError",
    "ItemVariable",
    "JobEnded",
    "Loss",
    "LossScale",
    "MachineError",
    "PSSynchronizer",
    "PeersLostError",
    "PlanChange",
    "ResourceSpec",
    "SSHConfig",
    "Session",
    "StepReport",
    "StepSummary",
    "Steps",
    "Strategy",
    "StrategyNode",
    "StrategyNodes",
    "TimeoutError",
    "TrainingStep",
    "UsageError",
    "Variable",
    "__version__",
    "build_strategy",
    "builders",
    "capture",
]
