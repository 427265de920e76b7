"""What a step reads and does not train: settings, tensors and modules that change behind the steps that are
compared anyway, in the model and outside of it. Followed as in plain PyTorch, or refused by name.
"""

import argparse
import copy
import sys
import types

import comparing

comparing.skip_without_torch()

import autodist
import torch
from torch import nn
from torch.nn import functional


def alone():
    return autodist.AutoDist("local:1", builder="PS")


class Tempered(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)
        self.temperature = 1.0
        self.seen = 0
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        return self.head(self.body(x)) * self.temperature * self.scale


def late_changes():
    """Behind the steps that are compared anyway."""
    refused = comparing.refused
    model, (x, y) = Tempered(), (torch.randn(8, 4), torch.randn(8, 1))
    mse = lambda m, x, y: functional.mse_loss(m(x), y)
    with alone().distribute(model, mse, "sgd:lr=0.001", (x, y)) as step:
        for model.seen in range(30):  # changes nothing of the step
            step(x, y)
        model.scale = torch.full((1,), 3.0)  # another tensor: its values are taken
        with torch.no_grad():
            expected = mse(model, x, y).item()
        assert abs(float(step(x, y)) - expected) < 1e-5 * expected, (float(step.local_loss), expected)
        head, model.head = model.head, nn.Linear(4, 1)
        refused(["no longer does what was captured", "model.head is another Linear"],
                lambda: [step(x, y) for _ in range(200_000)])
        model.head = head
        model.body.weight.requires_grad_(False)
        refused("'body.weight' was trained when the step was captured", step, x, y)
        model.body.weight.requires_grad_(True)
        model.temperature = 2.0
        refused(["no longer does what was captured", "model.temperature was 1.0 and is 2.0"],
                lambda: [step(x, y) for _ in range(200_000)])


