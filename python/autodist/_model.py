"""A torch.nn.Module and a loss function as the named tensors and the function that are captured."""

import collections.abc
import contextlib
import inspect
import linecache
import math
import os
import sys
import time

import torch

from . import _host_state
from ._arguments import text
from ._capturing import as_written, capturing
from ._errors import UsageError
from ._structure import Structure, moved

_NOT_THE_USERS = ("<frozen ", os.path.dirname(torch.__file__) + os.sep,
                  os.path.dirname(__file__) + os.sep)
# What the job gets of a step without inputs, as one that draws its points itself: for the engine a
# batch without tensors is a rank without rows.
_NO_INPUTS = (torch.zeros(()),)


def _line(path, number):
    near = os.path.relpath(path)
    place = f"{path if near.startswith('..') else near}:{number}"
    words = linecache.getline(path, number).strip()
    return f"{place}: {words}" if words else place


def _walk(module, prefix, table):
    """(name, tensor) of a module and those below it; what is tied comes under every name."""
    for name, tensor in getattr(module, table).items():
        if tensor is not None:
            yield prefix + name, tensor
    for name, child in module._modules.items():
        if child is not None:
            yield from _walk(child, f"{prefix}{name}.", table)


def _arguments(batch, what):
    """What loss_fn gets behind the model: a tuple's or list's elements, anything else by itself."""
    if isinstance(batch, torch.utils.data.DataLoader):
        raise UsageError(f"{what}: a DataLoader, which gives batches. Give one: next(iter(loader)).")
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)


def _compares_results(function):
    """Whether it is a loss of torch's: of results and targets, and not of a model and a batch."""
    kind = function if isinstance(function, type) else type(function)
    return (kind.__module__ == "torch.nn.modules.loss"
            or getattr(function, "__module__", None) == "torch.nn.functional")


def _loss_of(result):
    """The loss in what loss_fn returned: it, its first element, its 'loss'; None: there is none."""
    if isinstance(result, (tuple, list)) and not hasattr(result, "_fields"):
        result = result[0] if result else None
    elif isinstance(result, collections.abc.Mapping):
        result = result.get("loss")
    elif not isinstance(result, torch.Tensor):
        result = getattr(result, "loss", None)
    return result if isinstance(result, torch.Tensor) else None


