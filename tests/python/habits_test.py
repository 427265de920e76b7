"""What loops around a model are used to do: a loss among tensors, parameters that no step uses beside a
scheduler, batches with attributes, classes as one-hot rows, `functional_call`, a teacher that follows the model,
a last batch that is too small for a batch norm on each rank;
and what is said of an optimizer whose state a session has. Compared with plain PyTorch.
"""

import collections
import copy
import dataclasses
import functools
import sys
import warnings

import comparing

comparing.skip_without_torch()

import numpy
import torch
from torch import nn
from torch.nn import functional

if len(sys.argv) == 1:  # the test; else a rank of the job
    for what in ("attributes", "derived", "cached", "one-hot", "teacher", "norm"):
        difference = comparing.result_of(__file__, what)
        print(f"{what}: {difference:.1e}")
        assert difference < 1e-12, difference
    comparing.result_of(__file__, "refusals")
    for builder, how, told in (("PS", "alike", 0), ("PS", "apart", 1), ("PS", "own rows", 0),
                               ("AllReduce:algorithm=ring", "apart", 1), ("PS:sync=false", "apart", 0)):
        said = comparing.run(__file__, "shuffled", builder, how).stderr
        assert said.count("have given it different batches") == told, (builder, how, said)
    sys.exit(0)

import autodist


class Attributes(dict):
    """Its items are its attributes, too, as of EasyDict."""

    def __init__(self, **items):
        super().__init__(**items)
        self.__dict__ = self


@dataclasses.dataclass
class Derived:
    x: torch.Tensor
    y: torch.Tensor

    def __post_init__(self):
        self.doubled = 2 * self.x


@dataclasses.dataclass
class Cached:
    x: torch.Tensor
    y: torch.Tensor

    @functools.cached_property
    def doubled(self):
        return 2 * self.x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.pooler = nn.Linear(4, 4)  # nobody calls it

    def forward(self, x):
        return self.head(x)


def loss_of(model, batch):
    x = batch.x if isinstance(batch, Attributes) else batch.doubled
    return functional.mse_loss(model(x), functional.one_hot(batch.y, 3).to(x.dtype))


def one_hot_loss(model, x, y):
    # As ensembles and meta-learning do: the same module with other values of its parameters.
    with torch.profiler.record_function("forward"):
        model(x)
    shifted = torch.nn.utils.stateless.functional_call(model, {"head.bias": model.head.bias + 1}, (x,))
    picked = functional.one_hot(y, 3) * functional.log_softmax(model(x) + 0.1 * shifted, -1)
    return -picked.sum(-1).mean()


def batch_of(what, x, y):
    if what == "one-hot":
        return (x, y)
    batch = {"attributes": Attributes, "derived": Derived, "cached": Cached}[what](x=x, y=y)
    if what == "cached":
        batch.doubled  # read once, as by whoever looks at the example
    return batch


def data():
    torch.manual_seed(3)
    return [(torch.randn(8, 4).double(), torch.randint(0, 3, (8,))) for _ in range(6)]


def made():
    torch.manual_seed(4)
    model = Model().double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


def plain(loss_fn, what):
    model, optimizer, schedule = made()
    losses = []
    for x, y in data():
        batch = batch_of(what, x, y)
        losses.append(comparing.plain_step(model, loss_fn, optimizer, *(batch if what == "one-hot" else (batch,))))
        schedule.step()
    return model, losses


def trains(what):
    loss_fn = one_hot_loss if what == "one-hot" else loss_of
    model, optimizer, schedule = made()
    ad = autodist.AutoDist("local:2", builder="PS")
    losses = []
    with ad.distribute(model, loss_fn, optimizer, batch_of(what, *(each[:4] for each in data()[0]))) as step:
        for x, y in data():
            mine = slice(*(step.rows_of(8).start, step.rows_of(8).stop))
            batch = batch_of(what, x[mine], y[mine])
            losses.append(step.run_local(*batch) if what == "one-hot" else step.run_local(batch))
            schedule.step()
        total = torch.zeros(())
        for loss in losses:
            total += loss
        assert torch.equal(torch.stack(losses), torch.tensor([float(loss) for loss in losses]))
        assert abs(total.item() - sum(losses)) < 1e-5 and torch.isfinite(losses[0]) and losses[0].cpu().dim() == 0
        assert numpy.array(losses).dtype == float and numpy.isfinite(losses[0])
    theirs, expected = plain(loss_fn, what)
    worst = comparing.largest_difference(model.state_dict(), theirs.state_dict())
    return max(worst, *(abs(float(a) - b) for a, b in zip(losses, expected))), ad.is_chief


