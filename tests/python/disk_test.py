"""A checkpoint that cannot be written raises at all who save, and the session goes on."""

import os
import resource
import signal
import sys
import tempfile
import time

import comparing
from running import run

comparing.skip_without_torch()


def test():
    with tempfile.TemporaryDirectory() as folder:
        for builder in ("PS", "AllReduce", "PS:staleness=2", "PS:sync=False"):
            comparing.run(__file__, "all", builder, os.path.join(folder, builder.replace(":", "-")))
            print(f"{builder}: as said")
        for case in ("alone", "two", "two-norm"):
            comparing.run(__file__, case, "PS", os.path.join(folder, case))
            print(f"{case}: as said")
        # Said once at its first step, and at the end, which has the exit code of what is missing.
        full = "log= /dev/full: No space left on device"
        for case in ("log", "log-left-open"):
            done = run([sys.executable, __file__, case, "PS", folder], 6)
            missing = [line for line in done.stderr.splitlines() if line.startswith("autodist: ") and full in line]
            assert done.stderr.count(full) == 2, (case, done.stderr)
            assert missing[0] == f"autodist: {full}; step 0 is missing in it, the training goes on", missing
            report = "report= /dev/full: cannot be written: write: No space left on device"
            assert done.stderr.splitlines()[-1].endswith(f": {full}; {report}"), done.stderr
            print(f"{case}: as said")
        at_a_step = ("no checkpoint of step 4: save: {at}: ", "the job goes on, and tries again at its end")
        beside = ("no checkpoint of step 3: ", "File too large; the training goes on")
        for parts, cases in ((at_a_step, ("late", "never", "never-log")), (beside, ("beside", "beside-newer", "beside-never"))):
            for case in cases:
                at = os.path.join(folder, case)
                said = comparing.run(__file__, case, "PS", at).stderr
                warnings = [line for line in said.splitlines() if "no checkpoint of step" in line]
                assert len(warnings) == 1 and all(part.format(at=at) in warnings[0] for part in parts), said
                print(f"{case}: as said")


if len(sys.argv) == 1:  # the test; else a rank of the job
    test()
    sys.exit(0)

import autodist
import torch
from torch import nn

from cases import mse

case, builder, folder = sys.argv[1:]


def fill_disk():
    """Files may not grow, at the chief; returns what they might before."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if step.is_chief:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))
    return before


def raises_as_on_a_full_disk():
    before = fill_disk()
    try:
        comparing.raised(autodist.CheckpointError, "File too large", step.save, folder)
    finally:
        if step.is_chief:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    if step.is_chief:
        assert os.listdir(folder) == [".lock"], os.listdir(folder)


def saves_again():
    """Now there is room, and it is the same step."""
    step.save(folder)
    step.save(folder)  # once more, as after a loop that has just saved
    assert not step.is_chief or sorted(os.listdir(folder)) == [".lock", "step-3"], os.listdir(folder)


def export_raises():
    """Where only the chief writes, at all who call it."""
    comparing.raised(autodist.MachineError, "/dev/full: cannot be written", step.export_torchscript, "/dev/full")


def saves_two():
    """The last values, and an average of some, between the same two steps."""
    step.save(os.path.join(folder, "last"))
    last = [each.detach().clone() for each in model.parameters()]
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(0.5)
    step.save(os.path.join(folder, "average"))
    with torch.no_grad():
        for each, own in zip(model.parameters(), last):
            each.copy_(own)
    return last


def expect_saved(name, values):
    one = autodist.AutoDist()
    with one.distribute(model, mse, torch.optim.Adam(model.parameters()), (x, y)) as other:
        assert other.load(os.path.join(folder, name)) == 3
        for each, value in zip(model.parameters(), values):
            assert torch.equal(each, value), name


def train(count):
    for _ in range(count):
        step(x, y)


torch.manual_seed(1)
norm = [nn.BatchNorm1d(32)] if case in ("late", "never", "never-log", "two-norm") else []
model = nn.Sequential(nn.Linear(8, 32), *norm, nn.Tanh(), nn.Linear(32, 2))
x, y = torch.randn(8, 8), torch.randn(8, 2)
full = "/dev/full" if "log" in case else None
ad = autodist.AutoDist("local:2", builder=builder, log=full, report=full)
step = ad.distribute(model, mse, torch.optim.Adam(model.parameters()), (x[:4], y[:4]))
expected = ["step-3", "step-5"]
if case == "all":
    with step:
        train(3)
        raises_as_on_a_full_disk()
        raises_as_on_a_full_disk()
        export_raises()
        saves_again()
        train(2)
        step.save(folder)
        train(1)
elif case.startswith("two"):
    with step:
        train(3)
        last = saves_two()
        train(1)
    if step.is_chief:
        expect_saved("last", last)
        expect_saved("average", [each * 0.5 for each in last])
    expected = None
elif case == "log":
    with step:
        train(3)
    expected = None
elif case == "log-left-open":
    train(3)
    expected = None
elif case == "alone":
    # The owners hold all of it: nobody else takes part.
    with step:
        train(3)
        if step.is_chief:
            export_raises()
            raises_as_on_a_full_disk()
            saves_again()
        train(2)
        step.save(folder)
        train(1)
elif case.startswith("beside"):
    # Written while the steps go on, in vain; then there is room again, or there is not.
    train(3)
    before = fill_disk()
    step.save(folder, wait=False)
    train(20)
    if step.is_chief:
        time.sleep(2)  # for the thread that writes, on a machine with other things to do
        assert os.listdir(folder) == [".lock"], os.listdir(folder)
        if case != "beside-never":
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    if case == "beside-newer":
        step.save(folder, wait=False)
    try:
        step.finish()
        assert case != "beside-never" or not step.is_chief
    except autodist.CheckpointError as error:
        assert step.is_chief and "no checkpoint of step 3: " in str(error), error
    expected = {"beside": ["step-3"], "beside-newer": ["step-23"]}.get(case)
else:
    # The statistics of the others are part of it, so all write it after step 4; a file is in the way.
    train(2)
    if step.is_chief:
        open(folder, "w").close()
        step.save(folder)
    train(3)
    step.synchronize()
    if case == "late":
        if step.is_chief:
            os.remove(folder)
        step.finish()
        expected = ["step-5"]
    else:
        try:
            step.finish()
            assert not step.is_chief
        except autodist.CheckpointError as error:
            assert step.is_chief and "no checkpoint of step 5: save: " in str(error), error
            # One error for all that is missing, of a job that has ended: its parameters are nobody's.
            for missing in ("log= /dev/full", "report= /dev/full"):
                assert (missing in str(error)) == (case == "never-log"), error
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        expected = None
if step.is_chief and expected:
    assert sorted(os.listdir(folder)) == expected, os.listdir(folder)
