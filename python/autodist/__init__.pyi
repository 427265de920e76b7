# What the package offers, for type checkers. tests/python/stubs_test.py compares it with the module.

import builtins
import os
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from numbers import Real
from types import TracebackType
from typing import Any, Final, Literal, NoReturn, Protocol, SupportsIndex, TypeVar, overload

import torch

from . import checkpoint as checkpoint, strategy as strategy
from .strategy.base import StrategyBuilder

__all__: list[str]
__version__: str

_Path = str | os.PathLike[str]
_Loss = Callable[..., Any] | None  # the loss, or a structure that holds it
_AnyBuilder = str | StrategyBuilder | type[StrategyBuilder] | _Builder
_Optimizers = torch.optim.Optimizer | Sequence[torch.optim.Optimizer]
_Optimizer = str | _Optimizers | Callable[[list[torch.Tensor]], _Optimizers]
_Result = TypeVar("_Result")

class _Builder(Protocol):
    def __call__(self, graph: Graph, cluster: Cluster, /) -> Strategy: ...

class Error(Exception):
    code: int

class UsageError(Error, ValueError): ...
class MachineError(Error): ...
class InfeasibleError(Error): ...
class PeersLostError(Error): ...
class CheckpointError(Error): ...
class AuthenticationError(Error): ...
class TimeoutError(Error, builtins.TimeoutError): ...

class JobEnded(SystemExit):
    code: int
    def __init__(self, message: str = "") -> None: ...

class ClusterNode:
    address: Final[str]
    chief: Final[bool]
    cpus: Final[int]
    gpus: Final[int]
    serves_only: Final[bool]
    bandwidth_bytes_per_s: Final[float]
    latency_seconds: Final[float]
    price_per_hour: Final[float]

class DeviceSpec:
    host_address: Final[str]
    device_type: Final[str]
    device_index: Final[int]
    def name_string(self) -> str: ...

class SSHConfig:
    username: Final[str]
    port: Final[int]  # 22 where the file says none
    python_venv: Final[str]  # a shell's command, before the program
    key_file: Final[str]  # path of a private key
    env: Final[dict[str, str]]  # the file's shared_envs

class Cluster:
    @overload
    def __init__(self, specification: _Path) -> None: ...
    @overload
    def __init__(self, *, resource_file: _Path) -> None: ...
    @staticmethod
    def from_yaml(text: str) -> Cluster: ...
    source: Final[str]
    nodes: Final[list[ClusterNode]]
    ranks: Final[list[str]]
    servers: Final[list[str]]
    chief: Final[str]
    size: Final[int]
    digest: Final[str]
    cpu_devices: Final[list[tuple[str, DeviceSpec]]]
    gpu_devices: Final[list[tuple[str, DeviceSpec]]]
    num_cpus: Final[int]
    num_gpus: Final[int]
    network_bandwidth: Final[dict[str, float]]
    ssh_config_map: Final[dict[str, SSHConfig | None]]
    def to_yaml(self) -> str: ...

ResourceSpec = Cluster

class Variable:
    name: Final[str]
    aliases: Final[list[str]]
    shape: Final[list[int]]
    dtype: Final[str]
    elements: Final[int]
    bytes: Final[int]
    sparse: Final[bool]
    used: Final[bool]
    update: Final[str]

class Graph:
    @staticmethod
    def load(path: _Path) -> Graph: ...
    name: Final[str]
    libtorch_version: Final[str]
    example_batch: Final[int]
    batch_fixed_reason: Final[str]
    variables: Final[list[Variable]]
    ops: Final[list[str]]
    inputs: Final[list[tuple[str, bool]]]
    digest: Final[str]
    def variable(self, name: str) -> Variable: ...
    def summary(self) -> str: ...
    def to_text(self) -> str: ...
    def save(self, path: _Path) -> None: ...

class ItemVariable:
    name: Final[str]
    dtype: Final[str | None]
    shape: Final[list[int] | None]
    trainable: Final[bool]

class GraphItem:
    @staticmethod
    def deserialize(source: bytes | _Path) -> GraphItem: ...
    def serialize(self, path: _Path | None = None) -> bytes: ...
    variables: Final[list[ItemVariable]]
    gradients: Final[dict[str, list[str]]]
    ops: Final[list[tuple[str, str]]]
    def graph(self) -> Graph: ...
    def to_text(self) -> str: ...

class PSSynchronizer:
    def __init__(
        self,
        reduction_destination: str,
        *,
        local_replication: bool = False,
        sync: bool = True,
        staleness: int = 0,
        codec: str = "",
        error_feedback: bool = False,
        density: float = 0.0,
    ) -> None: ...
    reduction_destination: Final[str]
    local_replication: Final[bool]
    sync: Final[bool]
    staleness: Final[int]
    compression: Final[str]

class AllReduceSynchronizer:
    def __init__(
        self,
        *,
        group: int = 0,
        codec: str = "",
        error_feedback: bool = False,
        density: float = 0.0,
        rank: int = 0,
        algorithm: str = "by_spec",
    ) -> None: ...
    group: Final[int]
    algorithm: Final[str]
    compression: Final[str]

