"""Parameters that are changed between two steps, optimizers that a scheduler sets, the job's loss:
as in plain PyTorch, and an error where the ranks part."""

import copy
import os
import sys
import tempfile
import warnings

import comparing

comparing.skip_without_torch()

import torch

CASES = {
    "owners": "PartitionedPS",
    "every rank": "AllReduce",
    "one server": "PS",
    "asked for": "PS:results=asked",
    "stale": "PS:staleness=1",
    "library": "AllReduce:algorithm=library",
    "ring": "AllReduce:algorithm=ring",
    "tree": "AllReduce:algorithm=tree",
}


def before_the_first_step():
    """A change between a load and the first step is taken, whatever is called in between."""
    with tempfile.TemporaryDirectory() as folder:
        comparing.run(__file__, "begun", "PartitionedPS", folder)
        for builder, calls in (("PartitionedPS", ["synchronized"]),
                               ("PS:results=asked", ["saved", "synchronized"]),
                               ("PS:sync=false", ["saved", "synchronized"])):
            expected = comparing.result_of(__file__, "changed", builder, folder)
            assert expected["2.bias"].min() > 90, (builder, expected)
            tolerance = 0.1 if "sync=false" in builder else 1e-10  # updated in any order
            for what in calls:
                found = comparing.result_of(__file__, what, builder, folder)
                for name, each in expected.items():
                    assert torch.allclose(found[name], each, rtol=0, atol=tolerance), (builder, what, name)
        saved = comparing.result_of(__file__, "loaded", "PS", os.path.join(folder, "saved"))
        assert (saved["2.bias"] == 100).all(), saved


if len(sys.argv) == 1:  # the test; else a rank of the job
    for name, builder in CASES.items():
        if comparing.is_left_out(builder):
            continue
        comparing.run(__file__, "loop", builder)
        print(f"{name}: as in plain PyTorch")
    for what in ("alone", "kept", "rate", "replaced", "structure", "asynchronous", "momentum"):
        comparing.run(__file__, what, "PartitionedPS")
        print(f"{what}: as said")
    before_the_first_step()
    print("what is changed between a load and the first step is taken")
    sys.exit(0)

import autodist
import numpy
from torch import nn

from cases import batch, mse, small

EXAMPLE = tuple(each[:5] for each in batch(0))


def average(model, shadow):
    """An EMA of all parameters."""
    with torch.no_grad():
        for name, value in model.state_dict().items():
            shadow[name].mul_(0.5).add_(value, alpha=0.5)


def change(model, number, evaluated, shadow):
    """What a loop does to a model between two steps."""
    if number == 1:  # weight clipping
        with torch.no_grad():
            for each in model.parameters():
                each.clamp_(-0.2, 0.2)
    if number == 2:  # what version counters do not see
        model[0].weight.data.mul_(0.5)
        model[2].bias.detach().numpy()[:] = 0.25
    if number == 3:  # other storage
        model[2].weight.data = torch.full((2, 8), 0.1).double()
    if number == 4:  # an EMA swapped in for an evaluation, and out
        kept = copy.deepcopy(model.state_dict())
        model.load_state_dict(shadow)
        evaluated.append(float(mse(model, *batch(77))))
        model.load_state_dict(kept)
    if number == 5:  # an EMA swapped in for good
        model.load_state_dict(shadow)


def train(model, optimizer, step):
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=12)
    shadow = {name: value.clone() for name, value in model.state_dict().items()}
    evaluated, losses = [], []
    for number in range(8):
        losses.append(step(*batch(number)))
        scheduler.step()
        if number == 6:
            optimizer.param_groups[0]["weight_decay"] = 0.01
        average(model, shadow)
        change(model, number, evaluated, shadow)
    return [float(loss) for loss in losses] + evaluated, shadow


def expect_loop(builder):
    model, theirs = small(), small()
    plain = torch.optim.Adam(theirs.parameters(), lr=0.01)
    expected, their_shadow = train(theirs, plain, lambda *batch: comparing.plain_step(theirs, mse, plain, *batch))
    ours = torch.optim.Adam(model.parameters(), lr=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of schedulers, too
        with autodist.AutoDist("local:2", builder=builder).distribute(
                model, mse, ours, EXAMPLE) as step:
            found, shadow = train(model, ours, step)
            assert step.local_loss != found[7], "this rank's rows are not the batch"
    # With staleness a rank computes on older values; what it reads in between is the newest.
    tolerance = 0.5 if "staleness" in builder else 1e-10
    assert numpy.allclose(found, expected, rtol=tolerance, atol=tolerance), (found, expected)
    assert comparing.largest_difference(model.state_dict(), theirs.state_dict()) < tolerance
    assert comparing.largest_difference(shadow, their_shadow) < tolerance
    model[0].weight = nn.Parameter(torch.zeros(8, 4).double())  # nobody's any more


def expect_momentum():
    """What a momentum that is off for a while has gathered before is there again."""
    model, theirs = small(), small()

    def sgd(of):
        groups = [{"params": of[0].parameters(), "name": "first", "lr_scale": 0.5},
                  {"params": of[2].parameters()}]
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True)

    ours, plain = sgd(model), sgd(theirs)
    with autodist.AutoDist("local:2").distribute(model, mse, ours, EXAMPLE) as step:
        for number in range(6):
            for group in (*ours.param_groups, *plain.param_groups):
                group["momentum"] = 0.0 if number in (2, 3) else 0.9
            step(*batch(number))
            comparing.plain_step(theirs, mse, plain, *batch(number))
    assert comparing.largest_difference(model.state_dict(), theirs.state_dict()) < 1e-10


