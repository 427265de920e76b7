"""What plain PyTorch does between backward() and the next batch, and a session does itself."""

import comparing
from comparing import refused

comparing.skip_without_torch()

from torch.nn.utils import clip_grad_norm_ as clip_by_norm  # a script may import it first

import autodist
import torch
from torch import nn

from cases import mse


def make():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1)).double()


def gradients(model, batch):
    model.zero_grad()
    mse(model, *batch).backward()
    return model


class Own(torch.optim.SGD):  # a class of somebody else's, made after the package was imported
    def step(self, closure=None):
        return super().step(closure)


def expect_refusals(batch):
    ours, theirs = make(), make()
    optimizer = torch.optim.Adam(ours.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
    with autodist.AutoDist().distribute(ours, mse, optimizer, batch) as step:
        step(*batch)
        for clip in (clip_by_norm, nn.utils.clip_grad_norm_, nn.utils.clip_grad.clip_grad_norm_):
            refused(["clip_grad_norm_", "'0.weight'", "clip=MAX_NORM"], clip, ours.parameters(), 1.0)
        refused(["clip_grad_norm_", "'1.bias'"], clip_by_norm, ours[1].bias, max_norm=1.0)
        refused(["clip_grad_value_", "update_rules"], nn.utils.clip_grad_value_,
                ours.parameters(), 0.1)
        refused(["Adam.step()", "'0.weight'", "leave this call out"], optimizer.step)
        refused(["SGD.step()", "'1.weight'"], torch.optim.SGD(ours[1].parameters(), lr=1).step)
        refused(["Own.step()"], Own(ours.parameters(), lr=1).step)
        # It does nothing, and no harm.
        step.synchronize()
        before = {name: each.clone() for name, each in ours.state_dict().items()}
        optimizer.zero_grad()
        ours.zero_grad()
        assert comparing.largest_difference(ours.state_dict(), before) == 0
        first = step(*batch)
        optimizer.zero_grad(set_to_none=True)
        assert step(*batch) < first
        # Other parameters are nobody's business.
        other = torch.optim.Adam(theirs.parameters(), lr=0.1)
        norm = clip_by_norm(gradients(theirs, batch).parameters(), 0.5)
        assert norm > 0 and other.step() is None
        assert other.state[theirs[0].weight]["step"] == 1
    # And these are like others once the job is over.
    gradients(ours, batch)
    assert clip_by_norm(ours.parameters(), 0.5) > 0
    optimizer.step()
    assert scheduler.last_epoch == 0


def expect_clipped(batch):
    """`clip=` is what clip_grad_norm_ does, for an optimizer of torch.optim and for a text."""
    for given in (lambda p: torch.optim.SGD(p, lr=0.5), "sgd:lr=0.5", "sgd"):
        ours, theirs = make(), make()
        lr = 0.001 if given == "sgd" else 0.5
        optimizer = torch.optim.SGD(theirs.parameters(), lr=lr)
        with autodist.AutoDist().distribute(ours, mse, given, batch, clip=0.05) as step:
            for _ in range(4):
                step(*batch)
                gradients(theirs, batch)
                assert clip_by_norm(theirs.parameters(), 0.05) > 0.05
                optimizer.step()
            step.synchronize()
        difference = comparing.largest_difference(ours.state_dict(), theirs.state_dict())
        assert difference < 1e-5, difference  # torch divides by the norm plus 1e-6
    for wrong in (0, -1.0, True, "1"):
        refused(["clip=", "above 0"], autodist.AutoDist().distribute, make(), mse, "sgd", batch,
                clip=wrong)


def main():
    torch.manual_seed(0)
    batch = (torch.randn(6, 4).double(), torch.randn(6, 1).double())
    expect_refusals(batch)
    expect_clipped(batch)
    print("guards: refused, or as ever")


main()