_Synchronizer = PSSynchronizer | AllReduceSynchronizer | None

class StrategyNode:
    name: str
    synchronizer: _Synchronizer
    partitioner: str
    def __init__(
        self, name: str, synchronizer: _Synchronizer = None, partitioner: str = ""
    ) -> None: ...
    @property
    def parts(self) -> StrategyNodes: ...
    @parts.setter
    def parts(self, value: StrategyNodes | list[StrategyNode]) -> None: ...
    variable: Final[str]

class StrategyNodes:
    @overload
    def __init__(self) -> None: ...
    @overload
    def __init__(self, nodes: StrategyNodes | Sequence[StrategyNode], /) -> None: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __iter__(self) -> Iterator[StrategyNode]: ...
    @overload
    def __getitem__(self, index: SupportsIndex, /) -> StrategyNode: ...
    @overload
    def __getitem__(self, index: slice, /) -> StrategyNodes: ...
    def __setitem__(self, index: SupportsIndex, node: StrategyNode, /) -> None: ...
    def __delitem__(self, index: SupportsIndex | slice, /) -> None: ...
    def __contains__(self, node: StrategyNode, /) -> bool: ...
    def append(self, x: StrategyNode) -> None: ...
    def extend(self, L: StrategyNodes | Sequence[StrategyNode]) -> None: ...
    def insert(self, i: int, x: StrategyNode) -> None: ...
    def pop(self, i: int = ...) -> StrategyNode: ...
    def remove(self, x: StrategyNode) -> None: ...
    def count(self, x: StrategyNode) -> int: ...
    def clear(self) -> None: ...

class Strategy:
    id: str
    replicas: list[str]
    batch_shares: list[int]
    def __init__(self) -> None: ...
    @property
    def nodes(self) -> StrategyNodes: ...
    @nodes.setter
    def nodes(self, value: StrategyNodes | list[StrategyNode]) -> None: ...
    def node(self, name: str) -> StrategyNode: ...
    def serialize(self, path: _Path | None = None) -> bytes: ...
    @overload
    @staticmethod
    def deserialize(source: bytes | _Path) -> Strategy: ...
    @overload
    @staticmethod
    def deserialize(*, path: _Path) -> Strategy: ...
    def to_text(self) -> str: ...
    @staticmethod
    def from_text(text: str) -> Strategy: ...
    def check(self, graph: Graph, cluster: Cluster) -> None: ...
    def copy(self) -> Strategy: ...

class StepReport:
    step: Final[int]  # from 0
    loss: Final[float]  # of this replica's rows; nan without rows
    samples: Final[int]  # of this replica
    total_seconds: Final[float]  # computing and waiting, of this rank
    waiting_seconds: Final[float]  # of these, for other ranks
    captured: Final[bool]
    overflow: Final[bool]
    plan: Final[str]  # by name; at the chief

class LossScale:
    scale: Final[float]
    good_steps: Final[int]
    skipped: Final[int]

class PlanChange:
    moved_bytes: Final[int]
    predicted_seconds: Final[float]
    forgotten: Final[list[str]]

class StepSummary:
    step: Final[int]
    loss: Final[float]
    samples: Final[int]
    stop: Final[bool]
    save: Final[bool]
    skipped: Final[bool]

class AutoDist:
    def __init__(
        self,
        cluster: _Path | Cluster = "",
        strategy_builder: _AnyBuilder | None = None,
        *,
        resource_spec_file: _Path | Cluster | None = None,
        builder: _AnyBuilder | None = None,
        builders: dict[str, Callable[..., Strategy]] | None = None,
        strategy_file: _Path | None = None,
        write_plans: _Path | None = None,
        plans: _Path | None = None,
        seed: int = 0,
        cpu_only: bool = False,
        accumulate: int = 1,
        verify_every: int | None = None,
        on_nonfinite: Literal["stop", "ignore"] | None = None,
        loss_scaling: str | float | None = None,
        update_rules: dict[str, tuple[int, Callable[..., object]]] | None = None,
        encrypt: Literal["auto", "on", "off"] = "auto",
        trace: bool = False,
        trace_steps: int | None = None,
        initial_weights: _Path | None = None,
        measure: bool = True,
        budget: str | None = None,
        search_seed: int | None = None,
        trials: int | Literal["any"] = 0,
        counted_trials: bool = True,
        library: bool = False,
        history: bool = True,
        snapshots: bool = True,
        restarts: int = 0,
        standby: bool = False,
        min_ranks: int | None = None,
        progress: bool = True,
        log: _Path | None = None,
        tensorboard: _Path | None = None,
        report: _Path | None = None,
        join_limit: float = 60.0,
        stall_limit: float = 300.0,
        silence_limit: float = 20.0,
    ) -> None: ...
    rank: Final[int]
    size: Final[int]
    is_chief: Final[bool]
    launcher: Final[str]
    def distribute(
        self,
        model: torch.nn.Module,
        loss_fn: _Loss,
        optimizer: _Optimizer,
        example_batch: Any,
        *,
        name: str | None = None,
        batched: Any = None,
        reduction: Literal["mean", "sum"] = "mean",
        clip: float | None = None,
    ) -> Session: ...
    def distribute_steps(self, **steps: TrainingStep) -> Steps: ...

