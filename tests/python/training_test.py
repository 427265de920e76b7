"""Two ranks train what plain PyTorch trains in one process, under three strategies.

    training_test.py CASE

Batch norm keeps its statistics per replica: the reference computes each replica's half with its own
statistics and averages the gradients. Without batch norm that is the whole batch's gradient.
"""

import copy
import math
import sys

import comparing

comparing.skip_without_torch()

import torch

import cases

# The gradient of the attention's key bias is rounding alone, which Adam makes as large as others.
TOLERANCE = {"encoder": 1e-8}


def reference(name, replicas):
    """Losses of replica 0 and of all, and the state with its buffers."""
    model, loss_fn, _, make_optimizer, batches = cases.make(name)
    optimizer = make_optimizer(model.parameters())
    copies = [copy.deepcopy(model) for _ in range(replicas)]
    losses, job_losses = [], []
    for batch in batches:
        job_losses.append(0.0)
        parts = [torch.chunk(each, replicas) for each in batch]
        optimizer.zero_grad(set_to_none=True)
        for index, replica in enumerate(copies):
            replica.zero_grad(set_to_none=True)
            with torch.no_grad():
                for mine, original in zip(replica.parameters(), model.parameters()):
                    mine.copy_(original)
            loss = loss_fn(replica, *(part[index] for part in parts))
            (loss / replicas).backward()
            job_losses[-1] += loss.item() / replicas
            if index == 0:
                losses.append(loss.item())
            for mine, original in zip(replica.parameters(), model.parameters()):
                if original.grad is None:
                    original.grad = mine.grad
                elif mine.grad is not None:
                    original.grad = original.grad + mine.grad
        optimizer.step()
    state = model.state_dict()
    for key, buffer in copies[0].named_buffers():
        state[key].copy_(buffer)
    with torch.no_grad():
        model.eval()
        evaluated = loss_fn(model, *batches[0]).item()
    return losses, job_losses, state, evaluated


def main():
    name = sys.argv[1]
    tolerance = TOLERANCE.get(name, 1e-10)
    losses, job_losses, state, evaluated = reference(name, 2)
    for builder in ("PS", "PartitionedPS", "AllReduce", "AllReduce:algorithm=library"):
        if "library" in builder and name != "dense" or comparing.is_left_out(builder):
            continue
        ours = comparing.result_of("training_job.py", name, builder, "local:2")
        difference = comparing.largest_difference(ours["state"], state)
        of_losses = max(abs(a - b) for a, b in zip(ours["losses"] + ours["job_losses"],
                                                   losses + job_losses))
        print(f"{name}, {builder}: parameters and buffers differ by {difference:.2g}, losses by "
              f"{of_losses:.2g}, loss {ours['losses'][0]:.6f} -> {ours['losses'][-1]:.6f}")
        assert difference < tolerance and of_losses < tolerance
        assert math.isclose(ours["evaluated"], evaluated, rel_tol=tolerance)


main()
