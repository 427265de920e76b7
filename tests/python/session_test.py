"""Loss scaling, update rules of one's own, traces and exports, from Python."""

import json
import os
import subprocess
import sys
import tempfile

import comparing

comparing.skip_without_torch()

import torch

if len(sys.argv) == 1:  # the test; else a rank of the job
    with tempfile.TemporaryDirectory() as folder:
        for builder in ("PartitionedPS", "AllReduce"):
            comparing.run(__file__, builder, folder)
            print(f"{builder}: as said")
        comparing.run(__file__, "in-place", folder)
        print("rules that change nothing in place: refused")
        # The exported file needs neither the package nor the model's code.
        loaded = subprocess.run(
            [sys.executable, "-c", "import sys, torch; m = torch.jit.load(sys.argv[1]); "
             "print(len(list(m.parameters())), m(torch.ones(3, 4).double()).shape[0])",
             os.path.join(folder, "AllReduce.pt")], capture_output=True, text=True, check=True)
        assert loaded.stdout.split() == ["4", "3"], loaded
    sys.exit(0)

import autodist
from torch import nn

from cases import batch, mse, small


class Overflow(torch.autograd.Function):
    """The number itself; its gradient is multiplied by 2**1010 and divided by it again."""

    @staticmethod
    def forward(context, x, times):
        context.save_for_backward(times)
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        (times,) = context.saved_tensors
        return gradient * times / times, None


def scaled_loss(model, x, y, times):
    return nn.functional.mse_loss(model[2](torch.tanh(Overflow.apply(model[0](x), times))), y)


def sign_momentum(parameters, gradient, momentum, lr, step, beta):
    momentum.mul_(beta).add_(gradient, alpha=1 - beta)
    parameters.sub_(lr * momentum.sign() * (1 + step))


def expect_rule(builder, folder):
    """A rule of one's own and a trace; both are of the first job."""
    model, theirs = small(), small()
    momenta = [torch.zeros_like(each) for each in theirs.parameters()]
    ad = autodist.AutoDist("local:2", builder=builder, trace=True,
                           update_rules={"sign": (1, sign_momentum)})
    example = tuple(each[:5] for each in batch(0))
    trace = os.path.join(folder, f"{builder}-{ad.rank}.json")
    with ad.distribute(model, mse, "user:rule=sign,lr=0.01,beta=0.5", example) as step:
        for number in range(4):
            step(*batch(number))
            theirs.zero_grad()
            mse(theirs, *batch(number)).backward()
            with torch.no_grad():
                for each, momentum in zip(theirs.parameters(), momenta):
                    sign_momentum(each, each.grad, momentum, 0.01, number, 0.5)
        step.synchronize()
        step.write_trace(trace)
        step.export_torchscript(os.path.join(folder, f"{builder}.pt"))
    assert comparing.largest_difference(model.state_dict(), theirs.state_dict()) < 1e-12
    with open(trace, encoding="utf-8") as file:
        events = json.load(file)
    events = events["traceEvents"] if isinstance(events, dict) else events
    assert any("addmm" in str(each.get("name")) for each in events), events[:3]
    exported = torch.jit.load(os.path.join(folder, f"{builder}.pt")) if ad.is_chief else None
    if exported is not None:
        x, y = batch(9)
        assert torch.allclose(exported(x), model(x))
        assert torch.allclose(exported.train_step(x, y), mse(model, x, y))


def expect_in_place():
    """What a rule returns is nobody's: new values, which somebody used to writing functions makes."""
    def train(rule):
        ad = autodist.AutoDist(update_rules={"own": (0, rule)})
        session = ad.distribute(small(), mse, "user:rule=own,lr=0.02", batch(0))
        try:
            losses = [float(session(*batch(0))) for _ in range(5)]
            session.synchronize()
            return losses
        finally:
            session.close()

    losses = train(lambda p, g, lr, step: p.sub_(lr * g))
    assert losses[-1] < losses[0], losses
    comparing.refused("in place", train, lambda p, g, lr, step: p - lr * g)


def main(what, folder):
    if what == "in-place":
        return expect_in_place()
    if what.startswith("scaling-"):
        return expect_scaling(what.removeprefix("scaling-"))
    expect_rule(what, folder)
    if os.environ.get("AUTODIST_RANK") is None:
        comparing.run(__file__, "scaling-" + what, folder)
    return None


def expect_scaling(builder):
    """Two steps overflow, at one rank each; all skip them, and the scale follows."""
    model, theirs = small(), small()
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.01)
    scale, good, skipped = 65536.0, 0, 0
    ad = autodist.AutoDist("local:2", builder=builder,
                           loss_scaling="dynamic:scale=65536,interval=2")
    one = torch.ones(10, 1).double()
    example = tuple(each[:5] for each in (*batch(0), one))
    overflows = 0
    with ad.distribute(model, scaled_loss, torch.optim.Adam(model.parameters(), lr=0.01),
                       example) as step:
        for number in range(7):
            times = one.clone()
            if number in (2, 5):
                times[0 if number == 2 else 9] = 2.0**1020
            assert step.loss_scale().scale == scale, (number, step.loss_scale())
            loss = step(*batch(number), times)
            overflows += step.last.overflow
            theirs.zero_grad()
            (scaled_loss(theirs, *batch(number), times) * scale).backward()
            gradients = [each.grad for each in theirs.parameters()]
            found = any(not torch.isfinite(each).all() for each in gradients)
            if found:
                scale, good, skipped = scale / 2, 0, skipped + 1
            else:
                for each in gradients:
                    each /= scale
                optimizer.step()
                good += 1
                if good == 2:
                    scale, good = scale * 2, 0
            assert loss == loss and loss < 1e6
            step.summarise()
            assert step.last_summary().skipped == found, number
        last = step.loss_scale()
        assert (last.scale, last.good_steps, last.skipped) == (scale, good, skipped), last
        step.synchronize()
    assert skipped == 2 and overflows == 1, (skipped, overflows)
    assert comparing.largest_difference(model.state_dict(), theirs.state_dict()) < 1e-9


main(*sys.argv[1:])