def _positional(function, most):
    """How many arguments a function takes by position, up to `most`."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return most
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(most, sum(each.kind in plain for each in parameters))


@contextlib.contextmanager
def modes(model, wanted):
    """The training flags of `wanted` (module: flag) for a while."""
    before = {module: module.training for module in model.modules()}
    for module, flag in wanted.items():
        module.training = flag
    try:
        yield
    finally:
        for module, flag in before.items():
            module.training = flag


def _lies_as(a, b):
    """Whether two tensors are of the same memory, and in the same order."""
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride()


def _place(tensor):
    """Where its values lie; nothing where that is no one place."""
    return tensor.data_ptr() if tensor.layout == torch.strided else None


def _parts_of(sparse):
    """Where the indices and values of a sparse tensor lie."""
    return sparse._indices().data_ptr(), sparse._values().data_ptr()


class Step:
    """A step as the extension takes it (autodist/app/python/training_step.h).

    Every call runs in the modes (train, eval) that the model's modules have now, whatever the
    user sets between steps.
    """

    def __init__(
        self,
        model,
        loss_fn,
        example_batch,
        *,
        name=None,
        batched=None,
        reduction="mean",
        trains=(),
        evaluates=False,
    ):
        if not isinstance(model, torch.nn.Module):
            raise UsageError(f"model: a torch.nn.Module expected, got {type(model).__name__}")
        if loss_fn is not None and not callable(loss_fn):
            raise UsageError(
                "loss_fn: a function (model, *batch) -> scalar loss expected, got "
                f"{type(loss_fn).__name__}"
            )
        if _compares_results(loss_fn):
            name = getattr(loss_fn, "__name__", type(loss_fn).__name__)
            raise UsageError(
                f"loss_fn: {name} takes results and targets; a function (model, *batch) expected. Write "
                "lambda model, x, y: loss(model(x), y), say."
            )
        if reduction not in ("mean", "sum"):
            raise UsageError(f"reduction='{reduction}': 'mean' or 'sum' expected")
        model = as_written(model)
        for path, module in model.named_modules():
            if isinstance(module, torch.nn.SyncBatchNorm) and module.training and not evaluates:
                raise UsageError(
                    f"model: '{path}' is a SyncBatchNorm, and replicas have statistics of their own. "
                    "Take torch.nn.BatchNorm1d, 2d or 3d, or a norm without statistics of the batch."
                )
        self.model = model
        self.loss_fn = loss_fn
        self.name = text("name", name, "a name") if name else type(model).__name__
        arguments = _arguments(example_batch, "example_batch")
        self._many = len(arguments)
        inputs = arguments[0] if self._many == 1 else arguments
        self._batch = Structure(inputs, "example_batch")
        has_none = isinstance(example_batch, tuple) and not arguments
        self.example = _NO_INPUTS if has_none else tuple(self._batch.leaves(inputs))
        if not self.example:
            raise UsageError("example_batch: it holds no tensor. Give what a replica gets in a step; "
                             "(), if that is nothing.")
        is_plain = all(isinstance(each, torch.Tensor) for each in arguments)
        self.input_names = [] if is_plain else ["batch" + each for each in self._batch.names]
        self.batched = self._flags(batched)
        self._before = None  # what the host had after the first call
        self._seen = None  # and when it was last looked at
        self._every = 32  # steps between two looks
        self._looked = (0, 0.0)  # at which step, and when
        self._each = 1.0  # seconds of a step, between the last two looks
        self._result = None  # what a step returns, once it has been called
        self._loss_at = 0  # among its tensors
        self.sum = reduction == "sum"
        self.parameters = list(_walk(model, "", "_parameters"))
        # A sparse one is a constant of the step, as a tensor that no module has.
        self.buffers = [(name, buffer) for name, buffer in _walk(model, "", "_buffers")
                        if buffer.layout is torch.strided]
        self.trains = list(trains)
        self.forward = None  # what an exported file's `forward` calls, if not the model
        self._modes = {
            module: module.training and not evaluates for module in model.modules()
        }
        self._memory = []  # of the buffers in their places, from the first call on
        # Where a module keeps each buffer: forward may put another tensor there.
        self._places = [
            (module, name, buffer)
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and buffer.layout is torch.strided
        ]
        self._sparse = [
            (module, name, buffer, _parts_of(buffer))
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and buffer.is_sparse
        ]

    def _inputs(self, batch, what):
        """The structure of a batch: that of its one argument, or the tuple of several."""
        arguments = _arguments(batch, what)
        if len(arguments) != self._many:
            each = "arguments" if self.input_names else "tensors"
            raise UsageError(
                f"{what}: {len(arguments)} {each}, the step was captured with {self._many}. Give as "
                "many."
            )
        return arguments[0] if self._many == 1 else arguments

    def _flags(self, batched):
        """Which inputs are batched, as the extension takes it: one flag per tensor, or none."""
        if batched is None:
            return []
        flat = list(batched) if isinstance(batched, (list, tuple)) else None
        if flat is not None and all(isinstance(each, (bool, int)) for each in flat):
            return [bool(each) for each in flat]
        return self._batch.like(bool).leaves(self._inputs(batched, "batched"), "batched")

    def fitting(self, batch, what):
        """The batch's tensors, if it is of the example's kind: what the step cannot take must not
        reach the job, which a failed step ends."""
        tensors = self._batch.leaves(self._inputs(batch, what), what)
        if self._many == 0:
            return _NO_INPUTS
        rows = None
        for name, got, expected, split in zip(
            self._batch.names, tensors, self.example, self._are_split()
        ):
            if got.dtype != expected.dtype or got.dim() != expected.dim():
                raise UsageError(
                    f"{what}{name} is {got.dtype} of {got.dim()} dimensions, the step was "
                    f"captured with {expected.dtype} of {expected.dim()}. Convert it."
                )
            if split and rows is not None and len(got) != rows:
                raise UsageError(
                    f"{what}{name} has {len(got)} rows, what stands before it {rows}. Give all as "
                    "many, or say which are not split (batched=)."
                )
            rows = len(got) if split else rows
        return tensors

    def _are_split(self):
        """Which inputs have the batch as their first dimension (TrainingStep's is_batched)."""
        if self.batched:
            return self.batched
        first = self.example[0]
        return [
            first.dim() > 0 and each.dim() > 0 and len(each) == len(first) for each in self.example
        ]

    def _arguments_of(self, tensors):
        if self._many == 0:
            return ()
        batch = self._batch.rebuilt(tensors)
        return (batch,) if self._many == 1 else batch

    def returned(self, *tensors):
        """The scalar loss of a batch, and behind it the other tensors that the step returns; every
        buffer is in its own place afterwards."""
        batch = self._arguments_of(tensors)
        # Whatever `.data` becomes.
        memory = self._memory = [buffer.detach() for _, _, buffer in self._places]
        storage = [_place(tensor) for _, tensor in self.parameters]
        with modes(self.model, self._modes), capturing():
            if self.loss_fn is None:
                result = self.model(*batch)
            else:
                result = self.loss_fn(self.model, *batch)
        loss = _loss_of(result)
        if loss is None:
            raise UsageError(
                f"loss_fn: a tensor with the loss expected, got {type(result).__name__}. Return the "
                "loss, (loss, …) or {'loss': …}, and do not call item() or float() on it."
            )
        if self._result is None:
            self._result = Structure(result, "what loss_fn returns")
        leaves = self._result.leaves(result)
        self._loss_at = next((index for index, leaf in enumerate(leaves) if leaf is loss), None)
        if self._loss_at is None:
            raise UsageError(
                f"loss_fn: the loss of a {type(result).__name__} is computed when it is asked for, and "
                "no field of it. Make it a field, or return (loss, …)."
            )
        self._keep_buffers("the step replaces a buffer", memory)
        if self._before is None:  # in its first call a model may set itself up
            self._before = _host_state.snapshot(self.model, self.loss_fn)
        else:
            self._check_places(storage)
        return [loss, *leaves[: self._loss_at], *leaves[self._loss_at + 1 :]]

    def _check_places(self, storage):
        """The step has left every parameter where it was."""
        for (name, tensor), before in zip(self.parameters, storage):
            if _place(tensor) != before:
                raise UsageError(
                    f"capture: the step puts other values in the place of the parameter '{name}' "
                    "(.data = …). Update it in the loop, between steps."
                )

    def take_buffers(self):
        """Before a step: the values of buffers that were assigned anew between the steps."""
        for module, name, buffer, parts in self._sparse:
            now = module._buffers.get(name)
            if now is not buffer or _parts_of(now) != parts:
                raise UsageError(
                    f"step: the sparse buffer '{name}' is another one than when the step was captured. "
                    "Write its values in their place (_values().copy_()), or make it an input of the step."
                )
        for (module, name, buffer), memory in zip(self._places, self._memory):
            if module._buffers.get(name) is not buffer or buffer.data_ptr() != memory.data_ptr():
                return self._keep_buffers("a buffer was assigned anew", self._memory)
        return None

    def changed(self, step):
        """Before a step, now and then: whether the step may be another one, as the host has something
        else than when this was last asked, or something else in the place of what was captured. Takes
        a hundredth of the time."""
        if step % self._every or self._before is None:
            return False
        begun = time.perf_counter()
        last, self._looked = self._looked, (step, begun)
        self._each = (begun - last[1]) / max(step - last[0], 1)
        now = _host_state.snapshot(self.model, self.loss_fn)
        before, self._seen = self._seen or self._before, now
        self.pause(time.perf_counter() - begun)
        return bool(_host_state.differing(before, now)) or _host_state.has_others(self._before, now)

    def pause(self, took):
        """After a look, or a comparison, of so many seconds. Where one rank looks, the others wait: so
        ranks with almost the same times look at the same steps, multiples of powers of two. One that
        took long by chance puts the next one off by little."""
        wanted = 2 ** round(math.log2(max(100 * took / self._each, 1)))
        self._every = min(wanted, 4 * self._every)

    def host_changes(self):
        """A sentence about what the host has changed since the first call; '' if nothing."""
        now = _host_state.snapshot(self.model, self.loss_fn)
        return _host_state.changes(self._before or now, now)

    def where(self):
        """The user's line that runs within `returned` or `evaluate`, as 'model.py:12: text'; ''
        where there is none."""
        frame, found = sys._getframe(1), ""
        while frame is not None:
            path = frame.f_code.co_filename
            if frame.f_code in (Step.returned.__code__, Step.evaluate.__code__):
                return found
            if not found and not path.startswith(_NOT_THE_USERS):
                found = _line(path, frame.f_lineno)
            frame = frame.f_back
        return ""

    @property
    def returns_more(self):
        """Whether the step returns more than its loss. REQUIRES: it was captured."""
        return len(self._result.names) > 1

    def result(self, loss, others):
        """What loss_fn returned, with this loss and these other values."""
        leaves = list(others)
        leaves.insert(self._loss_at, loss)
        return self._result.rebuilt(leaves)

    def outputs(self, *tensors):
        """What an exported file's `forward` returns, as a list; in evaluation mode.

        Without a function of the user's it is the model's, of as many tensors as that takes.
        """
        batch = self._arguments_of(tensors)
        if self.forward is None:
            batch = batch[: _positional(self.model.forward, len(batch))]
        result = self.evaluate(self.forward, batch, {})
        result = [result] if isinstance(result, torch.Tensor) else result
        if not isinstance(result, (list, tuple)) or not all(
            isinstance(each, torch.Tensor) for each in result
        ):
            raise UsageError("export: forward must return a tensor, or a tuple of tensors")
        return list(result)

    def _keep_buffers(self, what, memory=None):
        """`self.count = self.count + 1` makes a new tensor; the job knows the old one. So does
        `self.count.data = …` of its memory, which is given where that may have happened."""
        for i, (module, name, buffer) in enumerate(self._places):
            now = module._buffers.get(name)
            own = buffer if memory is None else memory[i]
            if now is buffer and _lies_as(buffer, own):
                continue
            if now is None or now.shape != own.shape or now.dtype != own.dtype:
                raise UsageError(
                    f"{what}: '{name}' has another shape or type now. Write new values into it "
                    "(copy_()); what a model sets up in its first step, let it set up before (call it)."
                )
            with torch.no_grad():
                own.copy_(now)
            if not _lies_as(buffer, own):
                buffer.data = own
            module._buffers[name] = buffer

    def evaluate(self, function, arguments, keywords):
        """`function`, or the model, in evaluation mode and without gradients, where the model is."""
        device = next((each.device for each in self.model.parameters()), torch.device("cpu"))
        arguments, keywords = moved((arguments, keywords), device)
        call = self.model if function is None else function
        first = () if function is None else (self.model,)
        evaluation = {module: False for module in self.model.modules()}
        with modes(self.model, evaluation), torch.no_grad():
            return call(*first, *arguments, **keywords)
