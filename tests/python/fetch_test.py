"""Values of a step by name, and sums over ranks, are those of the whole batch on one process."""

import sys

import comparing

comparing.skip_without_torch()

import cases
import torch

if len(sys.argv) == 1:  # the test; else a rank of the job
    for builder in ("PartitionedPS", "AllReduce"):
        difference = comparing.result_of(__file__, builder)
        print(f"{builder}: {difference:.1e}")
        assert difference < 1e-12, difference
    sys.exit(0)

import autodist


def plain(model, loss_fn, batch):
    loss = loss_fn(model, *batch)
    loss.backward()
    users = model.users(batch[0])
    return {"loss": loss.detach(), "users": users.detach(),
            **{f"{name}.grad": each.grad for name, each in model.named_parameters()}}


def main(builder, out):
    model, loss_fn, _, _, batches = cases.make("dense")
    twin = cases.make("dense")[0]
    expected = plain(twin, loss_fn, batches[0])
    example = tuple(each[:6] for each in batches[0])
    ad = autodist.AutoDist("local:2", builder=builder)
    with ad.distribute(model, loss_fn, "sgd:lr=0.1", example) as step:
        values = step.run_and_fetch(list(expected), *batches[0])
        updated = step.run_and_fetch(["mlp.0.weight"], *batches[1])["mlp.0.weight"]
        samples = step.sum_over_ranks([step.last.samples, 1])
        assert samples == [len(batches[1][0]), 2], samples
        assert (step.replica, step.replicas) == (ad.rank, 2)
        comparing.refused("Did you mean 'mlp.0.weight'?", step.run_and_fetch, ["mlp.0.wieght"], *batches[0])
        step.synchronize()
    assert values.keys() == expected.keys()
    worst = max((values[name] - each).abs().max().item() for name, each in expected.items())
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
    loss_fn(twin, *batches[1]).backward()
    after = twin.mlp[0].weight - 0.1 * twin.mlp[0].weight.grad
    worst = max(worst, (updated - after).abs().max().item())
    if ad.is_chief:
        torch.save(worst, out)


main(*sys.argv[1:])
