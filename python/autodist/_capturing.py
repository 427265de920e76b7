"""What is set around a user's function while a step is captured, or compared with its capture."""

import contextlib
import sys

import torch


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


@contextlib.contextmanager
def capturing():
    with _transformers_trace(), _nothing_is_compiled():
        yield


def as_written(model):
    """The module that `torch.compile` was given, where it has made this one."""
    return getattr(model, "_orig_mod", model)
