"""What Python steps do that C++ steps do not, captured and trained as they are."""

import copy
import os
import sys

import comparing

comparing.skip_without_torch()

import autodist
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from cases import mse

torch.set_default_dtype(torch.float64)


def agrees(model, loss_fn, batches, rate=0.05, theirs=None):
    """One rank of ours against plain PyTorch's, by default a copy; buffers, too. Returns whether the
    last step was captured anew."""
    theirs = copy.deepcopy(model) if theirs is None else theirs
    optimizer = torch.optim.SGD([p for p in theirs.parameters() if p.requires_grad], lr=rate)
    with autodist.AutoDist().distribute(model, loss_fn, f"sgd:lr={rate}", batches[0]) as step:
        for batch in batches:
            ours = step(*batch)
            plain = comparing.plain_step(theirs, loss_fn, optimizer, *batch)
            assert abs(ours - plain) < 1e-12, (ours, plain)
        step.synchronize()
        captures = step.last.captured
    model = getattr(model, "_orig_mod", model)  # of a compiled one
    difference = comparing.largest_difference(model.state_dict(), theirs.state_dict())
    assert difference < 1e-12, difference
    return captures


class Counting(nn.Module):
    """Replaces a buffer by a new tensor, uses numbers from Python, and returns its own loss."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(3), persistent=False)

    def forward(self, x, y):
        out = self.fc(x) * torch.tensor(0.5) + torch.tensor([0.1, 0.2, 0.3])
        self.seen = self.seen + 1
        self.mean = 0.9 * self.mean + 0.1 * out.detach().mean(0)
        weights = torch.linspace(0.5, 1.0, out.shape[0]).unsqueeze(1) if y is not None else None
        error = (out - self.mean - y).square()
        return (error * torch.ones_like(weights)).sum() / x.shape[0] / self.seen.clamp(max=2.0)


class Irreps(tuple):
    """A tuple without a length, as e3nn has."""

    def __len__(self):
        raise NotImplementedError


class Centering(nn.Module):
    """Gives a buffer other memory, begins a sum with one that requires a gradient, and computes with
    complex numbers."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.shape = (Irreps((1, 2)),)
        self.register_buffer("center", torch.zeros(3))
        self.register_buffer("zero", torch.tensor(0.0))

    def forward(self, x, y):
        out = self.fc(x)
        turned = torch.polar(out.abs() + 0.1, y) * (2j - out)
        loss = self.zero.requires_grad_() + (turned * torch.full((3,), 1j)).imag.square().mean()
        loss = loss + (out - self.center).square().mean()
        self.center.data = 0.9 * self.center + 0.1 * out.detach().mean(0)
        return loss


class Attending(nn.Module):
    """Its matrices lie in memory in another way for a single sample."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 32)
        self.position = nn.Parameter(torch.randn(1, 16, 32))
        self.heads = nn.Linear(32, 96)
        self.out = nn.Linear(32, 20)

    def forward(self, x):
        hidden = self.embed(x) + self.position
        rows, length, width = hidden.shape
        q, k, v = (each.view(rows, length, 4, width // 4).transpose(1, 2)
                   for each in self.heads(hidden).split(width, 2))
        mixed = (q @ k.transpose(-2, -1)).softmax(-1) @ v
        out = self.out(mixed.transpose(1, 2).contiguous().view(rows, length, width))
        return functional.cross_entropy(out.flatten(0, 1), x.flatten())


class Squeezing(nn.Module):
    """Computes something else for a single sample, as squeeze() may."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        out = self.fc(x).squeeze()
        return out - out.mean(0) if out.dim() == 2 else (2 * out).reshape(1, 3)


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return 2 * x

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return 2 * gradient + 0 * x


def custom(model, x, y):
    return functional.mse_loss(Doubling.apply(model(x)), y)


def batches(*sizes, width=3):
    return [(torch.randn(size, 4), torch.randn(size, width)) for size in sizes]


