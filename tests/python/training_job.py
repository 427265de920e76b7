"""Trains a case as a user would; the chief writes what came of it.

    training_job.py CASE BUILDER CLUSTER OUT
"""

import sys

import autodist
import torch

import cases

name, builder, cluster, out = sys.argv[1:]
model, loss_fn, optimizer, _, batches = cases.make(name)
storages = [parameter.data_ptr() for parameter in model.parameters()]

ad = autodist.AutoDist(cluster, builder=builder)
half = tuple(each.chunk(2)[ad.rank % 2] for each in batches[0])
with ad.distribute(model, loss_fn, optimizer, half) as step:
    losses, job_losses = [], []
    for batch in batches:
        job_losses.append(step(*batch))
        losses.append(step.local_loss)
    evaluated = step.evaluate(loss_fn, *batches[0]).item()
    assert all(module.training for module in model.modules())
    assert step.step == cases.STEPS and step.last.samples == cases.ROWS // step.size
    assert storages == [parameter.data_ptr() for parameter in model.parameters()]
    if step.is_chief:
        torch.save({"losses": losses, "job_losses": list(map(float, job_losses)),
                    "state": model.state_dict(), "evaluated": evaluated}, out)
