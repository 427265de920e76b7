"""All-reduces by a library, where the extension has none of its own: torch.distributed's Gloo."""

import datetime

import torch.distributed

from . import _autodist


def _make_gloo(store, rank, size, address, milliseconds):
    """A backend of these ranks alone, which listens on the given address; nothing of the process's
    own torch.distributed is touched."""
    gloo = torch.distributed.ProcessGroupGloo
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname=address)]
    options._timeout = datetime.timedelta(milliseconds=milliseconds)
    options._threads = 1  # collectives follow one another
    return gloo(store, rank, size, options)


def install():
    """Before the process's first job."""
    has_one = torch.distributed.is_available() and torch.distributed.is_gloo_available()
    if has_one and hasattr(_autodist, "set_gloo_maker"):
        _autodist.set_gloo_maker(_make_gloo)
