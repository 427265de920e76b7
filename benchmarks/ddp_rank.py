"""One rank of PyTorch's DistributedDataParallel over Gloo, beside `autodist bench sync-rank`.

    ddp_rank.py --model NAME --rows N [--bucket-mb MB] [--imitate SECONDS] [--warmup N] [--steps N]
                [--how ddp | compiled | fsdp2] [--alone | --all-reduce]

`compiled` is torch.compile of the wrapped model: of its buckets between all-reduces (compiled first and
wrapped then, nothing would overlap). `fsdp2` shards every layer or block of
the model's sequences, and the rest (fully_shard). Finds its place in torch.distributed's variables; without WORLD_SIZE, or with --alone, it trains by
itself. Prints the same JSON object. With --all-reduce a step is Gloo's all-reduce of one tensor of the
model's size, and nothing else.
"""

import argparse
import json
import os
import resource
import time

import models
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def blocks(module):
    """The elements of its sequences, each with parameters: layers or blocks of layers."""
    for child in module.children():
        if not isinstance(module, torch.nn.Sequential):
            yield from blocks(child)
        elif next(child.parameters(), None) is not None:
            yield child


def shard(model):
    """By blocks, so that one's parameters are gathered while another one computes."""
    from torch.distributed.fsdp import fully_shard

    for block in blocks(model):
        fully_shard(block)
    fully_shard(model)


def whole(parameter):
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, choices=models.MODELS)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--imitate", type=float, default=0)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--how", choices=("ddp", "compiled", "fsdp2"), default="ddp")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--alone", action="store_true")
    what.add_argument("--all-reduce", action="store_true")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    model = models.build(wanted.model, wanted.imitate)
    batch = models.samples(wanted.model, wanted.rows)
    alone = wanted.alone or "WORLD_SIZE" not in os.environ
    if alone and wanted.all_reduce:
        parser.error("--all-reduce: WORLD_SIZE is not set, and one rank has nobody to add up with")
    net = model
    if not alone:
        dist.init_process_group("gloo")
    if not alone and wanted.how == "fsdp2":
        shard(model)
    elif not alone:
        # Statistics of batch norm stay with each replica, as AutoDist's do.
        net = DistributedDataParallel(model, bucket_cap_mb=wanted.bucket_mb,
                                      gradient_as_bucket_view=True, broadcast_buffers=False)
        if wanted.how == "compiled":
            net = torch.compile(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    tensor = torch.zeros(models.parameter_count(model) if wanted.all_reduce else 0)

    def step():
        if wanted.all_reduce:
            dist.all_reduce(tensor)
            return
        net(*batch).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    seconds, cpu = [], 0.0
    for i in range(wanted.warmup + wanted.steps):
        if i == wanted.warmup:
            cpu, start = cpu_seconds(), time.monotonic()
        begin = time.monotonic()
        step()
        if i >= wanted.warmup:
            seconds.append(time.monotonic() - begin)
    wall = time.monotonic() - start
    cpu = cpu_seconds() - cpu
    checksum = sum(whole(p).detach().double().abs().sum().item() for p in model.parameters())
    print(json.dumps({"rank": 0 if alone else dist.get_rank(), "step_seconds": seconds,
                      "mean_step_seconds": wall / wanted.steps,
                      "cpu_seconds_per_step": cpu / wanted.steps,
                      "parameters": models.parameter_count(model), "checksum": checksum}),
          flush=True)
    if not alone:
        dist.barrier()


if __name__ == "__main__":
    main()
