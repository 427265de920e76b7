"""One model of models.py, by AutoDist and by plain PyTorch; one line of JSON at the chief.

    one_model.py train NAME       six steps on two ranks in float64, beside plain PyTorch in one process
    one_model.py time NAME        steps of one rank in float32, in turns with plain PyTorch's
    one_model.py memory NAME HOW  what five steps take, by `autodist` or `plain`
"""

import json
import resource
import sys
import time
import warnings

import torch
import transformers

import autodist
import models

SEED = 3
STEPS = 6
RATE = 0.05
MASK = 2**64 - 1


def _mixed(x):
    """SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def step_seed(rank, step):
    """Of a rank's random numbers in a step (autodist/exec/replay.h)."""
    return _mixed(_mixed((SEED + rank * 0x9E3779B97F4A7C15) & MASK) ^ step)


def halves(batch):
    rows = len(next(iter(batch.values()))) // 2
    return [{k: v[:rows] for k, v in batch.items()}, {k: v[rows:] for k, v in batch.items()}]


def plain(name):
    """The parameters after the steps; each rank's buffers are a model's of its own."""
    copies = [models.make(name, SEED, models.SMALL, torch.float64) for _ in range(2)]
    first = copies[0][0]
    for step in range(STEPS):
        batch = models.batch_of(name, 100 + step, models.SMALL, torch.float64)
        for rank, (model, loss_fn, _) in enumerate(copies):
            with torch.no_grad():
                for mine, original in zip(model.parameters(), first.parameters()):
                    mine.copy_(original)
            model.zero_grad(set_to_none=True)
            torch.manual_seed(step_seed(rank, step))
            loss_fn(model, halves(batch)[rank]).backward()
        with torch.no_grad():
            for original, other in zip(first.parameters(), copies[1][0].parameters()):
                for gradient in (original.grad, other.grad):
                    if gradient is not None:
                        original.sub_(gradient, alpha=RATE / 2)
    return {key: value.detach() for key, value in first.named_parameters()}


def train(name):
    ad = autodist.AutoDist("local:2", builder="PSLoadBalancing", seed=SEED, history=False)
    model, loss_fn, _ = models.make(name, SEED, models.SMALL, torch.float64)
    example = halves(models.batch_of(name, 100, models.SMALL, torch.float64))[0]  # alike at all ranks
    try:
        session = ad.distribute(model, loss_fn, f"sgd:lr={RATE}", example)
    except autodist.Error as error:
        return {"refused": str(error)} if ad.is_chief else None
    with session as step:
        for number in range(STEPS):
            step(models.batch_of(name, 100 + number, models.SMALL, torch.float64))
        step.synchronize()
        ours = {key: value.detach().clone() for key, value in model.named_parameters()}
    if not ad.is_chief:
        return None
    theirs = plain(name)
    differences = {key: (ours[key] - theirs[key]).abs().max().item() for key in ours}
    worst = max(differences, key=differences.get)
    return {"difference": differences[worst], "where": worst}


def plain_steps(name):
    model, loss_fn, batch = models.make(name, SEED, models.TIMED)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_fn(model, batch).backward()
        optimizer.step()

    return step


def our_steps(name):
    ad = autodist.AutoDist("local:1", seed=SEED, history=False, verify_every=0)
    model, loss_fn, batch = models.make(name, SEED, models.TIMED)
    session = ad.distribute(model, loss_fn, "sgd:lr=1e-3", batch)
    return session, lambda: session(batch)


def timed(step, count):
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return times


def median(values):
    return sorted(values)[len(values) // 2]


def time_steps(name):
    theirs = plain_steps(name)
    session, ours = our_steps(name)
    with session:
        once = median(timed(theirs, 3))
        timed(ours, 3)
        count = max(3, min(30, int(1.5 / once)))
        rounds = [(median(timed(theirs, count)), median(timed(ours, count))) for _ in range(5)]
    return {
        "plain": median([a for a, _ in rounds]),
        "ours": median([b for _, b in rounds]),
        "ratios": sorted(b / a for a, b in rounds),
    }


def memory(name, how):
    """MB beyond what the process has without a model."""
    torch.ones(64, 64).mm(torch.ones(64, 64))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if how == "plain":
        timed(plain_steps(name), 5)
    else:
        session, step = our_steps(name)
        with session:
            timed(step, 5)
    return {"mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    action, name, *rest = sys.argv[1:]
    result = {"train": train, "time": time_steps, "memory": memory}[action](name, *rest)
    if result is not None:
        print("ZOO " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