def expect_alone(ad, model, step):
    """One rank has changed what the other has not."""
    step(*batch(0))
    if ad.rank == 1:
        with torch.no_grad():
            model[2].bias.zero_()
    text = "'2.bias' is not changed at rank 0, changed"
    comparing.raised(autodist.Error, text, lambda: [step(*batch(number)) for number in range(1, 4)])


def expect_kept(ad, model, step):
    """A tensor that was kept from before is not the newest by itself."""
    kept = model[2].bias
    step(*batch(0))
    with torch.no_grad():
        kept.zero_()
    comparing.raised(autodist.Error, "synchronize()", lambda: [step(*batch(n)) for n in range(1, 4)])


def expect_rate(ad, model, step):
    """A rate that goes by what this rank alone has seen."""
    step(*batch(0))
    optimizer.param_groups[0]["lr"] = 0.02 if ad.rank == 1 else 0.01
    text = "lr of '0.weight' is 0.01 at rank 0, 0.02 at rank 1"
    comparing.raised(autodist.Error, text, lambda: [step(*batch(number)) for number in range(1, 4)])


def expect_replaced(ad, model, step):
    """What a step cannot follow is refused where it is done, and the job goes on."""
    first = step(*batch(0))
    comparing.raised(autodist.UsageError, "copy_", setattr, model[0], "weight",
           nn.Parameter(torch.zeros(8, 4).double()))
    optimizer.param_groups[0]["amsgrad"] = True
    comparing.raised(autodist.UsageError, "max_exp_avg_sq", step, *batch(0))
    optimizer.param_groups[0]["amsgrad"] = False
    comparing.raised(autodist.UsageError, "leave this call out", first.backward)
    assert step(*batch(0)) < first and f"{first:.3f}" == f"{float(first):.3f}"
    optimizer.add_param_group({"params": [nn.Parameter(torch.randn(1))]})
    comparing.raised(autodist.UsageError, "parameter groups hold others", step, *batch(0))


def expect_structure(ad, model, step):
    """Copies, saved models and forks have nothing of the session."""
    step(*batch(0))
    again = copy.deepcopy(model)
    torch.save(model, os.devnull)
    assert type(again[0]._parameters) is not type(model[0]._parameters)
    with torch.no_grad():
        again[0].weight.zero_()
    assert model[0].weight.abs().max() > 0
    step(*batch(1))


def expect_asynchronous(ad, model, step):
    """Where only all ranks together know the newest, synchronize() opens to changes."""
    step(*batch(0))
    step.synchronize()
    with torch.no_grad():
        model[2].bias.fill_(100.0)
    step(*batch(1))
    step.synchronize()
    assert model[2].bias.min() > 90


def train_from(folder, out=None):
    """A step after a load and a change; and in between, when ranks talk already, what is called."""
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ad = autodist.AutoDist("local:2", builder=builder)
    with ad.distribute(model, mse, optimizer, EXAMPLE) as step:
        if what == "begun":
            step(*batch(0))
            step.save(folder)
        else:
            assert step.load(folder) == 1
        if what not in ("begun", "loaded"):
            assert step.sum_over_ranks([1.0]) == [2.0]
            with torch.no_grad():
                model[2].bias.fill_(100.0)
            if what == "saved":
                step.save(os.path.join(folder, "saved"))
            if what == "synchronized":
                step.synchronize()
            step(*batch(1))
    if step.is_chief and out is not None:
        torch.save(model.state_dict(), out)


what, builder = sys.argv[1], sys.argv[2]
if len(sys.argv) > 3:
    train_from(*sys.argv[3:])
elif what == "loop":
    expect_loop(builder)
elif what == "momentum":
    expect_momentum()
else:
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    builder = "PS:sync=false" if what == "asynchronous" else builder
    ad = autodist.AutoDist("local:2", builder=builder)
    session = ad.distribute(model, mse, optimizer, EXAMPLE)
    globals()[f"expect_{what}"](ad, model, session)
    if what in ("structure", "asynchronous"):
        session.finish()
    else:
        session.close()
        os._exit(0)  # the job has ended with an error, which the test wanted
