"""A model on a device, by plain PyTorch and by AutoDist; one line of JSON at the chief.

    steps.py MODEL DEVICE train RANKS BUILDER    losses and parameters beside plain PyTorch on the union of the batches
    steps.py MODEL DEVICE time                   a step of one rank: plain, compiled, AutoDist's, in turns
    steps.py MODEL DEVICE memory HOW             peak memory of five steps, by `plain` or `autodist`

MODEL is transformer or resnet50 (small where DEVICE is cpu); DEVICE is cuda or cpu.
"""

import atexit
import json
import os
import sys
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional

import autodist

STEPS = 6
RATE = 0.01


class Bottleneck(nn.Module):
    def __init__(self, inner, stride, into):
        super().__init__()
        out = 4 * inner
        self.way = nn.Sequential(
            nn.Conv2d(into, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out))
        short = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.short = short if stride != 1 or into != out else nn.Identity()

    def forward(self, x):
        return functional.relu(self.way(x) + self.short(x))


def resnet(blocks, width):
    layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    into = width
    for stage, count in enumerate(blocks):
        inner = width << stage
        for index in range(count):
            layers.append(Bottleneck(inner, 2 if stage > 0 and index == 0 else 1, into))
            into = 4 * inner
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, 1000))


class Transformer(nn.Module):
    def __init__(self, layers, width, words):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens)))


def make(name, device):
    """Model, loss function and a batch of the step's number, all on the device."""
    small = device == "cpu"
    torch.manual_seed(1)
    if name == "resnet50":
        model = resnet([1, 1] if small else [3, 4, 6, 3], 8 if small else 64)
        rows, size = (4, 32) if small else (64, 224)

        def batch(step):
            torch.manual_seed(100 + step)
            return torch.randn(rows, 3, size, size), torch.randint(1000, (rows,))
    else:
        words = 100 if small else 8000
        model = Transformer(2 if small else 6, 32 if small else 512, words)
        rows, length = (4, 16) if small else (16, 128)

        def batch(step):
            torch.manual_seed(100 + step)
            tokens = torch.randint(words, (rows, length + 1))
            return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def loss_fn(model, x, y):
        return functional.cross_entropy(model(x).flatten(0, -2), y.flatten())

    return model.to(device), loss_fn, lambda step: [each.to(device) for each in batch(step)]


def job_of(device, ranks, **options):
    """Several ranks share the one GPU that CUDA_VISIBLE_DEVICES leaves."""
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    with tempfile.NamedTemporaryFile("w", suffix=".yml", delete=False) as file:
        file.write(f"nodes:\n  - address: localhost\n    gpus: {list(range(ranks))}\n")
    atexit.register(os.unlink, file.name)
    return autodist.AutoDist(file.name, cpu_only=device == "cpu", seed=1, history=False, **options)


def plain_losses(name, device):
    model, loss_fn, batch = make(name, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_fn(model, *batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train(name, device, ranks, builder):
    ad = job_of(device, int(ranks), builder=builder)
    model, loss_fn, batch = make(name, device)
    rows = len(batch(0)[0]) // int(ranks)
    losses = []
    with ad.distribute(model, loss_fn, f"sgd:lr={RATE}", [each[:rows] for each in batch(0)]) as step:
        for number in range(STEPS):
            losses.append(float(step(*batch(number))))
    if not ad.is_chief:
        return None
    theirs = plain_losses(name, device)
    return {"difference": max(abs(a - b) / abs(b) for a, b in zip(losses, theirs)), "losses": losses}


def steps_of(name, device, how):
    model, loss_fn, batch = make(name, device)
    one = batch(0)
    if how == "autodist":
        session = job_of(device, 1, verify_every=0).distribute(model, loss_fn, f"sgd:lr={RATE}", one)
        return lambda: session(*one)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    run = torch.compile(model) if how == "compiled" else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_fn(run, *one)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def seconds(step, count, device):
    if device != "cpu":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        step()
    if device != "cpu":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count


def time_steps(name, device):
    hows = ["plain", "autodist"] + (["compiled"] if device != "cpu" else [])
    steps = {how: steps_of(name, device, how) for how in hows}
    for step in steps.values():
        seconds(step, 3, device)
    rounds = [{how: seconds(step, 10, device) for how, step in steps.items()} for _ in range(5)]
    medians = {how: sorted(each[how] for each in rounds)[2] for how in hows}
    return {"seconds": medians, "ratios": sorted(each["autodist"] / each["plain"] for each in rounds)}


def memory(name, device, how):
    step = steps_of(name, device, how)
    for _ in range(5):
        step()
    return {"mb": torch.cuda.max_memory_allocated() / 2**20 if device != "cpu" else 0.0}


def main():
    name, device, action, *rest = sys.argv[1:]
    result = {"train": train, "time": time_steps, "memory": memory}[action](name, device, *rest)
    if result is not None:
        print("DEVICE " + json.dumps(result), flush=True)


main()