class SetsItselfUp(nn.Module):
    """In its first call alone, some of it by what the batch is, as an attribute or a buffer says; and
    averages what it has set up in every call."""

    def __init__(self, knows_by, writes_parameters):
        super().__init__()
        self.knows_by = knows_by
        self.fc = nn.Linear(4, 3)
        self.norm = nn.Identity() if writes_parameters else nn.BatchNorm1d(3)
        self.shift = nn.Parameter(torch.zeros(3)) if writes_parameters else None
        self.register_buffer("cache", torch.zeros(3), persistent=False)
        self.register_buffer("scale", torch.ones(3))
        self.register_buffer("average", torch.zeros(3))
        self.register_buffer("is_set_up", torch.tensor(0))
        self.filled = 0

    def forward(self, x):
        out = self.fc(x)
        if not (self.is_set_up > 0 if self.knows_by == "a buffer" else self.filled):
            with torch.no_grad():
                self.cache[:] = torch.arange(3.0)
                self.scale = 1 / out.detach().std(0)
                self.average.copy_(out.detach().mean(0))
                if self.shift is not None:
                    self.shift.data = -out.detach().mean(0)
                self.is_set_up.fill_(1)
            self.filled = 3
        elif self.shift is None:
            self.average.lerp_(out.detach().mean(0), 0.1)
        out = self.norm(out * self.scale) * (1 + self.cache) - self.average
        return out if self.shift is None else out + self.shift


def of_first_calls():
    for knows_by in ("an attribute", "a buffer"):
        for writes_parameters in (False, True):
            agrees(SetsItselfUp(knows_by, writes_parameters), mse, batches(6, 6, 5, 6), rate=1e-3)

    # Costs are measured with as many rows as the step needs.
    def needs_three(model, x, y):
        chosen = torch.randperm(len(x))[:3] if len(x) >= 3 else torch.randint(0, len(x), (3,))
        return mse(model, x, y) + model(x)[chosen].view(3, 1, 3).square().mean()

    assert autodist.capture(nn.Linear(4, 3), needs_three, batches(8)[0]).ops


def of_smoothed_labels():
    """Whose sizes libtorch lets depend on how many labels count."""
    def batch(seed, *more):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(0, 4, (6, *more), generator=generator)
        labels[: seed % 3] = -100  # of which none, one or two rows do not count
        return torch.randn(6, *more, 5, generator=generator), labels

    weight = torch.tensor([1.0, 2.0, 0.5, 3.0])
    for options in ({}, {"weight": weight}, {"reduction": "sum"}, {"ignore_index": 1}):
        loss = nn.CrossEntropyLoss(label_smoothing=0.1, **options)
        batches = [batch(seed) for seed in range(4)]
        if "ignore_index" in options:
            batches = [(x, y.clamp(min=0)) for x, y in batches]
        agrees(nn.Linear(5, 4), lambda m, x, y: loss(m(x), y), batches)
    agrees(nn.Linear(5, 4), lambda m, x, y: functional.cross_entropy(m(x).transpose(1, 2), y, label_smoothing=0.2),
           [batch(seed, 3) for seed in range(4)])
    shares = [(x, torch.softmax(x[:, :4], 1)) for x, _ in map(batch, range(4))]
    agrees(nn.Linear(5, 4), lambda m, x, y: functional.cross_entropy(m(x), y, label_smoothing=0.2), shares)
    assert not hasattr(functional.cross_entropy, "__wrapped__")  # it is libtorch's own again


