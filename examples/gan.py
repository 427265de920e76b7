"""A generator and its critic on two processes of this machine, in one job.

    python3 gan.py              # two ranks
"""

import math
import sys

import torch
from torch import nn
from torch.nn import functional

import autodist

ad = autodist.AutoDist(sys.argv[1] if len(sys.argv) > 1 else "local:2")

torch.manual_seed(1)
model = nn.ModuleDict({
    "generator": nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2)),
    "critic": nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32),
                            nn.LeakyReLU(0.2), nn.Linear(32, 1)),
})


def circle(points):
    angle = torch.rand(points) * 2 * math.pi
    return torch.stack([angle.cos(), angle.sin()], 1)


def critic_loss(model, real):
    fake = model["critic"](model["generator"](torch.randn_like(real)))
    return (functional.softplus(-model["critic"](real)) + functional.softplus(fake)).mean()


def generator_loss(model, real):
    return functional.softplus(-model["critic"](model["generator"](torch.randn_like(real)))).mean()


def distance(model, real):
    return (model["generator"](torch.randn_like(real)).norm(dim=1) - 1).square().mean()


# What an optimizer of torch.optim holds is what its step trains.
steps = ad.distribute_steps(
    critic=autodist.TrainingStep(
        model, critic_loss, torch.optim.Adam(
            model["critic"].parameters(), lr=4e-3, betas=(0.5, 0.9)), circle(64)),
    generator=autodist.TrainingStep(
        model, generator_loss, torch.optim.Adam(
            model["generator"].parameters(), lr=2e-3, betas=(0.5, 0.9)), circle(64)),
    distance=autodist.TrainingStep(model, distance, None, circle(64)),  # trains nothing
)
with steps:
    for number in range(600):
        steps["critic"](circle(128))
        steps["generator"](circle(128))
        if number % 100 == 99:
            steps["distance"](circle(1000))
            steps["distance"].summarise()
            last = steps["distance"].last_summary().loss  # over the rows of all ranks
            if steps.is_chief:
                print(f"round {number + 1:3}  distance {last:.4f}")

if ad.is_chief:
    print(f"trained: squared distance from the circle {last:.4f}")
