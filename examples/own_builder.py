"""A strategy of a user's own: large variables on parameter servers in turn, small ones all-reduced.

    python3 own_builder.py Mixed:large=1000     # every 1,000 elements and more on a server
"""

import sys

import torch
from torch import nn
from torch.nn import functional

import autodist


def mixed(graph, cluster, large=500):
    """Servers for large variables."""
    # Replicas, names and order as AutoDist's; then each variable's synchronizer anew.
    plan = autodist.build_strategy("AllReduce", graph, cluster)
    used = 0
    for variable in graph.variables:
        if variable.elements >= large:
            server = cluster.servers[used % len(cluster.servers)]
            plan.node(variable.name).synchronizer = autodist.PSSynchronizer(server)
            used += 1
    return plan


builder = sys.argv[1] if len(sys.argv) > 1 else "Mixed"
ad = autodist.AutoDist("local:2", builder=builder, builders={"Mixed": mixed})

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))


def loss_fn(model, x, y):
    return functional.mse_loss(model(x), y)


x = torch.randn(64, 8)
y = x.sum(1, keepdim=True).sin()
with ad.distribute(model, loss_fn, "adam:lr=1e-2", (x[:32], y[:32])) as step:
    for _ in range(100):
        step(x, y)
    trained = step.evaluate(loss_fn, x, y).item()

if ad.is_chief:
    print(step.strategy.to_text(), end="")
    print(f"trained: loss {trained:.4f}")