class OverGraph(nn.Module):
    """Features of nodes, passed on along the edges of a fixed graph, which is a sparse buffer."""

    def __init__(self):
        super().__init__()
        edges = torch.tensor([[0, 1, 1, 2, 3], [1, 0, 2, 3, 0]])
        self.register_buffer("edges", torch.sparse_coo_tensor(edges, torch.rand(5), (4, 4)).coalesce())
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(torch.sparse.mm(self.edges, x.t()).t())


def follow(teacher, model):
    with torch.no_grad():
        for its, mine in zip(teacher.parameters(), model.parameters()):
            its.lerp_(mine, 0.3)


def taught():
    """A teacher outside of the model, which the loop moves after it between steps, and nobody has frozen."""

    def made():
        torch.manual_seed(4)
        model, other = OverGraph().double(), nn.Linear(4, 3).double()
        teacher = copy.deepcopy(model)

        def loss_fn(model, x):
            with torch.no_grad():
                seen = teacher(x + 1)
            return functional.mse_loss(model(x), seen + other(x).detach())

        return model, teacher, loss_fn, torch.optim.Adam(model.parameters(), lr=0.1)

    model, teacher, loss_fn, optimizer = made()
    ad = autodist.AutoDist("local:2", builder="PS")
    with ad.distribute(model, loss_fn, optimizer, data()[0][0][:4]) as step:
        losses = []
        for x, _ in data():
            losses.append(float(step(x)))
            follow(teacher, model)
        edges = model.edges
        model.edges = edges.clone()
        comparing.refused("the sparse buffer 'edges' is another one", step, x)
        model.edges = edges
    theirs, teacher, loss_fn, optimizer = made()
    expected = []
    for x, _ in data():
        expected.append(comparing.plain_step(theirs, loss_fn, optimizer, x))
        follow(teacher, theirs)
    worst = comparing.largest_difference(dict(model.named_parameters()), dict(theirs.named_parameters()))
    return max(worst, *(abs(a - b) for a, b in zip(losses, expected))), ad.is_chief


def normed():
    """A batch norm, which needs two rows, and a last batch of three on two ranks: one has all of them."""

    def made():
        torch.manual_seed(4)
        model = nn.Sequential(nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)).double()
        return model, torch.optim.Adam(model.parameters(), lr=0.1)

    def loss_fn(model, x, y):
        return functional.cross_entropy(model(x), y)

    batches = [*data(), *((x[:3], y[:3]) for x, y in data()[:2])]
    model, optimizer = made()
    ad = autodist.AutoDist("local:2", builder="PS")
    with ad.distribute(model, loss_fn, optimizer, tuple(each[:4] for each in data()[0])) as step:
        losses = [float(step(x, y)) for x, y in batches]
        assert (step.rows_of(3), step.rows_of(5)) == ((range(3), range(3)) if ad.is_chief
                                                      else (range(0), range(3, 5)))
    theirs, optimizer = made()
    expected = []
    for x, y in batches:
        optimizer.zero_grad()
        parts = [slice(0, 4), slice(4, 8)] if len(x) == 8 else [slice(0, 3)]
        loss = sum(loss_fn(theirs, x[part], y[part]) for part in parts) / len(parts)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    worst = comparing.largest_difference(dict(model.named_parameters()), dict(theirs.named_parameters()))
    return max(worst, *(abs(a - b) for a, b in zip(losses, expected))), ad.is_chief


def refusals():
    refused = comparing.refused
    torch.manual_seed(8)
    model = nn.Linear(4, 1)
    x, y = torch.randn(8, 4), torch.randn(8, 1)
    mse = lambda m, x, y: functional.mse_loss(m(x), y)
    alone = lambda: autodist.AutoDist("local:1", builder="PS")
    other = type("Other", (dict,), {})(x=x)
    other.mask = x
    refused("example_batch.mask is a tensor beside the items", alone().distribute, model,
            lambda m, b: m(b["x"]).sum(), "sgd", other)
    refused("is a SyncBatchNorm", alone().distribute, nn.Sequential(nn.SyncBatchNorm(4)),
            lambda m, x: m(x).sum(), "sgd", (x,))
    optimizer = torch.optim.Adam(model.parameters())
    step = alone().distribute(model, mse, optimizer, (x, y))
    step.keep("optimizer", optimizer)
    step(x, y)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        step.save(sys.argv[2] + ".saved")  # asks for the options, which are what is kept
        assert not told, [str(each.message) for each in told]
        state = optimizer.state_dict()
        optimizer.state_dict()
    assert len(told) == 1 and "state_dict() has the options alone" in str(told[0].message), told
    if hasattr(torch.nn.utils, "clip_grads_with_norm_"):
        refused("clip_grads_with_norm_: a session of AutoDist trains 'weight'",
                torch.nn.utils.clip_grads_with_norm_, model.parameters(), 1.0, torch.tensor(2.0))
    state["state"] = {0: {"step": torch.tensor(1.0)}}
    refused("has the state that it goes on with", optimizer.load_state_dict, state)
    if hasattr(optimizer, "register_step_post_hook"):
        hook = optimizer.register_step_post_hook(lambda *_: None)
        refused("it has got a step_post_hook", step, x, y)
        hook.remove()
    step.finish()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with alone().distribute(model, mse, optimizer, (x, y)) as step:
            step(x, y)
    assert len(told) == 1 and "this one begins anew unless resume() loads a state" in str(told[0].message), told
    odd_batches(alone)
    other = nn.Linear(4, 1)
    nadam = torch.optim.NAdam(other.parameters())
    with alone().distribute(other, mse, nadam, (x, y)) as step:
        step(x, y)
        nadam.param_groups[0]["betas"] = (0.8, 0.999)
        refused("NAdam's betas and momentum_decay have changed", step, x, y)
        nadam.param_groups[0]["betas"] = (0.9, 0.999)
    looked_up_twice(alone)
    return 0.0


