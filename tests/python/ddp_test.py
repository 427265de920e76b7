"""DistributedDataParallel (Gloo, two processes) and two of our ranks, after ten steps.

Without arguments: the test. With a rank and a folder: one process of DistributedDataParallel.
"""

import subprocess
import sys
import tempfile

import comparing

comparing.skip_without_torch()

import torch

import cases

TOLERANCE = 1e-10


def train(rank, folder):
    """What a user of DistributedDataParallel writes: this rank's half of every batch."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    model, loss_fn, _, make_optimizer, batches = cases.make("resnet")
    parallel = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    optimizer = make_optimizer(parallel.parameters())
    losses = []
    for batch in batches:
        rows = [torch.chunk(each, 2)[rank] for each in batch]
        losses.append(comparing.plain_step(parallel, loss_fn, optimizer, *rows))
    if rank == 0:
        torch.save({"losses": losses, "state": model.state_dict()}, f"{folder}/out.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main():
    if not torch.distributed.is_available():
        print("SKIPPED: this PyTorch is not distributed")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen([sys.executable, __file__, str(rank), folder]) for rank in (0, 1)]
        assert [each.wait() for each in ranks] == [0, 0]
        theirs = torch.load(f"{folder}/out.pt")
    for builder in ("PSLoadBalancing", "DDP-like"):
        ours = comparing.result_of("training_job.py", "resnet", builder, "local:2")
        difference = comparing.largest_difference(ours["state"], theirs["state"])
        of_losses = max(abs(a - b) for a, b in zip(ours["losses"], theirs["losses"]))
        print(f"{builder}: against DistributedDataParallel parameters and statistics differ by "
              f"{difference:.2g}, losses by {of_losses:.2g}")
        assert difference < TOLERANCE and of_losses < TOLERANCE


if len(sys.argv) == 3:
    train(int(sys.argv[1]), sys.argv[2])
else:
    main()
