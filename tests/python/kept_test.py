"""What a loop has beside the model is saved with a checkpoint and comes back with it."""

import collections
import pathlib
import struct
import sys
import tempfile

import comparing
from comparing import raised, refused
from killed import state_of, tensors_of
from running import run

comparing.skip_without_torch()

import autodist
import torch

EDITED = """
import copy, pathlib, sys, autodist, torch
folder, builder, what = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
loss_fn = lambda m, x, y: torch.nn.functional.mse_loss(m(x), y)
x, y = torch.randn(16, 8).double(), torch.randn(16, 1).double()
ad = autodist.AutoDist("local:2", builder=builder)
with ad.distribute(model, loss_fn, torch.optim.SGD(model.parameters(), lr=0.1), (x[:8], y[:8])) as step:
    if what == "edits":
        assert step.load(folder / "saved") == 3
        if ad.is_chief:
            step.save(folder / "before")
        with torch.no_grad():
            model[0].weight.mul_(0.5)
            model[2].bias.fill_(0.25)
        theirs = copy.deepcopy(model)
        if ad.is_chief:
            step.save(folder / "edited")
    for _ in range(3):
        step(x, y)
    if what == "begins":
        step.save(folder / "saved")
    else:
        plain = torch.optim.SGD(theirs.parameters(), lr=0.1)
        for _ in range(3):
            plain.zero_grad()
            loss_fn(theirs, x, y).backward()
            plain.step()
        apart = max((a - b).abs().max().item() for a, b in zip(model.parameters(), theirs.parameters()))
        assert apart < 1e-9, apart
print("through")
"""


def what_is_written_after_a_load_stays(folder):
    """Into parameters, before the first step, while the chief saves before and after it."""
    script = folder / "edited.py"
    script.write_text(EDITED)
    for builder in ("PartitionedPS", "PS:results=asked"):
        place = folder / builder.replace(":", "-")
        place.mkdir()
        for what in ("begins", "edits"):
            assert "through" in run([sys.executable, script, place, builder, what]).stdout, (builder, what)
        bias = {name: tensors_of(state_of(place / name, 3)["model.safetensors"])["2.bias"][2]
                for name in ("saved", "before", "edited")}
        assert bias["before"] == bias["saved"] and bias["edited"] == struct.pack("<d", 0.25), (builder, bias)
    print("what is written into parameters between load() and the first step stays, in a checkpoint of then, too")


class Number:
    def __init__(self, value=0):
        self.value = value

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


def session(**kept):
    model = torch.nn.Linear(2, 1)
    data = torch.ones(4, 2), torch.ones(4, 1)
    step = autodist.AutoDist("local:1").distribute(
        model, lambda m, x, y: torch.nn.functional.mse_loss(m(x), y), "sgd:lr=0.1", data)
    for name, each in kept.items():
        step.keep(name, each)
    return step, data


def what_nobody_asks_for_stays(folder):
    step, data = session(one=Number(1), two=Number(2))
    with step:
        step(*data)
        step.save(folder)
    one, late = Number(), Number()
    step, data = session(one=one)
    with step:
        assert step.load(folder) == 1 and one.value == 1
        one.value = 11
        step(*data)
        step.save(folder)  # with `two` of before
    step, data = session()
    with step:
        assert step.load(folder) == 2
        step.keep("two", late)
        assert late.value == 2
        step.keep("one", one := Number())
        assert one.value == 11
    made = torch.nn.Linear(2, 1).state_dict()
    whole = {1: float("inf"), "a": [None, True, 0.1, (1, "x")], "c": collections.Counter([3, 3]), "s": {4}, "t": made}
    step, data = session(whole=Number(whole))
    with step:
        step(*data)
        step.save(folder / "whole")
    back = Number()
    step, data = session(whole=back)
    with step:
        step.load(folder / "whole")
    assert {**back.value, "t": 0} == {**whole, "t": 0} and type(back.value["c"]) is collections.Counter, back.value
    assert type(back.value["t"]) is type(made) and torch.equal(back.value["t"]["weight"], made["weight"])
    print("what is kept is restored before and after load(); what nobody asks for stays")