class Criterion(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = 0.0
        self.register_buffer("centre", torch.zeros(1))

    def forward(self, results, y):
        return functional.mse_loss(results + self.centre, y) + self.weight * results.square().mean()


class Closed:
    def __getattribute__(self, name):
        raise AssertionError(f"nobody asks for {name}")


class Task:
    """What a loss function reads that is no variable of it."""

    def __init__(self):
        self.options = argparse.Namespace(weight=0.0)
        self.criterion = Criterion()
        self.offset = torch.zeros(1)
        self.teachers = {"now": nn.Linear(4, 1)}
        self.at = SETTINGS
        self.closed, self.itself = Closed(), self
        self.log = []  # changes in every step, and is no part of it

    @property
    def penalty(self):
        raise AssertionError("nobody asks for it")

    def loss(self, model, x, y):
        results = model(x)
        with torch.no_grad():
            taught = self.teachers["now"](x)
        loss = self.criterion(results + self.offset, y) + functional.mse_loss(results, taught)
        return loss + (self.options.weight + scale()) * results.square().mean()


SETTINGS = types.SimpleNamespace(scale=1.0)


def scale():
    return SETTINGS.scale


def deep_changes():
    """One object deeper than variables, and behind the steps that are compared anyway."""
    x, y = torch.randn(8, 4), torch.randn(8, 1)
    changes = {
        "self.options.weight was 0.0 and is 1.0": lambda task: setattr(task.options, "weight", 1.0),
        "self.criterion.weight was 0.0 and is 1.0": lambda task: setattr(task.criterion, "weight", 1.0),
        "self.criterion.centre is another Tensor": lambda task: setattr(task.criterion, "centre", torch.ones(1)),
        "self.offset is another Tensor": lambda task: setattr(task, "offset", torch.ones(1)),
        "self.teachers['now'] is another Linear": lambda task: task.teachers.update(now=nn.Linear(4, 1)),
        "self.at.scale was 1.0 and is 2.0": lambda task: setattr(SETTINGS, "scale", 2.0),
    }
    for words, change in changes.items():
        task = Task()
        with alone().distribute(nn.Linear(4, 1), task.loss, "sgd:lr=0.001", (x, y)) as step:
            for _ in range(30):
                task.log.append(step(x, y))
            change(task)
            comparing.refused(["no longer does what was captured", words],
                              lambda: [step(x, y) for _ in range(200_000)])
            assert step.step < 1000, step.step  # a look has found it
    SETTINGS.scale = 1.0
    # What no look finds is compared all the same, ever more seldom.
    def unseen(model, x, y):
        return functional.mse_loss(model(x), y) * sys.modules["argparse"].__dict__.get("_of_test", 1.0)

    with alone().distribute(nn.Linear(4, 1), unseen, "sgd:lr=0.001", (x, y)) as step:
        for _ in range(30):
            step(x, y)
        argparse._of_test = 2.0
        comparing.refused(["no longer does what was captured"], lambda: [step(x, y) for _ in range(1000)])
    del argparse._of_test


def with_teachers():
    """A model with a frozen teacher, a second one outside of it, their loss, and the optimizer."""
    torch.manual_seed(3)
    student = nn.Linear(4, 2)
    model = nn.ModuleDict({"student": student, "teacher": copy.deepcopy(student)}).double()
    model["teacher"].requires_grad_(False)
    outside = copy.deepcopy(model["student"])  # nobody has frozen it

    def loss_fn(model, x):
        with torch.no_grad():
            other = outside(x)
        return (3 * model["student"](x) - model["teacher"](x) - other).square().mean()

    return model, outside, loss_fn, torch.optim.SGD(model["student"].parameters(), lr=0.05)


def as_plain_loops(between):
    """`between` (number, model, outside) changes things before steps, as in a loop without AutoDist."""
    batches = [torch.randn(6 if i % 7 else 4, 4).double() for i in range(60)]
    model, outside, loss_fn, optimizer = with_teachers()
    theirs, their_outside, their_loss, plain = with_teachers()
    with alone().distribute(model, loss_fn, optimizer, (batches[1],)) as step:
        for number, x in enumerate(batches):
            between(number, model, outside)
            between(number, theirs, their_outside)
            loss, expected = float(step(x)), comparing.plain_step(theirs, their_loss, plain, x)
            assert abs(loss - expected) < 1e-12, (number, loss, expected)
    assert comparing.largest_difference(model.state_dict(), theirs.state_dict()) < 1e-12
    assert comparing.largest_difference(outside.state_dict(), their_outside.state_dict()) < 1e-12


def late_teachers():
    """Frozen tensors, in the model and outside of it, that get other storage between steps."""

    def move(number, model, outside):
        if 0 < number <= 24:  # the steps that are compared anyway, and some more
            return
        for teacher in (model["teacher"], outside):
            for to, of in zip(teacher.parameters(), model["student"].parameters()):
                to.data = to.data * 0.9 + of.data * 0.1

    as_plain_loops(move)


def kept_storage():
    """What a tensor was before is kept by somebody, and comes back as it was left."""
    kept = {}

    def swap(number, model, outside):
        tensors = [*model.parameters(), *outside.parameters()]
        if number % 4 == 2:
            kept[model] = [each.data for each in tensors]
            for each in tensors:
                each.data = each.data * 0.5
        elif number % 4 == 3:
            for each, before in zip(tensors, kept.pop(model)):
                each.data = before

    as_plain_loops(swap)


def shared_storage():
    """New storage that somebody else has, too, and what cannot be followed."""
    x = torch.randn(8, 4)
    model = nn.ModuleDict({"student": nn.Linear(4, 2), "teacher": nn.Linear(4, 2).requires_grad_(False)})
    offset = torch.zeros(2)

    def loss_fn(model, x):
        return (model["student"](x) - model["teacher"](x) + offset).square().mean()

    def expect_as_now(step):
        with torch.no_grad():
            expected = float(loss_fn(model, x))
        assert abs(float(step(x)) - expected) < 1e-5 * expected, (float(step.local_loss), expected)

    student, teacher = model["student"], model["teacher"]
    with alone().distribute(model, loss_fn, "sgd:lr=0.01", (x,)) as step:
        for _ in range(25):
            step(x)
        shared = torch.full((2,), 3.0)
        teacher.bias.data = shared
        expect_as_now(step)
        shared.fill_(5.0)  # it is the teacher's
        expect_as_now(step)
        offset.set_(torch.full((4,), 2.0)[::2])
        expect_as_now(step)
        expect_as_now(step)
        own, teacher.bias.data = teacher.bias.data, student.bias.data
        comparing.refused(["'teacher.bias'", "memory of a parameter", "copy_"], step, x)
        teacher.bias.data = own.double()
        comparing.refused(["'teacher.bias'", "was f32 [2] on cpu and is f64 [2]"], step, x)
        teacher.bias.data = own
        expect_as_now(step)
        comparing.refused(["'weight' is read by a live session", "copy_"], setattr, teacher, "weight",
                          nn.Parameter(torch.zeros(2, 4), requires_grad=False))
        offset.data = torch.zeros(3)
        comparing.refused(["a tensor outside of the model", "copy_"], step, x)
        offset.data = torch.zeros(2)
        expect_as_now(step)


def storage_of_two_steps():
    """Both train the model whose parameter gets other storage before one of them."""
    x, y = torch.randn(8, 4), torch.randn(8, 1)
    losses = {"one": lambda m, x, y: functional.mse_loss(m(x), y),
              "two": lambda m, x, y: functional.l1_loss(m(x), y)}
    for order in (("one", "two"), ("two", "one")):
        model, plain = nn.Linear(4, 1), nn.Linear(4, 1)
        plain.load_state_dict(model.state_dict())
        make = lambda name: autodist.TrainingStep(
            model, losses[name], torch.optim.SGD(model.parameters(), lr=0.1), (x, y))
        descent = torch.optim.SGD(plain.parameters(), lr=0.1)
        with alone().distribute_steps(one=make("one"), two=make("two")) as steps:
            for _ in range(3):
                for each in (model, plain):
                    each.weight.data = torch.full((1, 4), 0.5)
                for name in order:
                    loss = losses[name](plain, x, y)
                    descent.zero_grad()
                    loss.backward()
                    descent.step()
                    assert abs(float(steps[name](x, y)) - float(loss)) < 1e-6, (order, name)
        assert torch.allclose(model.weight, plain.weight, atol=1e-6), order


class Momentum(nn.Module):
    """Its encoder follows in its forward pass."""

    def __init__(self, in_place):
        super().__init__()
        self.q, self.k = nn.Linear(4, 2), nn.Linear(4, 2).requires_grad_(False)
        self.in_place = in_place

    @torch.no_grad()
    def keys(self, x):
        for key, query in zip(self.k.parameters(), self.q.parameters()):
            if self.in_place:
                key.mul_(0.9).add_(query, alpha=0.1)
            else:
                key.data = key.data * 0.9 + query.data * 0.1
        return self.k(x)

    def forward(self, x):
        return functional.mse_loss(self.q(x), self.keys(x))


def updated_within():
    """What belongs into the loop, or into the step, and is in the other one; tasks that take turns."""
    x, y = torch.randn(8, 4), torch.randn(8, 1)
    for in_place in (False, True):
        comparing.refused(["'k.weight'", "in the loop, between steps"],
                          lambda: alone().distribute(Momentum(in_place), None, "sgd", (x,))(x))
    mse = lambda m, x, y: functional.mse_loss(m(x), y)
    with alone().distribute(nn.Linear(4, 1), mse, "sgd", (x, y)) as step:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            comparing.refused(["torch.is_autocast", "was False and is True"], step, x, y)
    heads = nn.ModuleList([nn.Linear(4, 1), nn.Linear(4, 1)])
    with alone().distribute(heads, lambda m, x, y, task: mse(m[int(task)], x, y), "sgd",
                            (x, y, torch.tensor(0))) as step:
        comparing.refused(["'1.weight'", "distribute_steps"], step, x, y, torch.tensor(1))


torch.manual_seed(8)
late_changes()
deep_changes()
late_teachers()
kept_storage()
shared_storage()
storage_of_two_steps()
updated_within()
print("what a step reads: followed, or refused")
