"""Optimizers that are none of AutoDist's rules: their own step updates, with the averaged gradients."""

import copy
import os
import sys
import tempfile
import warnings

import comparing

comparing.skip_without_torch()

import torch

RANKS = 2
STEPS = 8
BUILDERS = ["PS", "PartitionedPS", "AllReduce", "AllReduce:algorithm=ring", "PS:staleness=1",
            "PS:results=asked", "AllReduce:algorithm=library", "auto"]

if len(sys.argv) > 1:  # a rank of a job
    CASE, OUT, *MORE = sys.argv[1:]

import autodist
from autodist import _optimizers
from torch import nn

from cases import mse

optim = torch.optim
IS_2 = not torch.__version__.startswith("1.")


class Orthogonal(optim.Optimizer):
    """As Muon: a step along the orthogonal matrix next to the momentum's. It needs whole matrices."""

    def __init__(self, parameters, lr=0.02, momentum=0.9):
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for each in filter(lambda p: p.grad is not None, group["params"]):
                state = self.state[each]
                if "moved" not in state:
                    state["moved"] = torch.zeros_like(each)
                state["moved"].mul_(group["momentum"]).add_(each.grad)
                u, _, vt = torch.linalg.svd(state["moved"], full_matrices=False)
                each.sub_(u @ vt, alpha=group["lr"])


class Lion(optim.AdamW):
    """One of torch.optim's that computes something else."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for each in filter(lambda p: p.grad is not None, group["params"]):
                moved = self.state[each].setdefault("exp_avg", torch.zeros_like(each))
                each.mul_(1 - group["lr"] * group["weight_decay"])
                each.sub_(torch.lerp(each.grad, moved, 0.9).sign(), alpha=group["lr"])
                moved.lerp_(each.grad, 0.01)


class Noisy(optim.SGD):
    """It draws, and has an option that no checkpoint keeps."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        for group in self.param_groups:
            for each in group["params"]:
                each.add_(torch.randn_like(each), alpha=1e-3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 9)
        self.norm = nn.BatchNorm1d(9)
        self.second = nn.Linear(9, 3)
        self.unused = nn.Parameter(torch.ones(4))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x):
        return self.second(torch.tanh(self.norm(self.first(x)))) * self.frozen


def make(seed=7):
    torch.manual_seed(seed)
    return Net().double()


def batch(number, rows=12):
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(rows, 5, generator=generator).double()
    return x, x[:, :3] + torch.randn(rows, 3, generator=generator).double()


def matrices_and_others(model):
    trained = [each for each in model.parameters() if each.requires_grad]
    return [Orthogonal([each for each in trained if each.dim() == 2]),
            optim.AdamW([each for each in trained if each.dim() != 2], lr=0.01)]


def trained(model, optimizer):
    """A step of one that it has made before."""
    mse(model, *batch(100)).backward()
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


def with_hook(optimizer):
    optimizer.register_step_post_hook(
        lambda each, arguments, keywords: [p.data.clamp_(-0.4, 0.4) for p in each.param_groups[0]["params"]])
    return optimizer


CASES = {
    "orthogonal and AdamW": matrices_and_others,
    "Lion": lambda model: Lion(model.parameters(), lr=0.01),
    "a class": lambda model: lambda parameters: optim.ASGD(parameters, lr=0.05),
    "Rprop": lambda model: optim.Rprop(model.parameters(), lr=0.01),
    "maximize": lambda model: optim.SGD(model.parameters(), lr=0.01, momentum=0.9, maximize=True),
    "trained": lambda model: trained(model, optim.Adam(model.parameters(), lr=0.01)),
}
if IS_2:
    CASES["a hook"] = lambda model: with_hook(optim.SGD(model.parameters(), lr=0.1))
    if hasattr(optim, "Adafactor"):
        CASES["Adafactor"] = lambda model: optim.Adafactor(model.parameters(), lr=0.05)


def plain(model, made, steps, clip=None, scheduler=None):
    """Plain PyTorch's losses."""
    held = [each for each in model.parameters() if each.requires_grad]
    made = made(held) if not isinstance(made, (list, optim.Optimizer)) else made
    optimizers = made if isinstance(made, list) else [made]
    schedulers = [scheduler(each) for each in optimizers] if scheduler else []
    losses = []
    for number in range(steps):
        loss = mse(model, *batch(number))
        for each in optimizers:
            each.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(held, clip)
        for each in (*optimizers, *schedulers):
            each.step()
        losses.append(loss.item())
    return losses


