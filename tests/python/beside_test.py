"""A checkpoint that is written beside the training has the state of its step: what the program writes into its
parameters right after it, and what the next steps make of parameters, moments and statistics, is not in it."""

import pathlib
import sys
import tempfile

import comparing

comparing.skip_without_torch()


def test():
    with tempfile.TemporaryDirectory() as name:
        for builder in ("PS", "PartitionedPS", "AllReduce", "PS:staleness=2", "AllReduce:algorithm=library"):
            if comparing.is_left_out(builder):
                continue
            folders = {how: pathlib.Path(name) / builder.replace(":", "-") / how for how in ("beside", "waiting")}
            for how, folder in folders.items():
                comparing.run(__file__, builder, how, str(folder), OMP_NUM_THREADS="1")
            # The manifest has the Program's digest, in which are measured times.
            files = {how: {each.name: each.read_bytes() for each in (folder / "step-3").glob("*.safetensors")}
                     for how, folder in folders.items()}
            assert "optimizer.safetensors" in files["beside"], sorted(files["beside"])
            assert files["beside"].keys() == files["waiting"].keys(), files
            different = [each for each in files["beside"] if files["beside"][each] != files["waiting"][each]]
            assert not different, (builder, different)
            print(f"{builder}: to the last bit")


if len(sys.argv) == 1:  # the test; else a rank of the job
    test()
    sys.exit(0)

import autodist
import torch
from torch import nn

from cases import mse

builder, how, folder = sys.argv[1:]
torch.manual_seed(0)
# Copying it takes longer than a step needs to come to its first update.
model = nn.Sequential(nn.Linear(1024, 2048), nn.BatchNorm1d(2048), nn.Tanh(), nn.Linear(2048, 8))
x, y = torch.randn(8, 1024), torch.randn(8, 8)
with autodist.AutoDist("local:2", builder=builder).distribute(
        model, mse, torch.optim.Adam(model.parameters(), lr=0.01), (x, y)) as step:
    for _ in range(3):
        step(x, y)
    step.save(folder, wait=how == "waiting")
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(0.5)
    for _ in range(3):
        step(x, y)
