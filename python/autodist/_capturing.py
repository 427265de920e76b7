"""What is set around a user's function while a step is captured, or compared with its capture."""

import contextlib
import functools
import math
import sys

import torch
from torch.nn import functional

from ._errors import UsageError

# A list of more numbers is no list of lengths; reading one costs an op for each.
_MANY = 4096


@contextlib.contextmanager
def _replaced(module, name, made_of):
    """A module's function, by what is made of it."""
    own = getattr(module, name)
    setattr(module, name, functools.wraps(own)(made_of(own)))
    try:
        yield
    finally:
        setattr(module, name, own)


def _transformers_trace():
    """`transformers` asks whether it is traced before it reads a mask on the host to leave it out:
    it is. The step has the mask then, and one graph serves batches with and without padding."""
    utils = sys.modules.get("transformers.utils.import_utils")
    if getattr(utils, "is_jit_tracing", None) is None or not hasattr(utils, "is_tracing"):
        return contextlib.nullcontext()
    return _replaced(utils, "is_jit_tracing", lambda own: lambda: True)


def _nothing_is_compiled():
    """What `torch.compile` has made runs as it was written: its kernels are no ops of a graph."""
    if "torch._dynamo" not in sys.modules or not hasattr(torch.compiler, "set_stance"):
        return contextlib.nullcontext()
    return torch.compiler.set_stance("force_eager")


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


def _cross_entropy(own):
    """libtorch's own selects the labels that count: a tensor whose size depends on data."""

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

    return cross_entropy


def _one_hot(own):
    """libtorch's own reads the largest class on the host, to see that it is one. A label that is none
    has a row of zeros here."""

    def one_hot(tensor, num_classes=-1):
        if num_classes <= 0 or tensor.dtype != torch.int64:
            return own(tensor, num_classes)  # not known before the values are, or refused
        return tensor.unsqueeze(-1).eq(torch.arange(num_classes, device=tensor.device)).long()

    return one_hot


def _equal(own):
    """libtorch's own tells the host whether two tensors are equal, by no Boolean of a tensor."""

    def equal(input, other):
        if input is other:
            return own(input, other)
        return input.shape == other.shape and bool(input.eq(other).all())

    return equal


def _as_booleans(numbers):
    return list(map(_as_booleans, numbers)) if isinstance(numbers, list) else bool(numbers)


def _tolist(own):
    """libtorch's own reads all numbers on the host, without an op: a replay would go by the old ones.
    Real numbers are left to the comparisons of a capture: no graph is kept for each of them."""

    def tolist(tensor):
        if tensor.numel() > _MANY or tensor.is_floating_point() or tensor.is_complex():
            return own(tensor)
        if tensor.dtype == torch.bool:  # as integers: a capture reads what is there, and is told nothing
            return _as_booleans(tolist(tensor.byte()))
        return tensor.item() if tensor.dim() == 0 else [tolist(each) for each in tensor]

    return tolist


def _ctc_of_samples(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
    """Every sample's loss. The kernel also makes a tensor that is as long as the longest target of
    the batch: with one more sample, whose target fills its row, that has the same size in every step."""
    losses, _ = torch.ops.aten._ctc_loss.Tensor(
        functional.pad(log_probs, (0, 0, 0, 1)),
        functional.pad(targets, (0, 0, 0, 1)),
        functional.pad(input_lengths, (0, 1), value=log_probs.size(0)),
        functional.pad(target_lengths, (0, 1), value=targets.size(1)),
        blank,
        zero_infinity,
    )
    return losses[:-1]


def _ctc_loss(own):
    """libtorch's own reads the lengths on the host, without an op: a replay would go by those of the
    example."""

    def ctc_loss(
        log_probs,
        targets,
        input_lengths,
        target_lengths,
        blank=0,
        reduction="mean",
        zero_infinity=False,
    ):
        if reduction not in ("none", "mean", "sum"):
            return own(
                log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity
            )
        if log_probs.dim() != 3 or targets.dim() != 2:
            raise UsageError(
                f"ctc_loss: log_probs.dim() is {log_probs.dim()} and targets.dim() {targets.dim()}: a step "
                "takes log_probs of [time, batch, classes] and targets of [batch, longest]. Pad the "
                "targets to one length; what lies behind target_lengths is not read."
            )
        if log_probs.dtype in (torch.float16, torch.bfloat16):
            log_probs = log_probs.float()  # as under autocast
        input_lengths, target_lengths = map(torch.as_tensor, (input_lengths, target_lengths))
        losses = _ctc_of_samples(
            log_probs, targets, input_lengths, target_lengths, blank, zero_infinity
        )
        if zero_infinity:
            losses = losses.masked_fill(losses == math.inf, 0)
        if reduction == "mean":
            return (losses / target_lengths.clamp(min=1).to(losses)).mean()
        return losses.sum() if reduction == "sum" else losses

    return ctc_loss


@contextlib.contextmanager
def capturing():
    with contextlib.ExitStack() as stack:
        for each in (_transformers_trace(), _nothing_is_compiled(),
                     _replaced(functional, "cross_entropy", _cross_entropy),
                     _replaced(functional, "one_hot", _one_hot),
                     _replaced(functional, "ctc_loss", _ctc_loss),
                     _replaced(torch, "equal", _equal),
                     _replaced(torch.Tensor, "equal", _equal),
                     _replaced(torch.Tensor, "tolist", _tolist)):
            stack.enter_context(each)
        yield


def as_written(model):
    """The module that `torch.compile` was given, where it has made this one."""
    return getattr(model, "_orig_mod", model)