def of_masks_and_lengths():
    """What has a fixed size in the place of what has not, and lengths that come with the batch."""
    def masked(model, x, y, mask):
        scores = model(x)
        error = torch.where(mask, scores.square().mean(1), 0).sum() / mask.sum()
        return error + functional.cross_entropy(scores, y.masked_fill(~mask, -100))

    rows = [(torch.randn(6, 4), torch.randint(0, 3, (6,)), torch.arange(6) % (2 + step) == 0)
            for step in range(3)]
    agrees(nn.Linear(4, 3), masked, rows)

    def chosen(model, x, y, mask):
        error = functional.cross_entropy(model(x)[mask], y[mask])
        first, rest = model(x).split([mask.sum().item(), (~mask).sum().tolist()])
        assert sum(each is True for each in mask.tolist()) == len(first)
        if torch.equal(mask[:1], mask[3:4]) or y.equal(y + mask):
            error = error * 2
        shares = torch.tensor(model.shares.tolist())  # of a buffer, real numbers: a constant
        return (error + first.square().mean() + rest.square().sum()) * shares.sum()

    def with_shares():
        model = nn.Linear(4, 3)
        model.register_buffer("shares", torch.tensor([0.5, 0.25]))
        return model

    agrees(with_shares(), chosen, rows)

    # What is read without an op shows on the first rows that it was not captured on.
    def hidden(model, x, y, mask):
        return functional.cross_entropy(model(x)[mask], y[mask]) * float(x.numpy()[0, 0])

    for verified in ({}, {"verify_every": 0}):  # the job's own comparisons, and that of such graphs
        with autodist.AutoDist(**verified).distribute(nn.Linear(4, 3), hidden, "sgd", rows[2]) as step:
            step(*rows[2])
            comparing.refused("no longer does what was captured", step, torch.randn(6, 4), *rows[2][1:])

    # Trials before the training run the example alone, and are left out.
    with autodist.AutoDist(trials=2, budget="8", history=False).distribute(
            with_shares(), chosen, "sgd", rows[0]) as step:
        for each in rows:
            step(*each)

    class Experts(nn.Module):
        """A row goes to the expert that its first numbers choose; not all of them have any."""

        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(4, 3)
            self.experts = nn.Parameter(torch.randn(3, 4, 3))

        def forward(self, x):
            shares, which = self.gate(x).softmax(1).max(1)
            out = torch.empty(len(x), 3)
            for expert in functional.one_hot(which, 3).any(0).nonzero():
                rows = which == expert[0]
                out[rows] = x[rows] @ self.experts[expert[0]] * shares[rows].unsqueeze(1)
            return out

    agrees(Experts(), lambda m, x, y, mask: functional.cross_entropy(m(x), y), rows)

    spoken = [(torch.randn(6, 7, 4), torch.randint(1, 5, (6, 3)), torch.randint(5, 8, (6,)),
               torch.randint(1, 4, (6,))) for _ in range(4)]
    spoken[2][2][0], spoken[2][3][0] = 2, 3  # too short for three labels

    def loss_of(ctc, flat=False):
        def loss_fn(model, x, y, x_lengths, y_lengths):
            log_p = model(x).log_softmax(2).transpose(0, 1)
            return ctc(log_p, y.flatten() if flat else y, x_lengths, y_lengths)

        return loss_fn

    agrees(nn.Linear(4, 5), loss_of(nn.CTCLoss(zero_infinity=True)), spoken)
    agrees(nn.Linear(4, 5), loss_of(nn.CTCLoss(reduction="sum")), spoken[:2])
    comparing.refused("takes lengths that libtorch's ctc_loss has read", autodist.capture, nn.Linear(4, 5),
                      loss_of(torch.ctc_loss), spoken[0])
    comparing.refused("targets.dim() 1: a step takes", autodist.capture, nn.Linear(4, 5),
                      loss_of(nn.CTCLoss(), flat=True), spoken[0])
    assert not hasattr(functional.ctc_loss, "__wrapped__")