def epochs_go_on_where_they_were(folder):
    batches = [(torch.full((4, 2), float(i)), torch.ones(4, 1)) for i in range(3)]
    seen = []

    def train(save_at, loops=1):
        step, _ = session()
        with step:
            step.resume(folder)
            for loop in range(loops):
                for epoch in step.epochs(batches, 2, name=f"loop {loop}"):
                    for x, y in epoch:
                        step(x, y)
                        seen.append((epoch.number, int(x[0, 0])))
                        assert epoch.batch == x[0, 0], seen
                        if step.step == save_at:
                            step.save(folder)
                            return
                    if step.step == -save_at:
                        step.save(folder)
                        return

    train(2)
    train(3)  # the last one of its epoch
    train(6, loops=2)
    train(9, loops=2)
    train(-12, loops=2)
    once = [(epoch, batch) for epoch in (0, 1) for batch in (0, 1, 2)]
    assert seen == once * 2, seen
    seen.clear()
    train(0, loops=3)
    assert seen == once, seen
    print("loops over epochs go on with the batch that comes next, each with its own")


def an_epoch_that_is_left_is_not_over(folder):
    """By an exception, as when SIGTERM comes: with the batch that was not trained with."""
    batches = [(torch.full((4, 2), float(i)), torch.ones(4, 1)) for i in range(4)]
    step, _ = session()
    with step:
        try:
            for epoch in step.epochs(batches, 1):
                for x, y in epoch:
                    if x[0, 0] == 2:
                        raise KeyError
                    step(x, y)
        except KeyError:
            step.save(folder)
    step, _ = session()
    with step:
        step.load(folder)
        seen = [int(x[0, 0]) for epoch in step.epochs(batches, 1) for x, _ in epoch]
    assert seen == [2, 3], seen
    print("an epoch that is left goes on with the batch that was not trained with")


def epochs_are_had_once_and_in_turn(folder):
    step, data = session()
    with step:
        for loader in ((data for _ in range(3)), iter([data]), map(tuple, [data])):
            for epochs in (None, 2):
                refused("an iterator, which the first epoch uses up", step.epochs, loader, epochs)
        assert [len(list(epoch)) for epoch in step.epochs(iter([data] * 3), 1, name="one pass")] == [3]
        made = list(step.epochs([data] * 2, 3, name="before use"))
        for each in made:
            refused([f"epoch {each.number} is not the one whose turn it is", "once, in turn"], iter, each)
        seen = []
        for epoch in step.epochs([data] * 3, 2, name="left early"):
            for _ in epoch:
                seen.append(epoch.number)
                if len(seen) % 2 == 0:
                    break
            refused([f"epoch {epoch.number} was iterated over already", "once, in turn"], iter, epoch)
        assert seen == [0, 0, 1, 1], seen
    print("epochs are had once, and in turn; one that is left early is followed by a whole one")


class Job:
    """What a loop over epochs asks of a session."""

    def __init__(self, ranks):
        self.size, self.rank, self._steps_of_job, self._ended = ranks, 0, 0, False

    def snapshot(self):
        pass


def other_ranks_go_on_at_the_same_samples(folder):
    """100 samples, dealt out; had by 3 ranks with batches of 10, by others afterwards."""
    for had, ranks, batch, left in ((2, 2, 10, 2), (2, 3, 10, 2), (4, 2, 10, 0), (3, 6, 5, 1), (2, 1, 20, 2)):
        data = torch.utils.data.TensorDataset(torch.arange(100))
        states = []
        for size, rows, state in ((3, 10, None), (ranks, batch, states)):
            sampler = torch.utils.data.DistributedSampler(data, size, 0)
            job = Job(size)
            loop = autodist._kept.Epochs(job, torch.utils.data.DataLoader(data, rows, sampler=sampler), 1, 0)
            if state is not None:
                loop.load_state_dict(state[0])
            seen = 0
            for epoch in loop:
                for _ in epoch:
                    seen += 1
                    job._steps_of_job += 1
                    if state is None and seen == had:
                        states.append(loop.state_dict())
        assert seen == left, (had, ranks, batch, seen, left)
    print("other ranks go on at the same samples of an epoch")


