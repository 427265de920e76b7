"""What is set around a user's function while a step is captured, or compared with its capture."""

import contextlib
import functools
import sys

import torch
from torch.nn import functional


@contextlib.contextmanager
def _transformers_trace():
    """`transformers` asks whether it is traced before it reads a mask on the host to leave it out:
    it is. The step has the mask then, and one graph serves batches with and without padding."""
    utils = sys.modules.get("transformers.utils.import_utils")
    asked = getattr(utils, "is_jit_tracing", None)
    if asked is None or not hasattr(utils, "is_tracing"):
        yield
        return
    utils.is_jit_tracing = lambda: True
    try:
        yield
    finally:
        utils.is_jit_tracing = asked


@contextlib.contextmanager
def _nothing_is_compiled():
    """What `torch.compile` has made runs as it was written: its kernels are no ops of a graph."""
    if "torch._dynamo" not in sys.modules or not hasattr(torch.compiler, "set_stance"):
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def _smoothed(input, target, weight, ignore_index, label_smoothing):
    """The mean of `cross_entropy` with label smoothing, in tensors whose sizes are the batch's."""
    classes = 0 if input.dim() == 1 else 1
    log_p = torch.log_softmax(input, classes)
    ignored = target == ignore_index
    of_label = functional.nll_loss(log_p, target, weight, ignore_index=ignore_index)
    if weight is None:
        counts = ignored.logical_not()
        of_all = -log_p.sum(classes)
    else:
        counts = weight[target.masked_fill(ignored, 0)].masked_fill(ignored, 0)
        shape = [-1 if axis == classes else 1 for axis in range(input.dim())]
        of_all = -(log_p * weight.view(shape)).sum(classes)
    of_all = of_all.masked_fill(ignored, 0).sum() / counts.sum()
    share = label_smoothing / input.size(classes)
    return (1 - label_smoothing) * of_label + share * of_all


@contextlib.contextmanager
def _labels_are_smoothed_at_one_size():
    """libtorch's own selects the labels that count: a tensor whose size depends on data."""
    own = functional.cross_entropy

    @functools.wraps(own)
    def cross_entropy(
        input,
        target,
        weight=None,
        size_average=None,
        ignore_index=-100,
        reduce=None,
        reduction="mean",
        label_smoothing=0.0,
    ):
        mean = reduction == "mean" and size_average is None and reduce is None
        if mean and label_smoothing > 0 and not target.is_floating_point():
            return _smoothed(input, target, weight, ignore_index, label_smoothing)
        return own(
            input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing
        )

    functional.cross_entropy = cross_entropy
    try:
        yield
    finally:
        functional.cross_entropy = own


@contextlib.contextmanager
def _classes_are_compared():
    """libtorch's own `one_hot` reads the largest class on the host, to see that it is one. A label that
    is none has a row of zeros here."""
    own = functional.one_hot

    @functools.wraps(own)
    def one_hot(tensor, num_classes=-1):
        if num_classes <= 0 or tensor.dtype != torch.int64:
            return own(tensor, num_classes)  # not known before the values are, or refused
        return tensor.unsqueeze(-1).eq(torch.arange(num_classes, device=tensor.device)).long()

    functional.one_hot = one_hot
    try:
        yield
    finally:
        functional.one_hot = own


@contextlib.contextmanager
def capturing():
    with contextlib.ExitStack() as stack:
        for each in (_transformers_trace, _nothing_is_compiled, _labels_are_smoothed_at_one_size,
                     _classes_are_compared):
            stack.enter_context(each())
        yield


def as_written(model):
    """The module that `torch.compile` was given, where it has made this one."""
    return getattr(model, "_orig_mod", model)
