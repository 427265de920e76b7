"""Optimizers of torch.optim are ours: their options, their groups, and what they compute."""

import copy
import functools

import comparing

comparing.skip_without_torch()

import autodist
import torch
from autodist import _autodist, _optimizers
from torch import nn

from cases import mse

optim = torch.optim

CASES = [
    lambda p: optim.SGD(p, lr=0.1),
    lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    lambda p: optim.Adam(p, lr=0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.01),
    lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
    lambda p: optim.AdamW(p, lr=0.01, weight_decay=0.1),
    lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.01, initial_accumulator_value=0.1),
    lambda p: optim.Adadelta(p, lr=0.5, rho=0.8),
    lambda p: optim.Adamax(p, lr=0.01),
    lambda p: optim.NAdam(p, lr=0.01, momentum_decay=0.01),
    lambda p: optim.RAdam(p, lr=0.01, betas=(0.8, 0.99), weight_decay=0.01),
    lambda p: optim.RMSprop(p, lr=0.01, alpha=0.9, momentum=0.5, centered=True),
    optim.Adam,
    functools.partial(optim.SGD, lr=0.05),
]
if not torch.__version__.startswith("1."):
    CASES += [
        lambda p: optim.NAdam(p, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True),
        lambda p: optim.RAdam(p, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True),
    ]


class Net(nn.Module):
    """Names that contain each other: 'fc.weight' is in 'deep.fc.weight'."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.deep = nn.ModuleDict({"fc": nn.Linear(4, 3)})
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x):
        return self.deep["fc"](torch.tanh(self.fc(x))) * self.frozen


def train_both(make):
    """Largest difference after seven steps, and our text. RAdam rectifies from its sixth on."""
    torch.manual_seed(3)
    ours = Net().double()  # not the default type: torch keeps some of its state in that
    batches = [(torch.randn(6, 4).double(), torch.randn(6, 3).double()) for _ in range(7)]
    theirs = copy.deepcopy(ours)
    optimizer = make(theirs)
    with autodist.AutoDist().distribute(ours, mse, make(ours), batches[0]) as step:
        for batch in batches:
            step(*batch)
            comparing.plain_step(theirs, mse, optimizer, *batch)
        step.synchronize()
    text = _optimizers.text_of(make(ours), list(ours.named_parameters()))
    return comparing.largest_difference(ours.state_dict(), theirs.state_dict()), text


def check_default_type():
    """PyTorch keeps NAdam's product of momenta in it."""
    torch.set_default_dtype(torch.float64)
    try:
        check(lambda net: optim.NAdam(net.parameters(), lr=0.01))
    finally:
        torch.set_default_dtype(torch.float32)


def check(make):
    difference, text = train_both(make)
    print(f"{difference:.1e}  {_autodist.optimizer_text(text)}")
    assert difference < 1e-12, text


def refused(text, make, parameters=None):
    model = Net()
    comparing.refused(text, lambda: _optimizers.text_of(
        make(model), parameters or list(model.named_parameters())))


def check_frozen():
    for optimizer in ("adam:lr=0.1", optim.Adam, lambda parameters: optim.SGD(parameters, lr=0.1)):
        model = Net().requires_grad_(False)
        comparing.refused("nothing to train: none of the model's", autodist.AutoDist().distribute, model, mse,
                          optimizer, (torch.ones(2, 4), torch.ones(2, 3)))
    model = Net().requires_grad_(False)
    refused("nothing to train", lambda model: optim.SGD(model.parameters(), lr=0.1),
            list(model.named_parameters()))


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 3, sparse=True)

    def forward(self, x):
        return self.table(x).sum(1)


def check_sparse_adam():
    torch.manual_seed(2)
    ours = Embeddings().double()
    theirs = copy.deepcopy(ours)
    optimizer = optim.SparseAdam(list(theirs.parameters()), lr=0.1, betas=(0.8, 0.99))
    batches = [(torch.randint(0, 7, (4, 2)), torch.randn(4, 3).double()) for _ in range(5)]
    own = optim.SparseAdam(list(ours.parameters()), lr=0.1, betas=(0.8, 0.99))
    with autodist.AutoDist().distribute(ours, mse, own, batches[0]) as step:
        for batch in batches:
            step(*batch)
            comparing.plain_step(theirs, mse, optimizer, *batch)
        step.synchronize()
    difference = comparing.largest_difference(ours.state_dict(), theirs.state_dict())
    print(f"{difference:.1e}  SparseAdam")
    assert difference < 1e-12
    for make in (lambda trained: optim.SparseAdam(trained), lambda _: optim.SparseAdam,
                 lambda _: functools.partial(optim.SparseAdam, lr=0.1)):
        dense = Net().double()
        comparing.refused(
            "that of 'fc.weight' is dense", autodist.AutoDist().distribute, dense, mse,
            make([each for each in dense.parameters() if each.requires_grad]),
            (torch.randn(6, 4).double(), torch.randn(6, 3).double()))


def main():
    for case in CASES:
        check(lambda model, case=case: case([p for p in model.parameters() if p.requires_grad]))
    # Groups: no decay on biases, a rate of its own for a layer whose name is part of another's.
    check(lambda model: optim.AdamW([
        {"params": [model.fc.weight], "lr": 0.3},
        {"params": [model.fc.bias, model.deep["fc"].bias], "weight_decay": 0.0},
        {"params": [model.deep["fc"].weight], "betas": (0.5, 0.9)},
    ], lr=0.01, weight_decay=0.1))
    check(lambda model: optim.SGD([
        {"params": model.fc.parameters(), "lr": 0.3}, {"params": model.deep.parameters()},
    ], lr=0.01))
    refused("LBFGS.step needs 'closure'", lambda model: optim.LBFGS(model.parameters()))
    check_sparse_adam()
    check_frozen()
    check_default_type()
    refused("does not hold 'deep.fc.weight'", lambda model: optim.SGD(model.fc.parameters(), lr=1))
    foreign = nn.Parameter(torch.ones(1))
    refused("not the model's", lambda model: optim.Adam([*model.parameters(), foreign]))
    refused("got int", lambda model: 3)
    refused("got str", lambda model: [optim.SGD(model.parameters(), lr=1), "sgd"])
    refused("got an empty list", lambda model: [])


main()
