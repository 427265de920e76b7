"""A job goes on under another plan; its losses do not notice."""

import os
import sys
import tempfile

import comparing

comparing.skip_without_torch()

import torch

RANKS = 3
STEPS = 12
EVERY = 2  # steps under each plan
DENSE = ["PS", "PartitionedPS", "AllReduce", "PS:local_proxy_variable=false",
         "UnevenPartitionedPS", "RandomAxisPartitionAR", "PS:results=asked", "PSLoadBalancing"]
LOSSY = ["AllReduce:compressor=fp16+ef", "AllReduce:compressor=fp16+ef,chunk_size=1"]
SPARSE = ["PartitionedPS", "Parallax", "AllReduce", "PS", "PartitionedAR"]

if len(sys.argv) == 1:  # the test; else a rank of the job
    with tempfile.TemporaryDirectory() as folder:
        def result(case, *plans, **environment):
            out = os.path.join(folder, "out.pt")
            comparing.run(__file__, case, out, *plans, **environment)
            return torch.load(out)

        for case, plans in (("dense", DENSE), ("scaled", DENSE), ("lossy", LOSSY),
                            ("sparse", SPARSE), ("lengths", DENSE), ("accumulate", DENSE),
                            ("written", DENSE), ("sparse written", SPARSE)):
            expected, found = result(case, plans[0]), result(case, *plans)
            assert found["losses"] == expected["losses"], (case, found["losses"], expected["losses"])
            for name, value in expected["state"].items():
                assert torch.equal(found["state"][name], value), (case, name)
            assert found["moved"] > 0 and not found["forgotten"], case
            print(f"{case}: equal under {len(plans)} plans, {found['moved']} bytes moved")
        # What the last plan has no place for is dropped, and said.
        dropped = result("dense", LOSSY[0], "PS")
        assert dropped["forgotten"] == [f"{layer}.{what}" for layer in (0, 1, 2, 4)
                                        for what in ("weight", "bias")], dropped["forgotten"]
        # Without a fixed order of sums, losses are near.
        for plans in (["PS:staleness=2", "PS"], ["PS:sync=false", "AllReduce"], ["PS", "PS:sync=false"],
                      ["PS", "AllReduce:algorithm=library"], ["AllReduce:algorithm=ring", "PS"]):
            if any(map(comparing.is_left_out, plans)):
                continue
            found = result("dense", *plans)
            assert found["after"] < found["losses"][0], (plans, found["losses"], found["after"])
            print(f"{plans}: trains")
        comparing.run(__file__, "refused", "")
        print("refused: as said")
        # Trials that count change no bit of what the plan without them computes.
        first = os.path.join(folder, "first.strategy")
        tried = result("trials", "auto", STRATEGY=first)
        assert tried["plans"] > 1, "no other plan was tried"
        alone = result("trials", "", STRATEGY=first)
        assert alone["plans"] == 1 and tried["losses"] == alone["losses"]
        for name, value in alone["state"].items():
            assert torch.equal(tried["state"][name], value), name
        print(f"trials that count: {tried['plans']} plans ran, equal to the first alone")
        comparing.run(__file__, "ends", "", "auto")
        print("a chief that ends where plans would be compared: in order")
        saved = os.path.join(folder, "saved")
        whole = result("save", "PS", "AllReduce", FOLDER=saved)
        resumed = result("resume", "PartitionedPS", FOLDER=saved)
        assert resumed["losses"] == whole["losses"][STEPS // 2:], (resumed, whole)
        for name, value in whole["state"].items():
            assert torch.equal(resumed["state"][name], value), name
        print("a checkpoint after a change: goes on as it would have")
    sys.exit(0)

import autodist
from torch import nn

from cases import mse

CASE, OUT, *PLANS = sys.argv[1:]


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(40, 6, sparse=True)
        self.out = nn.Linear(6, 2)

    def forward(self, rows):
        return self.out(self.table(rows).mean(1))


def make():
    torch.manual_seed(4)
    if "sparse" in CASE:
        return Table().double()
    return nn.Sequential(nn.Linear(4, 9), nn.BatchNorm1d(9), nn.Linear(9, 8), nn.Dropout(0.1),
                         nn.Linear(8, 2)).double()


def batch(number):
    generator = torch.Generator().manual_seed(number)
    rows = 12 if CASE != "lengths" else 9 + 3 * (number % 3)
    y = torch.randn(rows, 2, generator=generator).double()
    if "sparse" in CASE:
        return torch.randint(0, 40, (rows, 5), generator=generator), y
    return torch.randn(rows, 4, generator=generator).double() + y.sum(1, keepdim=True), y


def optimizer_of(model):
    if "sparse" in CASE:
        return torch.optim.Adagrad(model.parameters(), lr=0.1)
    return torch.optim.Adam(model.parameters(), lr=0.01)


def options():
    if CASE in ("trials", "ends"):
        return {"budget": "30"} if PLANS[0] else {"strategy_file": os.environ["STRATEGY"]}
    if CASE == "scaled":
        return {"loss_scaling": "dynamic:scale=1024,growth=2,backoff=0.5,interval=3"}
    return {"accumulate": 2} if CASE == "accumulate" else {}


def train(job, step, optimizer, steps):
    losses, moved, forgotten = [], 0, []
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for number in range(steps):
        if "written" in CASE:  # by the loop, between two steps
            with torch.no_grad():
                for each in step.model.parameters():
                    each.clamp_(-0.3, 0.3)
        plan = number // EVERY
        if number > 0 and number % EVERY == 0 and plan < len(PLANS):
            change = step.change_plan(PLANS[plan])
            moved += change.moved_bytes
            assert (change.predicted_seconds > 0) == (change.moved_bytes > 0), change
            forgotten += change.forgotten
            assert step.step == number and step.local_loss == step.last.loss
        losses.append(step(*batch(number)))
        scheduler.step()
        step.summarise()
    return {"losses": [float(each) for each in losses], "moved": moved, "forgotten": forgotten,
            "after": step.evaluate(mse, *batch(0)).item()}


def expect_refused(job, step, model):
    """What is refused at all ranks leaves the job as it was."""
    step(*batch(0))
    comparing.raised(autodist.UsageError, "Nearest: 'PartitionedPS'", step.change_plan, "PartitionedSP")
    comparing.raised(autodist.UsageError, "a job does before its first step", step.change_plan, "auto")
    comparing.raised(autodist.UsageError, "results='thrown'", step.change_plan, "PS:results=thrown")
    before = model[0].weight.detach().clone()
    with torch.no_grad():
        model[0].weight.mul_(job.rank + 2)
    comparing.raised(autodist.UsageError, "different values into parameters", step.change_plan, "PS")
    with torch.no_grad():
        model[0].weight.copy_(before / 2)
    step(*batch(1))
    strategy = step.strategy.copy()
    strategy.nodes = list(strategy.nodes)[::-1]
    step.change_plan(strategy)
    assert [each.name for each in step.strategy.nodes] == [each.name for each in strategy.nodes]
    step(*batch(2))
    # A call that only some ranks make is named.
    if job.rank == 1:
        comparing.raised(autodist.Error, "change_plan()", step.change_plan, "PS")
    else:
        comparing.raised(autodist.Error, "change_plan()",
               lambda: [step(*batch(number)) for number in range(3, 6)])
    step.close("as expected")


def expect_end(step):
    """The chief's loop ends before the step at which trials begin."""
    with step:
        for number in range(15):
            step(*batch(number))
        if not step.is_chief:
            comparing.raised(autodist.JobEnded, "", lambda: [step(*batch(number)) for number in (15, 16)])


def main():
    model = make()
    optimizer = optimizer_of(model)
    builder = (PLANS[0] or None) if PLANS else "PS"
    job = autodist.AutoDist(f"local:{RANKS}", builder=builder, **options())
    share = tuple(each.chunk(RANKS)[0] for each in batch(0))
    step = job.distribute(model, mse, optimizer, share)
    if CASE == "refused":
        return expect_refused(job, step, model)
    if CASE == "ends":
        return expect_end(step)
    with step:
        if CASE == "resume":
            number = step.load(os.environ["FOLDER"])
            result = {"losses": [float(step(*batch(each))) for each in range(number, STEPS)]}
        elif CASE == "trials":
            first = os.environ["STRATEGY"]
            if PLANS[0] and step.is_chief:
                step.strategy.serialize(first)
            losses, plans = [], set()
            for number in range(150):
                losses.append(step(*batch(number)))
                plans.add(step.strategy.id)
            result = {"losses": [float(each) for each in losses], "plans": len(plans)}
        elif CASE == "save":
            result = {"losses": []}
            for number in range(STEPS):
                if number == 3:
                    step.change_plan(PLANS[1])
                if number == STEPS // 2:
                    step.save(os.environ["FOLDER"])
                result["losses"].append(float(step(*batch(number))))
        else:
            result = train(job, step, optimizer, STEPS)
        if step.is_chief:
            torch.save({**result, "state": model.state_dict()}, OUT)


main()