def main():
    torch.manual_seed(5)
    counting = Counting()
    places = (counting.seen, counting.mean)
    agrees(counting, None, batches(6, 6, 6))
    assert counting.seen is places[0] and counting.mean is places[1] and counting.seen.item() == 3

    centering = Centering()
    memory = centering.center.data_ptr()
    agrees(centering, None, batches(6, 6, 4))
    assert centering.center.data_ptr() == memory and centering.zero.grad is None

    agrees(nn.Linear(4, 3), custom, batches(6, 6, 4))

    # A single sample is captured by itself where it is another step, the example's or a later one.
    for sizes in ((1, 1, 4, 1), (4, 1, 4), (2, 1)):
        agrees(Attending(), None, [(torch.randint(20, (rows, 16)),) for rows in sizes])
        assert agrees(Squeezing(), mse, batches(*sizes)) == (sizes == (2, 1))

    # A recurrent network; its second length is captured when it comes.
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = nn.GRU(4, 5, batch_first=True)
            self.out = nn.Linear(5, 1)

        def forward(self, x):
            return self.out(self.gru(x)[0])

    def sums(model, x):
        return (model(x) - x.sum(2, keepdim=True)).square().mean()

    assert agrees(Recurrent(), sums, [(torch.randn(4, length, 4),) for length in (3, 3, 5)])

    # Frozen parts in evaluation mode stay so, whatever the user sets between steps.
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
    model[1].eval()
    model[0].requires_grad_(False)
    agrees(model, mse, batches(6, 6))
    assert not model[1].training and model[1].num_batches_tracked.item() == 0

    # Weight norm makes the weight anew in every step; hooks run at capture.
    seen = []
    normed = nn.utils.weight_norm(nn.Linear(4, 3))
    normed.register_forward_hook(lambda *_: seen.append(1))
    graph = autodist.capture(normed, mse, batches(6)[0], measure=False)
    assert seen and [each.name for each in graph.variables] == ["bias", "weight_g", "weight_v"]

    # Batches that forked workers load, while the session is there. Their copy of it is not theirs.
    data = torch.utils.data.TensorDataset(torch.randn(24, 4), torch.randn(24, 3))
    model = nn.Linear(4, 3)
    with autodist.AutoDist().distribute(model, mse, "sgd:lr=0.1", data[:6]) as step:
        for _ in range(2):
            for batch in torch.utils.data.DataLoader(data, 6, num_workers=2):
                step(*batch)
        child = os.fork()
        if child == 0:
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert step.step == 8 and step(*data[:6]) > 0

    # A part that is computed again in the backward pass draws the same random numbers there.
    class Again(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)
            self.reentrant = reentrant

        def part(self, x):
            return functional.dropout(torch.tanh(functional.dropout(self.first(x))))

        def forward(self, x):
            x = functional.dropout(x.requires_grad_())
            hidden = checkpoint(self.part, x, use_reentrant=self.reentrant)
            return functional.dropout(self.second(hidden), 0.1)

    for reentrant in (True, False):
        graph = autodist.capture(Again(reentrant), mse, batches(6)[0], measure=False)
        names = graph.ops
        assert names.count("autodist::set_generator_state") == 4, names

    # A layer that the first batch leaves out is in the plan all the same.
    class Skips(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 3)

        def forward(self, x):
            hidden = self.first(x)
            return self.second(hidden) if x[0, 0] > 0 else hidden

    signed = batches(6, 6, 6)
    for (x, _), sign in zip(signed, (-1, 1, -1)):
        x[0, 0] = sign
    agrees(Skips(), mse, signed)

    # What is compiled is captured as it was written.
    if hasattr(torch, "compile"):
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        compiled = torch.compile(model)
        graph = autodist.capture(compiled, torch.compile(mse), batches(6)[0], measure=False)
        assert [each.name for each in graph.variables] == [n for n, _ in model.named_parameters()]
        theirs = copy.deepcopy(model)
        agrees(compiled, mse, batches(6, 6), theirs=theirs)
        part = nn.Sequential(model[0], torch.compile(nn.Sequential(*model[1:])))
        assert autodist.capture(part, mse, batches(6)[0], measure=False).ops == graph.ops

    of_first_calls()
    of_smoothed_labels()
    of_masks_and_lengths()
    # Inputs that are not split, and a loss that is a sum.
    def weighted(model, x, y, weights):
        return ((model(x) - y).square() * weights).sum()

    example = (*batches(6)[0], torch.rand(3))
    graph = autodist.capture(nn.Linear(4, 3), weighted, example, reduction="sum")
    assert [split for _, split in graph.inputs] == [True, True, False]
    print("capture: all as they should be")


main()
