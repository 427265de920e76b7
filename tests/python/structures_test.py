"""Batches and results that are dictionaries, dataclasses, tuples in tuples and None."""

import collections
import copy
import dataclasses
import sys
import types

import comparing
from comparing import refused

comparing.skip_without_torch()

import autodist
import torch
from autodist._structure import moved
from torch import nn

if len(sys.argv) == 1:  # the test; else a rank of the job
    for builder in ("PartitionedPS", "AllReduce"):
        comparing.run(__file__, builder)
        print(f"{builder}: as plain PyTorch")

ROWS = 10
Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass(frozen=True)
class Sample:
    pair: Pair
    extra: torch.Tensor | None


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor
    hidden: list


@dataclasses.dataclass
class Computed:
    """Its loss is none of what it holds."""

    logits: torch.Tensor

    @property
    def loss(self):
        return self.logits.square().mean()


class Batch(collections.UserDict):
    """As tokenizers give them: a mapping, and no dict."""


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.second = nn.Linear(6, 3)

    def forward(self, ids, mask=None, labels=None):
        hidden = torch.tanh(self.first(ids))
        if mask is not None:
            hidden = hidden * mask
        return Output(self.second(hidden), nn.functional.mse_loss(self.second(hidden), labels),
                      [hidden])


def make():
    torch.manual_seed(5)
    return Net().double()


def samples(number, rows=ROWS):
    generator = torch.Generator().manual_seed(number)
    return [torch.randn(rows, width, generator=generator).double() for width in (4, 6, 3)]


def of_dictionary(model, batch):
    assert type(batch) in (dict, Batch), type(batch)
    return model(**batch)


def of_dataclass(model, sample, weights):
    assert isinstance(sample, Sample) and isinstance(sample.pair, Pair) and sample.extra is None
    assert weights[1] == (None,)
    out = model(sample.pair.left, weights[0]["mask"], sample.pair.right)
    return out.loss, {"size": out.logits.detach().abs().mean(), "logits": out.logits}


def dictionary(number, rows=ROWS):
    ids, mask, labels = samples(number, rows)
    return {"ids": ids, "mask": mask, "labels": labels}


def dataclass(number, rows=ROWS):
    ids, mask, labels = samples(number, rows)
    return Sample(Pair(ids, labels), None), ({"mask": mask}, (None,))


def turned(batch):
    """`batch` with its keys in another order."""
    return dict(reversed(batch.items()))


def ours_as(kind):
    return (of_dictionary, lambda n, rows=ROWS: (dictionary(n, rows),)) if kind == "dictionary" \
        else (of_dataclass, dataclass)


