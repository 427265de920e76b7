"""A generator and its critic in one job, and a step that measures, equal plain PyTorch; so do layers
that are unfrozen later, and training and measuring with an embedding whose rows are fetched, of
which no rank has all.
"""

import sys
import time

import comparing

comparing.skip_without_torch()

import torch
from torch import nn
from torch.nn import functional

ROUNDS = 5

if len(sys.argv) == 1:  # the test; else a rank of the job
    for builder in ("PS", "PartitionedPS", "AllReduce", "unfreezing of PS", "unfreezing of AllReduce",
                    "rows of PS", "late rows of PS", "late rows of AllReduce"):
        difference = comparing.result_of(__file__, builder)
        print(f"{builder}: {difference:.1e}")
        assert difference < 1e-9, difference
    sys.exit(0)

import autodist


def make():
    torch.manual_seed(5)
    return nn.ModuleDict({
        "generator": nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4)),
        "critic": nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 1)),
    }).double()


# No dropout in what is compared: two ranks draw other numbers than one process.
def without_dropout(model):
    model["critic"][1].p = 0.0
    return model


def critic_loss(model, real, noise):
    fake = model["critic"](model["generator"](noise))
    return (functional.softplus(-model["critic"](real)) + functional.softplus(fake)).mean()


def generator_loss(model, noise):
    return functional.softplus(-model["critic"](model["generator"](noise))).mean()


def measure(model, noise):
    assert not model.training and not torch.is_grad_enabled()
    return model["generator"](noise).square().mean()


def batches():
    torch.manual_seed(6)
    return [(torch.randn(11, 4).double(), torch.randn(11, 3).double()) for _ in range(ROUNDS)]


def plain():
    model = without_dropout(make())
    critic = torch.optim.Adam(model["critic"].parameters(), lr=0.01)
    generator = torch.optim.SGD(model["generator"].parameters(), lr=0.05, momentum=0.9)
    measured = []
    for real, noise in batches():
        for _ in range(2):
            comparing.plain_step(model, critic_loss, critic, real, noise)
        comparing.plain_step(model, generator_loss, generator, noise)
        with torch.no_grad():
            model.eval()
            measured.append(measure(model, noise).item())
            model.train()
    return model, measured


def main(builder, out):
    model = without_dropout(make())
    ad = autodist.AutoDist("local:2", builder=builder)
    real, noise = (each[:5] for each in batches()[0])
    steps = ad.distribute_steps(
        critic=autodist.TrainingStep(
            model, critic_loss, torch.optim.Adam(model["critic"].parameters(), lr=0.01),
            (real, noise)),
        generator=autodist.TrainingStep(
            model, generator_loss, "sgd:lr=0.05,momentum=0.9", noise, trains="generator"),
        measure=autodist.TrainingStep(model, measure, None, noise),
    )
    measured = []
    with steps:
        assert list(steps) == ["critic", "generator", "measure"] and len(steps) == 3
        for real, noise in batches():
            steps["critic"](real, noise)
            steps["critic"](real, noise)
            steps.synchronize()
            critic = {name: each.clone() for name, each in model["critic"].state_dict().items()}
            steps["generator"](noise)
            steps.synchronize()
            for name, each in model["critic"].state_dict().items():
                assert torch.equal(each, critic[name]), name
            steps["measure"](noise)
            steps["measure"].summarise()
            measured.append(steps["measure"].last_summary().loss)
        comparing.refused("Did you mean 'generator'?", steps.__getitem__, "generater")
        assert steps.get("generater") is None and steps.get("generater", 3) == 3
        assert steps.get("critic") is steps["critic"]
        assert (steps.step, steps["critic"].step, steps["generator"].step) == (4 * ROUNDS, 10, 5)
        assert len(steps["generator"].graph.variables) == 4  # the critic's are none of its own
        steps.synchronize()
        assert all(each.requires_grad for each in model.parameters())
    theirs, expected = plain()
    worst = comparing.largest_difference(model.state_dict(), theirs.state_dict())
    worst = max(worst, *(abs(a - b) for a, b in zip(measured, expected)))
    if ad.is_chief:
        torch.save(worst, out)


