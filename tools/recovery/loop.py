"""A training loop that goes on from its newest checkpoint: of AutoDist, or of DDP under torchrun.

    loop.py SYSTEM FOLDER STEPS      trains; every rank leaves its process in FOLDER/pid-RANK, and rank 0 a line per
                                     step in FOLDER/steps: the process, the step, its loss, and when it was done
    loop.py hold FOLDER              AutoDist, once: what a step takes, and one with a save() before it, as JSON
    loop.py cost                     AutoDist, under somebody who starts it again: what snapshots cost, as JSON

SYSTEM is autodist, snapshots (AutoDist without a checkpoint on a disk) or torchrun.
"""

import json
import os
import pathlib
import statistics
import sys
import time

import torch

WIDTH = 1024
EVERY = 20  # steps between checkpoints


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(64, WIDTH, generator=generator), torch.randn(64, 1, generator=generator)


def loss_of(model, x, y):
    return torch.nn.functional.mse_loss(model(x), y)


def note(folder, rank, step, loss):
    if rank == 0:
        with open(folder / "steps", "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {step} {loss.hex()} {time.time()}\n")


def autodist_loop(folder, model, steps, saves=True):
    import autodist
    ad = autodist.AutoDist("local:2", builder="PS", snapshots=not saves)
    with ad.distribute(model, loss_of, torch.optim.Adam(model.parameters()), batch(0)) as step:
        begin = step.resume(folder / "saved" if saves else None)
        (folder / f"pid-{ad.rank}").write_text(str(os.getpid()))  # by now it is no standby
        for number in range(begin, steps):
            step.snapshot()
            note(folder, ad.rank, number, float(step(*batch(number))))
            if saves and (number + 1) % EVERY == 0:
                step.save(folder / "saved", wait=False)


def snapshots_loop(folder, model, steps):
    autodist_loop(folder, model, steps, saves=False)


def torchrun_loop(folder, model, steps):
    from torch import distributed
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    (folder / f"pid-{rank}").write_text(str(os.getpid()))
    saved = folder / "saved.pt"
    optimizer = torch.optim.Adam(model.parameters())
    begin = 0
    if saved.exists():
        state = torch.load(saved)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["step"]
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    for number in range(begin, steps):
        x, y = (each.chunk(2)[rank] for each in batch(number))
        loss = loss_of(parallel, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        note(folder, rank, number, loss.item())
        if rank == 0 and (number + 1) % EVERY == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": number + 1},
                       f"{saved}.tmp")
            os.rename(f"{saved}.tmp", saved)


def hold(folder):
    """A model of 64 Mi parameters."""
    import autodist
    model = torch.nn.Linear(8192, 8192, bias=False)
    x, y = torch.randn(2, 8192), torch.randn(2, 8192)
    ad = autodist.AutoDist("local:2", builder="PS")
    times = {"step": [], "written": [], "copied": []}

    def timed(name, call):
        began = time.perf_counter()
        call()
        times[name].append(time.perf_counter() - began)

    with ad.distribute(model, loss_of, torch.optim.Adam(model.parameters()), (x, y)) as step:
        def one():
            float(step(x, y))

        def saving(wait):
            step.save(folder / "saved", wait=wait)
            one()

        for _ in range(5):
            for _ in range(25):  # time enough for what is written beside them
                timed("step", one)
            timed("written", lambda: saving(wait=True))
            one()
            timed("copied", lambda: saving(wait=False))
    if ad.is_chief:
        gigabytes = 3 * 4 * 8192 * 8192 / 1e9  # parameters, and Adam's two moments
        print(json.dumps({"gigabytes": gigabytes,
                          **{name: statistics.median(some) for name, some in times.items()}}))


def cost(model):
    """Blocks of steps with snapshots and without, in turns: each pair's ratio."""
    import autodist
    steps, pairs = 400, 12
    ad = autodist.AutoDist("local:2", builder="PS")
    x, y = batch(0)
    blocks = []
    longest = 0
    with ad.distribute(model, loss_of, torch.optim.Adam(model.parameters()), (x, y)) as step:
        step.resume()
        for block in range(2 * pairs + 2):
            began = time.perf_counter()
            for _ in range(steps):
                if block % 2 == 0:
                    called = time.perf_counter()
                    step.snapshot()
                    longest = max(longest, time.perf_counter() - called)
                float(step(x, y))
            blocks.append((time.perf_counter() - began) / steps)
    if ad.is_chief:
        blocks = blocks[2:]  # warm
        print(json.dumps({"step": statistics.median(blocks[1::2]), "longest": longest,
                          "ratios": [with_ / without for with_, without in zip(blocks[::2], blocks[1::2])]}))


def new_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1))


def main():
    model = new_model()
    system = sys.argv[1]
    if system == "cost":
        return cost(model)
    folder = pathlib.Path(sys.argv[2])
    if system == "hold":
        return hold(folder)
    loop = {"autodist": autodist_loop, "snapshots": snapshots_loop, "torchrun": torchrun_loop}[system]
    return loop(folder, model, int(sys.argv[3]))


if __name__ == "__main__":
    main()
