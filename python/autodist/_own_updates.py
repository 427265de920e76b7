"""Optimizers whose own ``step`` updates the parameters: those that are none of AutoDist's rules.

The job's rule is then _RULE: a variable's new version is its averaged gradient. When a step is done
every rank takes these for ``.grad``, puts the parameters back and calls ``step()``. What that writes
is what every rank has written between two steps, which the next step takes, and compares. In between
the session makes no call that may save, which would find gradients.
"""

import contextlib
import inspect
import random
import warnings

import torch

from . import _guards
from ._errors import UsageError

_RULE = "averaged_gradient"  # app/python/job.cc
TEXT = f"user:rule={_RULE},lr=1"


def check(optimizers):
    """That each one's step can be called as it will be."""
    for each in optimizers:
        if isinstance(each, torch.optim.SparseAdam):
            raise UsageError(
                "optimizer: SparseAdam trains sparse gradients alone, and an optimizer that updates by "
                "its own step gets dense ones. Give a new SparseAdam for the whole model, or another."
            )
        parameters = list(inspect.signature(type(each).step).parameters.values())[1:]
        needed = [p.name for p in parameters
                  if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        if needed:
            raise UsageError(
                f"optimizer: {type(each).__name__}.step needs '{needed[0]}', which computes the loss "
                "anew: in a step of a session gradients are computed once. Take another optimizer."
            )


class OwnUpdates:
    """Optimizers of torch.optim's interface that update what a session trains.

    Parameters
    ----------
    optimizers : list of torch.optim.Optimizer
        Each parameter is held by one of them.
    parameters : list of (str, torch.Tensor)
        What the step trains.
    scales_loss : bool
        Whether steps may be skipped.
    """

    def __init__(self, optimizers, parameters, scales_loss):
        self._optimizers = optimizers
        self._trained = [(name, tensor) for name, tensor in parameters if tensor.requires_grad]
        self._updated = None  # tensors that have a gradient in the step, once the graph is known
        self._unused = []  # the others
        self._values = []  # of the updated ones, while the variables hold gradients
        self._gradients = []  # and these
        self._scales_loss = scales_loss
        self.kept = _States(optimizers)  # what a checkpoint keeps of them

    @property
    def lr(self):
        """Of the first group, as the next step takes it; None where it has none."""
        rate = self._optimizers[0].param_groups[0].get("lr")
        return None if rate is None else float(rate)

    def note_loaded(self, step):
        """A checkpoint of that step was loaded."""
        if step > 0 and not self.kept.is_loaded:
            warnings.warn("the checkpoint has no state of the optimizer, which begins anew: another kind "
                          "of optimizer wrote it", stacklevel=4)

    def check_plan(self, handle):
        """Refuses what has no gradient of a whole step at every rank."""
        kind = type(self._optimizers[0]).__name__
        if handle.is_placed:
            raise UsageError(
                f"optimizer: {kind} updates all parameters at every rank, and the plan places stages "
                "of the graph on different ones. Take a strategy that places nothing."
            )
        self.check_strategy(handle.strategy)

    def check_strategy(self, strategy):
        """Refuses one that has asynchronous variables."""
        kind = type(self._optimizers[0]).__name__
        for node in strategy.nodes:
            for each in (node, *node.parts):
                if not getattr(each.synchronizer, "sync", True):
                    raise UsageError(
                        f"optimizer: {kind} updates by the averaged gradient of a whole step, and "
                        f"'{node.name}' is asynchronous (sync=false). Take a synchronous strategy."
                    )

    def put_newest(self, fetched):
        """In the places of what was fetched by name while the variables held gradients."""
        for name, tensor in self._trained:
            if name in fetched:
                fetched[name] = tensor.detach().clone()

    def tell(self, handle):
        """Nothing: its step reads its options itself."""

    def count(self):
        """Nothing: its step has been called."""

    @contextlib.contextmanager
    def updating(self, handle, seed):
        """Around a step of the session, in a job with that seed."""
        if self._updated is None:
            self._begin(handle)
        skipped = handle.loss_scale().skipped if self._scales_loss else 0
        self._settle(handle)  # another step of the job may have updated them
        with torch.no_grad():
            for value, tensor in zip(self._values, self._updated):
                value.copy_(tensor)
        try:
            yield
            self._settle(handle)
            is_skipped = self._scales_loss and handle.skipped_steps() > skipped
            loss = handle.job_loss()
            loss.value()  # waits until the samples are known
            is_skipped = is_skipped or loss.samples == 0  # then variables stay as they are
            with torch.no_grad():
                for gradient, tensor in zip(self._gradients, self._updated):
                    gradient.copy_(tensor)
        finally:
            self._put_back()
        if is_skipped:
            return
        for tensor in self._unused:
            tensor.grad = None
        for gradient, tensor in zip(self._gradients, self._updated):
            tensor.grad = gradient
        with _guards.own_step(), self._same_numbers(f"{seed} {handle.step}"):
            for each in self._optimizers:
                each.step()

    def _begin(self, handle):
        used = {name for each in handle.graph.variables if each.used
                for name in (each.name, *each.aliases)}
        unique = {id(tensor): tensor for name, tensor in self._trained if name in used}
        self._updated = list(unique.values())
        self._unused = [tensor for _, tensor in self._trained if id(tensor) not in unique]
        self._values = [torch.empty_like(each) for each in self._updated]
        self._gradients = [torch.empty_like(each) for each in self._updated]

    @contextlib.contextmanager
    def _same_numbers(self, seed):
        """What an optimizer draws is the same at every rank, and in every run."""
        devices = sorted({each.device.index for each in self._updated if each.is_cuda})
        with torch.random.fork_rng(devices):
            torch.manual_seed(random.Random(seed).getrandbits(63))
            yield

    def _put_back(self):
        with torch.no_grad():
            for value, tensor in zip(self._values, self._updated):
                if not torch.equal(value, tensor):
                    tensor.copy_(value)

    def _settle(self, handle):
        for tensor in self._updated:
            handle.settle(tensor)


class _States:
    def __init__(self, optimizers):
        self._optimizers = optimizers
        self.is_loaded = False

    def state_dict(self):
        return {"optimizers": [each.state_dict() for each in self._optimizers]}

    def load_state_dict(self, state):
        states = state["optimizers"]
        if len(states) != len(self._optimizers):
            raise UsageError(
                f"optimizer: the checkpoint has the states of {len(states)}, and this session has "
                f"{len(self._optimizers)}. Give as many as the run that wrote it."
            )
        self.is_loaded = True
        with _guards.own_step():
            for each, own in zip(self._optimizers, states):
                each.load_state_dict(own)