def train(kind, builder, **options):
    """Two processes on a batch of ten against one, and what their steps return."""
    loss_fn, batch = ours_as(kind)
    ours, theirs = make(), make()
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    ad = autodist.AutoDist("local:2", builder=builder, **options)
    example = batch(0, ROWS // 2)
    with ad.distribute(ours, loss_fn, torch.optim.SGD(ours.parameters(), lr=0.1),
                       example[0] if len(example) == 1 else example) as step:
        for number in range(4):
            given = batch(number)
            if kind == "dictionary" and number == 2:
                given = (turned(given[0]),)
            rows = step.rows_of(ROWS)
            own = slice(rows.start, rows.stop)
            optimizer.zero_grad()
            expected = loss_fn(theirs, *given)
            got = step(*given)
            if kind == "dictionary":
                assert isinstance(got, Output) and len(got.hidden) == 1
                expected.loss.backward()
                assert torch.allclose(got.logits, expected.logits[own]), number
                assert torch.allclose(got.hidden[0], expected.hidden[0][own])
                assert not got.logits.requires_grad
            else:
                loss, more = got
                expected[0].backward()
                assert sorted(more) == ["logits", "size"]
                assert torch.allclose(more["logits"], expected[1]["logits"][own])
                assert abs(float(more["size"]) - expected[1]["size"].item()) < 1e-12
            optimizer.step()
        # Rows of this rank alone, and none at all.
        part = batch(9, 4 if ad.rank == 0 else 0)
        got = step.run_local(*part)
        logits = got.logits if kind == "dictionary" else got[1]["logits"]
        assert logits.shape == ((4, 3) if ad.rank == 0 else (0, 3)), logits.shape
        optimizer.zero_grad()
        expected = loss_fn(theirs, *batch(9, 4))
        (expected.loss if kind == "dictionary" else expected[0]).backward()
        optimizer.step()
        fetched = step.run_and_fetch(["loss", "second.weight.grad"], *batch(4))
        optimizer.zero_grad()
        expected = loss_fn(theirs, *batch(4))
        (expected.loss if kind == "dictionary" else expected[0]).backward()
        optimizer.step()
        assert torch.allclose(fetched["second.weight.grad"], theirs.second.weight.grad)
        evaluated = step.evaluate(loss_fn, *batch(5))
        assert type(evaluated) is (Output if kind == "dictionary" else tuple)
        step.synchronize()
    assert comparing.largest_difference(ours.state_dict(), theirs.state_dict()) < 1e-12


def expect_refusals():
    batch = dictionary(0)
    graph = autodist.capture(make(), of_dictionary, batch)
    assert [name for name, _ in graph.inputs] == ["batch['ids']", "batch['mask']", "batch['labels']"]
    # A frozen mapping and one that is no dict come as what they were, or as a dict.
    for kind in (types.MappingProxyType, Batch, collections.OrderedDict):
        captured = autodist.capture(make(), lambda m, b: m(**b), kind(batch))
        assert len(captured.inputs) == 3
    refused(["example_batch['mask'] is of type int, a tensor expected"], autodist.capture, make(),
            of_dictionary, {**batch, "mask": 3})
    refused(["holds no tensor"], autodist.capture, make(), of_dictionary, {})
    refused(["holds no tensor"], autodist.capture, make(), lambda m: m(batch["ids"]).loss, [])
    refused(["what loss_fn returns['n'] is of type int"], autodist.capture, make(),
            lambda m, b: {"loss": m(**b).loss, "n": 3}, batch)
    refused(["a tensor with the loss expected, got dict"], autodist.capture, make(),
            lambda m, b: {"losses": m(**b).loss}, batch)
    refused(["the loss of a Computed", "Make it a field"], autodist.capture, make(),
            lambda m, b: Computed(m(**b).logits), batch)
    model = make()
    with autodist.AutoDist().distribute(model, of_dictionary, "sgd", batch) as step:
        refused(["batch has no ['mask']"], step, {"ids": batch["ids"], "labels": batch["labels"]})
        refused(["batch['more'] was not there"], step, {**batch, "more": batch["ids"]})
        refused(["batch['mask'] is None", "with a tensor there"], step, {**batch, "mask": None})
        refused(["batch['mask'] is torch.float32 of 2 dimensions"], step,
                {**batch, "mask": batch["mask"].float()})
        refused(["rows['ids'] is of type dict"], step.run_local, {**batch, "ids": {}})
        refused(["batch is of type Tensor", "a dict there"], step, batch["ids"])
        refused(["batch: 3 arguments, the step was captured with 1"], step, *batch.values())
        refused(["batch['mask']", "9 rows"], step, {**batch, "mask": batch["mask"][:9]})
        step(batch)
    # Which are split is said in the same structure, or one by one; a parameter that is returned is
    # that of the step.
    table = torch.randn(10, 10).double()

    def uses_table(m, b):
        return m(**b["in"]).loss + (b["table"] ** 2).mean(), m.second.weight, b["table"]

    whole = {"in": copy.copy(batch), "table": table}
    flags = {"in": dict.fromkeys(batch, True), "table": False}
    for batched in (flags, [True, True, True, False]):
        model = make()
        before = model.second.weight.detach().clone()
        with autodist.AutoDist().distribute(model, uses_table, "sgd:lr=0.1", whole,
                                            batched=batched) as step:
            assert [batched for _, batched in step.graph.inputs] == [True, True, True, False]
            _, weight, same = step(whole)
            assert torch.equal(weight, before) and torch.equal(same, table)
            step.synchronize()
            assert not torch.equal(weight, model.second.weight)


def expect_micro_batches():
    """Rows follow on rows, single numbers are averaged."""
    ours = make()
    with autodist.AutoDist(accumulate=3).distribute(ours, of_dataclass, "sgd:lr=0",
                                                    dataclass(0, 4)) as step:
        _, more = step(*dataclass(1))
        expected = of_dataclass(make(), *dataclass(1))[1]
        assert torch.allclose(more["logits"], expected["logits"])
        assert abs(float(more["size"]) - expected["size"].item()) < 1e-12


def expect_no_inputs():
    """A step that has its data in itself, or draws it."""
    ids, mask, labels = samples(0)
    ours, theirs = make(), make()
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    with autodist.AutoDist().distribute(ours, lambda m: m(ids, mask, labels).loss, "sgd:lr=0.1",
                                        ()) as step:
        for _ in range(3):
            optimizer.zero_grad()
            expected = theirs(ids, mask, labels).loss
            expected.backward()
            optimizer.step()
            assert abs(float(step()) - expected.item()) < 1e-12
        refused(["batch: 1 tensors, the step was captured with 0"], step, ids)
        assert abs(float(step.evaluate(lambda m: m(ids, mask, labels).loss))
                   - theirs(ids, mask, labels).loss.item()) < 1e-12
    assert comparing.largest_difference(ours.state_dict(), theirs.state_dict()) < 1e-12
    with autodist.AutoDist().distribute(make(), lambda m: m(torch.rand(5, 4).double(), None,
                                                            torch.zeros(5, 3).double()).loss,
                                        "sgd:lr=0", ()) as step:
        assert len({float(step()) for _ in range(4)}) == 4


def expect_moves():
    """What an evaluation is given goes to where the model is, whatever it is in."""
    one = torch.ones(2)
    given = {"pair": Pair(one, [one, "text"]), "sample": Sample(Pair(one, one), None), "number": 3}
    there = moved(given, torch.device("meta"))
    assert there["pair"].left.is_meta and there["pair"].right[0].is_meta
    assert there["pair"].right[1] == "text" and there["number"] == 3
    assert there["sample"].pair.right.is_meta and there["sample"].extra is None
    assert not given["pair"].left.is_meta
    assert moved(given, torch.device("cpu")) is given


def main(builder=None):
    if builder is None:
        expect_moves()
        expect_refusals()
        expect_micro_batches()
        expect_no_inputs()
        print("structures: all as they should be")
    else:
        import os
        kind = os.environ.get("STRUCTURE", "dictionary")
        train(kind, builder)
        if os.environ.get("AUTODIST_RANK") is None and kind == "dictionary":
            comparing.run(__file__, builder, STRUCTURE="dataclass")


main(*sys.argv[1:])
