"""A user's own PyTorch module, trained on two processes of this machine.

    python3 own_model.py              # two ranks
    python3 own_model.py local:1      # one process, the same numbers to rounding
"""

import sys

import torch
from torch import nn
from torch.nn import functional

import autodist

ad = autodist.AutoDist(sys.argv[1] if len(sys.argv) > 1 else "local:2")

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)


def loss_fn(model, x, y):
    return functional.mse_loss(model(x), y)


x = torch.randn(64, 8)
y = x.sum(1, keepdim=True).sin()

# The example is what one replica gets in a step: its shapes count, not its values.
with ad.distribute(model, loss_fn, optimizer, (x[:32], y[:32])) as step:
    for number in range(200):
        loss = step(x, y)
        if step.is_chief and number % 50 == 0:
            print(f"step {number:3}  loss {loss:.4f}")
    trained = step.evaluate(loss_fn, x, y).item()

if ad.is_chief:
    print(f"trained: loss {trained:.4f}")
