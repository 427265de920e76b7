"""What a job does that is told nothing: it searches, compares its first steps, and says so."""

import os
import pty
import subprocess
import sys
import tempfile

import comparing
from comparing import refused

comparing.skip_without_torch()

import autodist
import torch
from torch import nn

from cases import mse

FACTOR = 1.0


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0))
        self.out = nn.Linear(4, 1)
        self.factor = 1.0

    def forward(self, x):
        return self.out(self.inner(x)) * self.factor


def scaled(model, x, y):
    return mse(model, x, y) * FACTOR


def data(rows=8):
    generator = torch.Generator().manual_seed(2)
    return torch.randn(rows, 4, generator=generator), torch.randn(rows, 1, generator=generator)


def set_factor(value):
    global FACTOR
    FACTOR = value


def expect_comparisons():
    """What Python changed is named within the first 20 steps, and a while later afterwards, if anything is
    compared."""
    batch, weights = data(), [1.0, 2.0]
    cases = [
        ("model.factor was 1.0 and is 3.0", mse, lambda model: setattr(model, "factor", 3.0)),
        ("model.inner.1.p was 0.0 and is 0.5", mse,
         lambda model: setattr(model.inner[1], "p", 0.5)),
        ("FACTOR was 1.0 and is 2.0", scaled, lambda model: set_factor(2.0)),
        ("weights[0] was 1.0 and is 5.0",
         lambda model, x, y: mse(model, x, y) * weights[0],
         lambda model: weights.__setitem__(0, 5.0)),
    ]
    for words, loss_fn, change in cases:
        for steps, options, noticed in ((3, {}, True), (3, {"verify_every": 0}, False),
                                        (24, {"verify_every": 4}, True)):
            set_factor(1.0)
            weights[0] = 1.0
            model = Scaled()
            step = autodist.AutoDist(**options).distribute(model, loss_fn, "sgd:lr=1e-3", batch)
            for _ in range(steps):
                step(*batch)
            change(model)
            if noticed:
                refused(["no longer does what was captured", words], step, *batch)
            else:
                step(*batch)
            step.close()
    set_factor(1.0)


def expect_rates():
    batch = data()
    schedule = "sgd:lr=0.5,schedule=step,period=2,factor=0.1"
    with autodist.AutoDist().distribute(nn.Linear(4, 1), mse, schedule, batch) as step:
        rates = []
        for _ in range(5):
            step(*batch)
            rates.append(step.lr)
    assert all(abs(a - b) < 1e-12 for a, b in zip(rates, [0.5, 0.5, 0.05, 0.05, 0.005])), rates
    optimizer = torch.optim.Adam(nn.Linear(1, 1).parameters(), lr=0.25)
    assert optimizer.param_groups
    model = nn.Linear(4, 1)
    with autodist.AutoDist().distribute(model, mse, torch.optim.Adam(model.parameters(), lr=0.25),
                                        batch) as step:
        assert step.lr == 0.25


def rank_of(job):
    """A job of two ranks, in a process of its own."""
    batch = data(8)
    ad = autodist.AutoDist("local:2", budget="30", history=False, progress="quiet" not in job)
    half = tuple(each[:4] for each in batch)
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)), nn.Linear(4, 1))
    with ad.distribute(model, mse, "sgd:lr=0.01", half) as step:
        first = float(step(*batch))
        for _ in range(9):
            last = float(step(*batch))
        assert last < first
        text = step.strategy.to_text()
        assert "LIBRARY" not in text, text
        if ad.is_chief:
            print(f"searched: {len(step.strategy.nodes)} nodes")


def on_terminal(*arguments):
    """What a script writes to a standard error that is a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen([sys.executable, os.path.abspath(__file__), *arguments],
                               stdout=subprocess.PIPE, stderr=follower, text=True)
    os.close(follower)
    text = b""
    while True:
        try:
            some = os.read(leader, 4096)
        except OSError:  # the other side is closed
            break
        if not some:
            break
        text += some
    os.close(leader)
    out = process.communicate()[0]
    assert process.returncode == 0, (process.returncode, out, text)
    return out, text.decode()


def main():
    expect_comparisons()
    expect_rates()
    out, said = on_terminal("job")
    assert "searched: 14 nodes" in out, out
    for words in ("capturing Sequential", "captured Sequential: ", "searching: ", "by search: "):
        assert words in said, (words, said)
    _, said = on_terminal("job", "quiet")
    assert "captur" not in said and "search" not in said, said
    with tempfile.TemporaryFile() as file:  # no terminal
        done = subprocess.run([sys.executable, os.path.abspath(__file__), "job"], stderr=file,
                              stdout=subprocess.PIPE, check=True)
        file.seek(0)
        assert b"captur" not in file.read() and b"searched" in done.stdout
    print("defaults: as said")


if sys.argv[1:]:
    rank_of(sys.argv[1:])
else:
    main()
