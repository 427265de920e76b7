"""All-reduces by a library, where the extension has none of its own: torch.distributed's Gloo, and its
NCCL for GPUs."""

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


def _make_nccl(store, rank, size, device, milliseconds):
    """A backend of these ranks' GPUs; NCCL chooses its network interfaces by itself."""
    nccl = torch.distributed.ProcessGroupNCCL
    options = nccl.Options()
    options._timeout = datetime.timedelta(milliseconds=milliseconds)
    with torch.cuda.device(device):
        return nccl(store, rank, size, options)


def _name_of_gpu(device):
    return str(torch.cuda.get_device_properties(device).uuid)


def install():
    """Before the process's first job. On CPUs nobody asks for NCCL."""
    if not torch.distributed.is_available():
        return
    if torch.distributed.is_gloo_available() and hasattr(_autodist, "set_gloo_maker"):
        _autodist.set_gloo_maker(_make_gloo)
    if torch.distributed.is_nccl_available() and hasattr(_autodist, "set_nccl_maker"):
        _autodist.set_nccl_maker(_make_nccl, _name_of_gpu)