@dataclasses.dataclass
class Scaled:
    """It changes what it is given, and is never made anew."""

    x: torch.Tensor
    y: torch.Tensor

    def __post_init__(self):
        self.x = 10 * self.x
        self.rows = len(self.x)


def odd_batches(alone):
    """What is beside tensors stays; what a session does not train may be frozen; a scalar of the model's may
    be read from outside."""
    x, y = torch.randn(8, 4), torch.randn(8, 1)
    model = nn.Linear(4, 1)
    losses = {}
    batches = {"scaled": Scaled(x, y), "user": collections.UserDict(data=x, target=y)}
    batches["scaled"].factor = 2.0
    for what, batch in batches.items():
        def loss_fn(m, b):
            if isinstance(b, Scaled):
                return functional.mse_loss(m(b.x) * b.factor, b.y) / b.rows
            return functional.mse_loss(m(b["data"]), b["target"])

        with torch.no_grad():
            expected = loss_fn(model, batch).item()
        with alone().distribute(model, loss_fn, "sgd:lr=0", batch) as step:
            losses[what] = float(step(batch))
        assert abs(losses[what] - expected) < 1e-5 * expected, (what, losses[what], expected)
    scale = nn.Parameter(torch.tensor(1.0))
    model = nn.ModuleDict({"body": nn.Linear(4, 1)})
    model.scale = scale
    steps = alone().distribute_steps(
        train=autodist.TrainingStep(model, lambda m, x, y: functional.mse_loss(m["body"](x), y) * scale,
                                    torch.optim.SGD(model.parameters(), lr=1e-4), (x, y)),
        look=autodist.TrainingStep(model, lambda m, x, y: functional.mse_loss(m["body"](x), y), None, (x, y)))
    with steps:
        for _ in range(30):
            steps["train"](x, y)
        model.requires_grad_(False)
        steps["look"](x, y)
        model.requires_grad_(True)
        steps["train"](x, y)


def looked_up_twice(alone):
    """One table's sparse gradient is a sum, whose entries follow from which indices meet."""
    table, theirs = (nn.Embedding(12, 3, sparse=True).double() for _ in range(2))
    theirs.load_state_dict(table.state_dict())
    loss_fn = lambda model, i, j: (model(i) * model(j) - model(i % 5)).square().mean()
    plain = torch.optim.SGD(theirs.parameters(), lr=0.5)
    batches = [torch.randint(12, (2, 1 if number % 4 == 3 else 6)) for number in range(40)]
    with alone().distribute(table, loss_fn, "sgd:lr=0.5", (*batches[0],)) as step:
        for batch in batches:
            expected = comparing.plain_step(theirs, loss_fn, plain, *batch)
            assert abs(float(step(*batch)) - expected) < 1e-12, expected
    assert comparing.largest_difference(table.state_dict(), theirs.state_dict()) < 1e-12


def shuffled(builder, how):
    """The ranks shuffle alike, or not, and give the whole batch, or rows of their own."""
    x, y = torch.randn(8, 4), torch.randn(8, 1)
    ad = autodist.AutoDist("local:2", builder=builder)
    torch.manual_seed(5 if how == "alike" else ad.rank)
    with ad.distribute(nn.Linear(4, 1), lambda m, x, y: functional.mse_loss(m(x), y), "sgd", (x, y)) as step:
        for _ in range(4):
            (step.run_local if how == "own rows" else step)(torch.randn(8, 4), torch.randn(8, 1))


def main(what, *others):
    if what == "shuffled":
        shuffled(*others)
        return
    out = others[0]
    if what == "refusals":
        torch.save(refusals(), out)
        return
    functions = {"teacher": taught, "norm": normed}
    difference, is_chief = functions[what]() if what in functions else trains(what)
    if is_chief:
        torch.save(difference, out)


main(*sys.argv[1:])