class Model:
    """Reads what is trained when it is asked for its state."""

    def __init__(self, model):
        self.model = model

    def state_dict(self):
        return {name: each.clone() for name, each in self.model.state_dict().items()}

    def load_state_dict(self, state):
        self.model.load_state_dict(state)


def each_save_has_its_own_state(folder):
    best = Number(1)
    step, data = session(best=best)
    with step:
        step.keep("model", Model(step.model))
        step(*data)
        step.save(folder / "first")
        best.value = 2
        step.save(folder / "second")
        step(*data)
        best.value = object()
        raised(autodist.CheckpointError, "keep: 'best': UsageError: state_dict()['value'] is a object", step.save,
               folder / "first")
        best.value = 3
        step.save(folder / "first")
    for name, value in (("first", 3), ("second", 2)):
        step, data = session(best=best)
        with step:
            step.load(folder / name)
            assert best.value == value, (name, best.value)
    print("every checkpoint has the state of its moment; one that cannot be saved is an error, and no end")


def schedulers_are_kept(folder):
    """Some hold methods of theirs."""
    from torch.optim import lr_scheduler

    def made():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.9)
        return [optimizer, lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=20),
                lr_scheduler.MultiStepLR(optimizer, [2, 3]), lr_scheduler.CosineAnnealingLR(optimizer, 9),
                lr_scheduler.LambdaLR(optimizer, lambda step: 0.9 ** step),
                lr_scheduler.CyclicLR(optimizer, 0.1, 0.5), lr_scheduler.ReduceLROnPlateau(optimizer)]

    whole = made()
    step, data = session(**{f"part {i}": each for i, each in enumerate(whole)})
    with step:
        step(*data)
        for _ in range(4):
            whole[0].step()
            whole[1].step()
            whole[2].step()
        step.save(folder)
    again = made()
    step, data = session(**{f"part {i}": each for i, each in enumerate(again)})
    with step:
        step.load(folder)
    for each in (whole, again):
        each[0].step()
        each[1].step()
        each[2].step()
    assert whole[0].param_groups[0]["lr"] == again[0].param_groups[0]["lr"]
    assert again[1].last_epoch == 5 and again[2].milestones == whole[2].milestones
    print("schedulers are kept, with the rates of their optimizer")


def what_goes_wrong_is_said(folder):
    step, data = session(one=Number(1))
    with step:
        for name, what, words in (("one", Number(), "kept already"), ("", Number(), "is no name"),
                                  ("list", [1], "a list, has no state_dict()"),
                                  ("code", Number(lambda: 1), "state_dict()['value'] is a function; tensors, numbers")):
            refused(words, step.keep, name, what)
        for epoch in step.epochs([data] * 3, 1):
            for batch in epoch:
                step(*batch)
            step.save(folder)
            break
        refused("'epochs' is kept already", step.epochs, [data])
    step, data = session()
    with step:
        step.load(folder)
        assert list(step.epochs([data] * 3, 1)) == []
    print("what cannot be kept is refused when it is registered")


def main():
    with tempfile.TemporaryDirectory() as name:
        for part in (what_nobody_asks_for_stays, epochs_go_on_where_they_were, an_epoch_that_is_left_is_not_over,
                     epochs_are_had_once_and_in_turn,
                     each_save_has_its_own_state, other_ranks_go_on_at_the_same_samples, schedulers_are_kept, what_goes_wrong_is_said,
                     what_is_written_after_a_load_stays):
            folder = pathlib.Path(name) / part.__name__
            folder.mkdir()
            part(folder)


main()