def check(name, case):
    """One rank has plain PyTorch's parameters, gradients and states."""
    ours, theirs = make(), make()
    made, other = case(ours), case(theirs)
    with autodist.AutoDist().distribute(ours, mse, made, batch(0)) as step:
        losses = [float(step(*batch(number))) for number in range(STEPS)]
    expected = plain(theirs, other, STEPS)
    difference = comparing.largest_difference(ours.state_dict(), theirs.state_dict())
    print(f"{difference:.1e}  {name}")
    assert difference < 1e-12, name
    assert max(abs(a - b) for a, b in zip(losses, expected)) < 1e-12, (name, losses, expected)
    assert ours.unused.grad is None and ours.frozen.grad is None
    assert torch.allclose(ours.first.weight.grad, theirs.first.weight.grad, atol=1e-12)
    if isinstance(made, optim.Optimizer):  # its state is its own, and it may go on
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert made.state_dict()["state"].keys() == other.state_dict()["state"].keys()
            trained(ours, made)


def refused(words, make_optimizer):
    model = make()
    comparing.refused(words, autodist.AutoDist().distribute, model, mse, make_optimizer(model), batch(0))


def halves(job):
    """What one replica gets."""
    return tuple(each[: each.shape[0] // job.size] for each in batch(0))


def without_norm(model):
    model.norm = nn.Identity()  # whose statistics would be those of half a batch
    return model


def schedule(optimizer):
    return optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


def clip_of(builder):
    return None if "stale" in builder else 0.5  # a clip needs every step's gradients at once


def run_train():
    """Under a builder's plan, or a search's, which tries others, too."""
    model = without_norm(make())
    made = matrices_and_others(model)
    options = {"budget": "30"} if MORE[0] == "auto" else {"builder": MORE[0]}
    if MORE[0].endswith("library"):
        options["encrypt"] = "off"
    job = autodist.AutoDist(f"local:{RANKS}", **options)
    with job.distribute(model, mse, made, halves(job), clip=clip_of(MORE[0])) as step:
        schedulers = [schedule(each) for each in made]
        losses, plans = [], set()
        for number in range(40 if MORE[0] == "auto" else STEPS):
            if number == 5:
                fetched = step.run_and_fetch(["loss", "first.weight"], *batch(number))
                losses.append(fetched["loss"].item())
                assert torch.equal(fetched["first.weight"], model.first.weight)
            else:
                losses.append(float(step(*batch(number))))
            plans.add(step.strategy.id)
            assert step.lr == made[0].param_groups[0]["lr"]
            for each in schedulers:
                each.step()
            if number == 3 and MORE[0] == "PS":
                step.change_plan("PartitionedAR")
                comparing.raised(autodist.UsageError, "leave this call out", made[0].step)
        if step.is_chief:
            torch.save({"losses": losses, "plans": len(plans), "state": model.state_dict()}, OUT)


def run_scaled():
    """A step that the loss scale skips calls nobody; the chief saves alone, which is due later."""
    model = make()
    made = optim.Rprop(model.parameters(), lr=0.01)
    job = autodist.AutoDist(f"local:{RANKS}", builder="PS",
                            loss_scaling="dynamic:scale=1024,growth=2,backoff=0.5,interval=3")
    seen, weights = [], {}
    with job.distribute(model, mse, made, halves(job)) as step:
        for number in range(STEPS):
            x, y = batch(number)
            if number == 4:
                y = y.clone()
                y[-1] = float("inf")
            before = model.first.weight.detach().clone()
            step(x, y)
            seen.append(torch.equal(before, model.first.weight))
            weights[step.step] = model.first.weight.detach().clone()
            if number == 1 and step.is_chief:
                step.save(MORE[0])
        if step.is_chief:
            torch.save(weights, OUT)
    assert seen == [number == 4 for number in range(STEPS)], seen


def run_resumed():
    """A checkpoint has the states of optimizers; the first run ends in the middle."""
    model = make()
    made = matrices_and_others(model)
    model.unused.grad = torch.ones_like(model.unused)  # which no step makes anew
    job = autodist.AutoDist(f"local:{RANKS}", builder="PartitionedPS")
    with job.distribute(model, mse, made, halves(job)) as step:
        begun = step.resume(MORE[0]) if MORE else 0
        losses = []
        for number in range(begun, STEPS):
            losses.append(float(step(*batch(number))))
            if not MORE and number == 2:
                step.run_local(*(each[:0] for each in batch(0)))  # nobody has rows: nothing changes
                comparing.raised(autodist.UsageError, "is asynchronous", step.change_plan, "PS:sync=false")
            if MORE and not begun and number == STEPS // 2:
                step.save(MORE[0])
                break
        assert torch.equal(model.unused, torch.ones_like(model.unused))
        if step.is_chief:
            torch.save({"losses": losses, "state": model.state_dict()}, OUT)


def run_several():
    """Two steps over one set of variables, each with optimizers of its own."""
    torch.manual_seed(7)
    model = nn.ModuleDict({"a": nn.Linear(5, 5), "b": nn.Linear(5, 3)}).double()

    def loss(model, x, y):
        return (model["b"](torch.tanh(model["a"](x))) - y).square().mean()

    job = autodist.AutoDist(f"local:{RANKS}", builder="PS")
    first = autodist.TrainingStep(model, loss, Lion(model["a"].parameters(), lr=0.01), halves(job))
    second = autodist.TrainingStep(model, loss, optim.Adam(model["b"].parameters(), lr=0.01), halves(job))
    theirs = copy.deepcopy(model)
    others = [Lion(theirs["a"].parameters(), lr=0.01), optim.Adam(theirs["b"].parameters(), lr=0.01)]
    with job.distribute_steps(first=first, second=second) as steps:
        for number in range(STEPS):
            for name, other in (("first", others[0]), ("second", others[1])):
                found = float(steps[name](*batch(number)))
                expected = loss(theirs, *batch(number))
                assert abs(found - expected.item()) < 1e-12, (number, name, found, expected)
                theirs.zero_grad()
                expected.backward()
                other.step()
        steps.synchronize()
        assert comparing.largest_difference(model.state_dict(), theirs.state_dict()) < 1e-12


def run_noisy():
    """What an optimizer draws is the same at all ranks; what it does besides is not in its way."""
    model = without_norm(make())
    made = Noisy(model.parameters(), lr=0.1)
    made.param_groups[0]["type"], made.param_groups[0]["call"] = torch.float64, mse
    torch.manual_seed(os.getpid())
    job = autodist.AutoDist(f"local:{RANKS}", builder="AllReduce")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        step = job.distribute(model, mse, made, halves(job))
    words = "['call'] is a function; tensors"
    assert [words in str(each.message) for each in said].count(True) == 1, said
    with step:
        losses = [float(step(*batch(number))) for number in range(STEPS)]
        if step.is_chief:
            torch.save({"losses": losses}, OUT)


def run_differs():
    """A rank whose optimizer computes something else is named."""
    model = make(seed=7)
    job = autodist.AutoDist(f"local:{RANKS}", builder="AllReduce")
    made = Orthogonal([each for each in model.parameters() if each.dim() == 2], lr=0.02 + job.rank)
    for each in model.parameters():
        each.requires_grad_(each.dim() == 2)
    step = job.distribute(model, mse, made, halves(job))
    step(*batch(0))
    comparing.raised(autodist.UsageError, "different values", step.change_plan, "PS")
    comparing.raised(autodist.Error, "the ranks disagree: 'first.weight' is changed", step, *batch(1))
    step.close("as expected")


def main():
    for name, case in CASES.items():
        check(name, case)
    refused("LBFGS.step needs 'closure'", lambda model: optim.LBFGS(model.parameters()))
    refused("does not hold 'unused'", lambda model: matrices_and_others(model)[:1])
    refused("gets dense ones", lambda model: [optim.SparseAdam(list(model.parameters()))])
    refused("several of the list hold 'first.weight'",
            lambda model: [Lion(model.parameters()), Lion([model.first.weight])])
    model = make()
    comparing.refused("is asynchronous", autodist.AutoDist(builder="PS:sync=false").distribute, model, mse,
                      Lion(model.parameters()), batch(0))
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.pt")
        for builder in BUILDERS:
            if comparing.is_left_out(builder):
                continue
            comparing.run(__file__, "train", out, builder)
            found = torch.load(out)
            theirs = without_norm(make())
            expected = plain(theirs, matrices_and_others(theirs), len(found["losses"]), clip_of(builder),
                             schedule)
            assert comparing.largest_difference(found["state"], theirs.state_dict()) < 1e-10, builder
            assert max(abs(a - b) for a, b in zip(found["losses"], expected)) < 1e-10, (builder, found, expected)
            print(f"two ranks under {builder}: equal, {found['plans']} plans")
        comparing.run(__file__, "resumed", out)
        whole = torch.load(out)
        saved = os.path.join(folder, "saved")
        comparing.run(__file__, "resumed", out, saved)
        begun = torch.load(out)["losses"]
        comparing.run(__file__, "resumed", out, saved)
        found = torch.load(out)
        assert begun + found["losses"] == whole["losses"], (begun, found["losses"], whole["losses"])
        assert all(torch.equal(found["state"][name], each) for name, each in whole["state"].items())
        print("a checkpoint: goes on as it would have")
        saved = os.path.join(folder, "alone")
        comparing.run(__file__, "scaled", out, saved)
        (name,) = os.listdir(saved)
        model = make(seed=8)
        with autodist.AutoDist(initial_weights=os.path.join(saved, name, "model.safetensors")).distribute(
                model, mse, "sgd", batch(0)):
            assert torch.equal(model.first.weight, torch.load(out)[int(name.split("-")[1])]), name
        print(f"a step that is skipped, and {name}, which the chief has asked for alone: as they should be")
        noisy = []
        for _ in range(2):
            comparing.run(__file__, "noisy", out)
            noisy.append(torch.load(out)["losses"])
        assert noisy[0] == noisy[1], noisy
        print("an optimizer that draws: alike at all ranks, and in two runs")
    for case in ("several", "differs"):
        comparing.run(__file__, case, "")
        print(f"{case}: as it should")


if len(sys.argv) > 1:
    globals()["run_" + CASE]()
else:
    main()
