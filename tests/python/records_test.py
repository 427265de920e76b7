"""What a job writes of its steps: lines, an event file, a page."""

import csv
import json
import os
import sys
import tempfile

import comparing
from running import run

comparing.skip_without_torch()

import autodist
import torch
from torch import nn

from cases import mse

STEPS = 24


def data(rows):
    generator = torch.Generator().manual_seed(2)
    return torch.randn(rows, 4, generator=generator), torch.randn(rows, 1, generator=generator)


def train(folder):
    """A job of two ranks, which leaves the losses that it saw."""
    ad = autodist.AutoDist("local:2", builder="PSLoadBalancing", log=f"{folder}/run.jsonl",
                           tensorboard=f"{folder}/board", report=f"{folder}/page.html")
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5)
    losses, rates = [], []
    with ad.distribute(model, mse, optimizer, data(4)) as step:
        for number in range(STEPS):
            if number == STEPS // 2:
                step.change_plan("AllReduce")
            losses.append(float(step(*data(8))))
            rates.append(step.lr)
            schedule.step()
        step.save(os.fsencode(f"{folder}/model"))
    if ad.is_chief:
        with open(f"{folder}/seen.json", "w") as file:
            json.dump([losses, rates], file)


def train_steps(folder):
    ad = autodist.AutoDist(log=f"{folder}/turns.csv", report=f"{folder}/turns.html")
    model = nn.Linear(4, 1)
    one = autodist.TrainingStep(model, mse, torch.optim.SGD(model.parameters(), lr=0.1), data(4))
    two = autodist.TrainingStep(model, mse, None, data(4))
    with ad.distribute_steps(train=one, look=two) as steps:
        for _ in range(5):
            steps["train"](*data(4))
        steps["look"](*data(4))
        # Its trace is for the report.
        comparing.refused("this job keeps no trace", steps["train"].write_trace, f"{folder}/trace.json")


def expect_files(folder):
    with open(f"{folder}/seen.json") as file:
        losses, rates = json.load(file)
    with open(f"{folder}/run.jsonl") as file:
        rows = [json.loads(line) for line in file]
    assert [row["step"] for row in rows] == list(range(STEPS))
    assert [row["loss"] for row in rows] == losses and losses[-1] < losses[0]
    assert [row["lr"] for row in rows] == rates and rates[0] == 0.1 and rates[-1] == 0.025
    half = STEPS // 2
    assert [row["plan"] for row in rows] == ["PSLoadBalancing"] * half + ["AllReduce"] * half
    for row in rows:
        assert row["step_seconds"] > 0 and row["computing_seconds"] > 0
        assert row["samples"] == 8
        assert abs(row["samples_per_second"] * row["step_seconds"] - 8) < 1e-6
    events = os.listdir(f"{folder}/board")
    assert len(events) == 1 and os.path.getsize(f"{folder}/board/{events[0]}") > STEPS * 100
    assert os.listdir(f"{folder}/model") == [f"step-{STEPS}"]
    with open(f"{folder}/page.html") as file:
        page = file.read()
    assert "Sequential on 2 ranks" in page and "PSLoadBalancing" in page
    # The page's traces are of both ranks, and its run has every step.
    for words in ("this run", "rank 1", "samples_per_second"):
        assert words in page, words


def expect_several(folder):
    train_steps(folder)
    for name, steps in (("train", 5), ("look", 1)):
        with open(f"{folder}/turns-{name}.csv") as file:
            assert [int(row["step"]) for row in csv.DictReader(file)] == list(range(steps))
        assert os.path.getsize(f"{folder}/turns-{name}.html") > 10000


def expect_refusals():
    beyond_a_file = os.path.join(os.path.abspath(__file__), "board")
    for option, path, text in (("log", "/nowhere/at/all", "no folder /nowhere/at"),
                               ("report", "/nowhere/at/all", "no folder /nowhere/at"),
                               ("tensorboard", beyond_a_file, "is a file, a folder expected"),
                               ("log", "", "a path expected")):
        comparing.raised(autodist.Error, [f"{option}=", text], autodist.AutoDist, **{option: path})
    # Before the ranks meet: nobody else comes here.
    place = {"TORCHELASTIC_RUN_ID": str(os.getpid()), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "4711",
             "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    job = "import autodist; autodist.AutoDist(log=b'/nowhere/caf\\xe9', join_limit=5)"
    done = run([sys.executable, "-c", job], 3, env={**os.environ, **place})
    expected = "MachineError: log= /nowhere/caf\\xe9: there is no folder /nowhere. Make it first."
    assert expected in done.stderr, done.stderr


def main():
    with tempfile.TemporaryDirectory() as folder:
        # Names of files need not be UTF-8, nor does what a rank is started with.
        for name in ("plain", os.fsdecode(b"caf\xe9")):
            files = os.path.join(folder, name)
            os.mkdir(files)
            comparing.run(__file__, files)
            expect_files(files)
        expect_several(folder)
    expect_refusals()
    print("records: as said")


if sys.argv[1:]:
    train(sys.argv[1])
else:
    main()
