"""Digits with a schedule, clipping, accumulation, autocast, averaged weights and early stopping.

    torchrun --nproc_per_node 2 training_loop_ddp.py data/digits/digits.csv.gz best.pt
"""

import sys

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH, MICRO_BATCHES, WARM_UP, PATIENCE = 40, 64, 2, 40, 6

rows = torch.from_numpy(numpy.loadtxt(sys.argv[1], delimiter=",", dtype="float32"))
rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]
images, labels = rows[:, :-1] / 16, rows[:, -1].long()
train = TensorDataset(images[:1437], labels[:1437])
loader = DataLoader(train, BATCH, shuffle=True, drop_last=True,
                    generator=torch.Generator().manual_seed(0))

torch.manual_seed(0)
model = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
average = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda old, new, _: old.lerp(new, 0.05))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(
    (step + 1) / WARM_UP, 1 - step / (EPOCHS * len(loader))))


def loss_fn(model, images, labels):
    with torch.autocast("cpu", torch.bfloat16):
        return nn.functional.cross_entropy(model(images), labels)


@torch.no_grad()
def accuracy(model):
    return (model(images[1437:]).argmax(1) == labels[1437:]).float().mean().item()


dist.init_process_group("gloo")
chief = dist.get_rank() == 0
parallel = nn.parallel.DistributedDataParallel(model)
best, waited = 0.0, 0
for epoch in range(EPOCHS):
    for batch in loader:
        batch = [each.chunk(dist.get_world_size())[dist.get_rank()] for each in batch]
        for part in zip(*(each.chunk(MICRO_BATCHES) for each in batch)):
            loss = loss_fn(parallel, *part)
            (loss / MICRO_BATCHES).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        average.update_parameters(model)
    reached = accuracy(average)
    if chief:
        print(f"epoch {epoch + 1:2}  loss {loss.item():.4f}  accuracy {reached:.2%}")
    if reached > best:
        best, waited = reached, 0
        if chief:
            torch.save(average.module.state_dict(), sys.argv[2])
    else:
        waited += 1
        if waited == PATIENCE:
            break
if chief:
    print(f"best accuracy {best:.2%}")
del parallel  # it holds the process group, whose threads must end before Python does
dist.destroy_process_group()
