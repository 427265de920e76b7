"""A job that goes through the plans of another computes the same bits."""

import os
import sys
import tempfile

import comparing

comparing.skip_without_torch()

import torch

RANKS = 3
STEPS = 12
CHANGES = {4: "AllReduce:algorithm=ring", 6: "PS:staleness=0", 9: "PartitionedPS"}
SAVED_AT = 7

if len(sys.argv) == 1:  # the test; else a rank of the job
    with tempfile.TemporaryDirectory() as folder:
        def path(name):
            return os.path.join(folder, name)

        def result(case, **environment):
            comparing.run(__file__, case, path("out.pt"), FOLDER=folder, **environment)
            return torch.load(path("out.pt"))

        def expect_equal(found, expected, case, since=0):
            assert found["losses"] == expected["losses"][since:], case
            for name, value in expected["state"].items():
                assert torch.equal(found["state"][name], value), (case, name)

        first = result("first", WRITE=path("first.plans"))
        again = result("again", PLANS=path("first.plans"), WRITE=path("again.plans"))
        expect_equal(again, first, "again")
        with open(path("first.plans")) as one, open(path("again.plans")) as other:
            text = one.read()
            assert text == other.read()
        assert [text.count(f"step: {step}\n") for step in (4, 6, 9)] == [1, 1, 1], text
        # From a checkpoint it goes on under the plan of that step, and keeps the history before it.
        resumed = result("resumed", PLANS=path("first.plans"), WRITE=path("again.plans"))
        expect_equal(resumed, first, "resumed", SAVED_AT)
        with open(path("again.plans")) as other:
            assert text == other.read()
        print("repeated, whole and from a checkpoint")

        tried = result("any", WRITE=path("any.plans"))
        assert tried["plans"] > 1, "no other plan was tried"
        repeated = result("any", PLANS=path("any.plans"))
        assert repeated["plans"] == tried["plans"]
        expect_equal(repeated, tried, "any")
        print(f"trials of any plan, {tried['plans']} of them: repeated")

        comparing.run(__file__, "refused", "", FOLDER=folder)
        print("refused: as said")
    sys.exit(0)

import autodist
from torch import nn

from cases import mse

CASE, OUT = sys.argv[1:]


def batch(number):
    generator = torch.Generator().manual_seed(number)
    y = torch.randn(12, 2, generator=generator)
    return torch.randn(12, 4, generator=generator) + y.sum(1, keepdim=True), y


def begin(ranks=RANKS, **options):
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 8), nn.Dropout(0.1),
                          nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    job = autodist.AutoDist(f"local:{ranks}", **options)
    share = tuple(each.chunk(ranks)[0] for each in batch(0))
    return model, job.distribute(model, mse, optimizer, share)


def refuse_all():
    """What is wrong with a file of plans, or missing, is said by the chief before the first step."""
    def refused(text, **options):
        # An error of a job of several is one of each of its processes.
        comparing.raised(autodist.UsageError, text, lambda: begin(ranks=1, **options))

    def write(name, text):
        file = os.path.join(os.environ["FOLDER"], name)
        with open(file, "w") as out:
            out.write(text)
        return file

    with open(os.path.join(os.environ["FOLDER"], "first.plans")) as first:
        text = first.read()
    refused("write_plans", trials="any")
    refused("'any' or a whole number of 0 or more expected", trials="all")
    refused("'any' or a whole number of 0 or more expected", trials=-1)
    refused("no plan", plans=write("empty", ""))
    refused("one strategy", plans=write("other", "node_config {}"))
    refused("has no field", plans=write("unknown", "plans {}"))
    refused("a later one than that of 9 expected", plans=write("twice", text + text))
    refused("1.weight", plans=write("foreign", text.replace('"0.weight:0"', '"1.weight:0"')))
    refused("each chooses the strategy", plans=write("first", text), strategy_file="a.strategy")


def main():
    if CASE == "refused":
        return refuse_all()
    written, plans = os.environ.get("WRITE"), os.environ.get("PLANS")
    chosen = {"plans": plans} if plans else {"builder": "PS"}
    if CASE == "any" and not plans:
        chosen = {"trials": "any", "budget": "30"}
    model, step = begin(write_plans=written, **chosen)
    saved = os.path.join(os.environ["FOLDER"], "saved")
    with step:
        number = step.load(saved) if CASE == "resumed" else 0
        losses, ids = [], set()
        for number in range(number, STEPS if CASE != "any" else 150):
            if CASE == "first" and number in CHANGES:
                step.change_plan(CHANGES[number])
            if CASE == "first" and number == SAVED_AT:
                step.save(saved)
            losses.append(float(step(*batch(number))))
            ids.add(step.strategy.id)
        if step.is_chief:
            torch.save({"losses": losses, "plans": len(ids), "state": model.state_dict()}, OUT)


main()