def unfreezing_loss(model, x):
    return (model["critic"](model["generator"](x)) - x.sum(1, keepdim=True)).square().mean()


def main_unfreezing(builder, out):
    """The critic stands for a head, the generator for a body that is trained from the middle on."""
    model, theirs = without_dropout(make()), without_dropout(make())
    ad = autodist.AutoDist("local:2", builder=builder)
    inputs = [noise for _, noise in batches()]
    steps = ad.distribute_steps(
        warm_up=autodist.TrainingStep(model, unfreezing_loss, "adam:lr=0.02", inputs[0][:5],
                                      trains="critic"),
        whole=autodist.TrainingStep(
            model, unfreezing_loss, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
            inputs[0][:5]),
    )
    head = torch.optim.Adam(theirs["critic"].parameters(), lr=0.02)
    whole = torch.optim.SGD(theirs.parameters(), lr=0.01, momentum=0.9)
    with steps:
        for phase, optimizer in (("warm_up", head), ("whole", whole)):
            for x in inputs:
                steps[phase](x)
                comparing.plain_step(theirs, unfreezing_loss, optimizer, x)
            steps.synchronize()
            was_trained = not torch.equal(model["generator"][0].weight, make()["generator"][0].weight)
            assert was_trained == (phase == "whole"), phase
    worst = comparing.largest_difference(model.state_dict(), theirs.state_dict())
    if ad.is_chief:
        torch.save(worst, out)


def table():
    torch.manual_seed(7)
    return nn.Embedding(20, 3, sparse=True).double()


def row_loss(model, rows):
    return (model(rows) - 1).square().mean()


def whole_table(model, rows):
    return (model.weight.square().sum() + 0 * model(rows).sum()) / 60


def main_rows(builder, out):
    model, theirs = table(), table()
    ad = autodist.AutoDist("local:2", builder=builder)
    torch.manual_seed(8)
    rows = [torch.randint(0, 20, (6,)) for _ in range(ROUNDS)]
    steps = ad.distribute_steps(
        train=autodist.TrainingStep(model, row_loss, "sgd:lr=0.5", rows[0][:3]),
        whole=autodist.TrainingStep(model, whole_table, None, rows[0][:3]),
    )
    worst = 0.0
    with steps:
        for each in rows:
            steps["train"](each)
            loss = steps["whole"](each)
            theirs.zero_grad()
            row_loss(theirs, each).backward()
            with torch.no_grad():
                theirs.weight -= 0.5 * theirs.weight.grad.to_dense()
                worst = max(worst, abs(loss - whole_table(theirs, each).item()))
    if ad.is_chief:
        torch.save(worst, out)


def main_late(builder, out):
    """Ranks are late in turns, so that each asks for rows before and after their version is made."""
    model, theirs = table(), table()
    ad = autodist.AutoDist("local:3", builder=builder)
    torch.manual_seed(9)
    rows = [torch.randint(0, 20, (6,)) for _ in range(6 * ROUNDS)]
    optimizer, descent = (torch.optim.SGD(each.parameters(), lr=0.5) for each in (model, theirs))
    pairs = []  # losses: the job's, and what it must be
    with ad.distribute(model, row_loss, optimizer, rows[0][:2]) as step:
        for number, each in enumerate(rows):
            optimizer.param_groups[0]["lr"] = descent.param_groups[0]["lr"] = 0.5 / (1 + number)
            if (ad.rank + number // 2) % 3 == 0:
                time.sleep(0.02)
            loss = step(each)
            expected = row_loss(theirs, each)
            descent.zero_grad()
            expected.backward()
            descent.step()
            pairs.append((loss, expected.item()))
            if number % 2:  # else it goes on before it knows
                for loss, expected in pairs:
                    assert abs(float(loss) - expected) < 1e-9, (ad.rank, number, float(loss))
                pairs = []
        step.synchronize()
        worst = (model.weight - theirs.weight).abs().max().item()
    if ad.is_chief:
        torch.save(worst, out)


kind, _, builder = sys.argv[1].rpartition(" of ")
{"": main, "unfreezing": main_unfreezing, "rows": main_rows, "late rows": main_late}[kind](builder, sys.argv[2])