class TrainingStep:
    def __init__(
        self,
        model: torch.nn.Module,
        loss_fn: _Loss,
        optimizer: _Optimizer | None,
        example_batch: Any,
        *,
        trains: str | Sequence[str] | None = None,
        batched: Any = None,
        reduction: Literal["mean", "sum"] = "mean",
        builder: str | StrategyBuilder | type[StrategyBuilder] | None = None,
        clip: float | None = None,
    ) -> None: ...

class _Stateful(Protocol):
    def state_dict(self) -> Any: ...
    def load_state_dict(self, state: Any, /) -> Any: ...

class Epoch:
    number: Final[int]
    @property
    def batch(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...

class Steps(Mapping[str, Session]):
    def __getitem__(self, name: str) -> Session: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def __contains__(self, name: object) -> bool: ...
    def keys(self) -> KeysView[str]: ...
    def items(self) -> ItemsView[str, Session]: ...
    def values(self) -> ValuesView[Session]: ...
    def get(self, key: str, default: Any = None) -> Any: ...
    def synchronize(self) -> None: ...
    def save(self, directory: _Path, wait: bool = True) -> None: ...
    def load(self, directory: _Path) -> int: ...
    def resume(self, directory: _Path | None = None) -> int: ...
    def snapshot(self) -> None: ...
    def keep(self, name: str, what: _Stateful) -> None: ...
    def epochs(
        self, loader: Iterable[Any], epochs: int | None = None, name: str = "epochs"
    ) -> Iterable[Epoch]: ...
    step: Final[int]
    rank: Final[int]
    size: Final[int]
    is_chief: Final[bool]
    def finish(self) -> None: ...
    def close(self, reason: str = "") -> None: ...
    def __enter__(self) -> Steps: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class Loss(Real):
    def item(self) -> float: ...
    def tensor(self) -> torch.Tensor: ...
    def detach(self) -> Loss: ...
    def backward(self, *arguments: Any, **keywords: Any) -> NoReturn: ...
    def conjugate(self) -> Loss: ...
    @property
    def imag(self) -> float: ...
    @property
    def real(self) -> float: ...

class Session:
    def __call__(self, *batch: Any) -> Any: ...
    def run(self, *batch: Any) -> Any: ...
    def run_local(self, *rows: Any) -> Any: ...
    def run_and_fetch(self, names: Iterable[str], *batch: Any) -> dict[str, torch.Tensor]: ...
    def sum_over_ranks(self, values: Iterable[float]) -> list[float]: ...
    @overload
    def evaluate(
        self,
        function: Callable[..., _Result],
        /,
        *arguments: Any,
        statistics: Literal["chief", "mean"] = "chief",
        **keywords: Any,
    ) -> _Result: ...
    @overload
    def evaluate(
        self,
        /,
        *arguments: torch.Tensor,
        statistics: Literal["chief", "mean"] = "chief",
        **keywords: Any,
    ) -> Any: ...
    def change_plan(self, plan: str | Strategy) -> PlanChange: ...
    def synchronize(self) -> None: ...
    def save(self, directory: _Path, wait: bool = True) -> None: ...
    def load(self, directory: _Path) -> int: ...
    def resume(self, directory: _Path | None = None) -> int: ...
    def snapshot(self) -> None: ...
    def keep(self, name: str, what: _Stateful) -> None: ...
    def epochs(
        self, loader: Iterable[Any], epochs: int | None = None, name: str = "epochs"
    ) -> Iterable[Epoch]: ...
    def summarise(self, stop: bool = False, save: bool = False) -> StepSummary: ...
    def last_summary(self) -> StepSummary: ...
    def loss_scale(self) -> LossScale: ...
    def export_torchscript(
        self,
        path: _Path,
        forward: Callable[..., torch.Tensor | Sequence[torch.Tensor]] | None = None,
    ) -> None: ...
    def write_trace(self, path: _Path) -> None: ...
    last: Final[StepReport]
    local_loss: Final[float]
    lr: Final[float]
    step: Final[int]
    rank: Final[int]
    size: Final[int]
    replica: Final[int]
    replicas: Final[int]
    def rows_of(self, batch: int) -> range: ...
    is_chief: Final[bool]
    model: Final[torch.nn.Module]
    graph: Final[Graph]
    strategy: Final[Strategy]
    def finish(self) -> None: ...
    def close(self, reason: str = "") -> None: ...
    def __enter__(self) -> Session: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

def capture(
    model: torch.nn.Module,
    loss_fn: _Loss,
    example_batch: Any,
    *,
    name: str | None = None,
    batched: Any = None,
    reduction: Literal["mean", "sum"] = "mean",
    symbolic_batch: bool = True,
    measure: bool = True,
    seed: int = 0,
) -> Graph: ...
def build_strategy(
    builder: _AnyBuilder,
    graph: Graph,
    cluster: Cluster,
    *,
    builders: dict[str, Callable[..., Strategy]] | None = None,
) -> Strategy: ...
def builders() -> dict[str, tuple[str, dict[str, str]]]: ...
