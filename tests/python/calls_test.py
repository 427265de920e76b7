"""Calls that only some ranks make: named at once, or made right; a chief that leaves its loop."""

import os
import re
import subprocess
import sys
import tempfile
import time

import comparing

comparing.skip_without_torch()

import torch

RANKS = 2


def run(case, *arguments):
    """Exit code and all that was printed."""
    done = subprocess.run([sys.executable, __file__, case, *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def ends_with(case, *patterns, code=None):
    ended, text = run(case)
    assert ended != 0 if code is None else ended == code, (case, ended, text)
    for pattern in patterns:
        assert re.search(pattern, text), (case, pattern, text)
    print(f"{case}: as said")


def test():
    # The stall limit of these is 300 s, which is beyond the test's own.
    ends_with("evaluate-alone", "rank 0 called evaluate\\(\\) at step 2, rank 1 is at step 3")
    ends_with("other-call", "rank [01] called (evaluate|sum_over_ranks)\\(\\) at step 1, "
              "rank [01] called (evaluate|sum_over_ranks)\\(\\) at step 1")
    ends_with("load-alone", "rank 0 called load\\(\\), rank 1 is at its first step")
    ends_with("rank-1-finishes", "rank 1 called finish\\(\\) at step 2, rank 0 is at step 3")
    where = ("in sum_over_ranks\\(\\) at step 1 for rank 1, which is at step 1 and in no call")
    ends_with("nobody-comes", f"autodist: rank 0 waits {where}",
              f"rank 0 has waited [6-9].* {where}")
    ends_with("chief-breaks", "rank 1 ended", code=0)
    ends_with("chief-breaks-uncaught", code=0)
    ends_with("chief-breaks-where-results-are-asked-for", code=0)
    ends_with("chief-evaluates-and-breaks", code=0)
    with tempfile.TemporaryDirectory() as folder:
        for case in ("statistics", "save-plain", "save-norm", "save-norm-late", "save-asynchronous",
                     "chief-breaks-and-saves"):
            code, text = run(case, os.path.join(folder, case))
            assert code == 0, (case, text)
            print(f"{case}: as said")


if len(sys.argv) == 1:
    test()
    sys.exit(0)

import autodist

from cases import batch, mse, small


def job(norm, builder="PartitionedPS", **options):
    model = small(norm)
    ad = autodist.AutoDist(f"local:{RANKS}", builder=builder, **options)
    example = tuple(each[:5] for each in batch(0))
    return model, ad.distribute(model, mse, "adam:lr=0.01", example)


def train(step, first, last):
    for number in range(first, last):
        step(*batch(number))


def evaluate_alone():
    _, step = job(norm=True)
    with step:
        train(step, 0, 2)
        if step.is_chief:
            step.evaluate(mse, *batch(9))
        train(step, 2, 9)


def other_call():
    _, step = job(norm=True)
    with step:
        train(step, 0, 1)
        if step.is_chief:
            step.evaluate(mse, *batch(9))
        else:
            step.sum_over_ranks([1.0])


def load_alone():
    _, step = job(norm=False)
    with step:
        if step.is_chief:
            step.load("nowhere")
        train(step, 0, 9)


def rank_1_finishes():
    _, step = job(norm=False)
    train(step, 0, 2 if step.rank == 1 else 9)
    step.finish()


def nobody_comes():
    _, step = job(norm=False, stall_limit=6)
    with step:
        train(step, 0, 1)
        if step.rank == 1:
            time.sleep(60)
        step.sum_over_ranks([1.0])


def chief_breaks():
    _, step = job(norm=False)
    try:
        with step:
            for number in range(50):
                step(*batch(number))
                step.summarise()
                if step.is_chief and number == 4:
                    break
    except autodist.JobEnded as ended:
        assert step.rank == 1 and "rank 0 called finish() at step 5, rank 1" in str(ended), ended
        print("rank 1 ended", file=sys.stderr)
    else:
        assert step.is_chief


def chief_breaks_uncaught():
    _, step = job(norm=False)
    for number in range(50):
        step(*batch(number))
        if step.is_chief and number == 4:
            break
    assert step.is_chief, "a rank has trained on without its chief"


def chief_breaks_where_results_are_asked_for():
    """The chief's model is the newest, though nobody else comes to synchronize."""
    torch.manual_seed(3)
    model, step = job(norm=False, builder="PSLoadBalancing:results=asked")
    before = {name: each.clone() for name, each in model.state_dict().items()}
    with step:
        for number in range(50):
            step(*batch(number))
            if step.is_chief and number == 4:
                time.sleep(0.5)  # rank 1 takes the next step meanwhile
                break
    alone = small(False)
    alone.load_state_dict(before)
    with autodist.AutoDist("").distribute(alone, mse, "adam:lr=0.01", batch(0)) as step:
        train(step, 0, 5)
        step.synchronize()
        expected = {name: each.clone() for name, each in alone.state_dict().items()}
    for name, each in model.state_dict().items():
        assert torch.allclose(each, expected[name], atol=1e-8), (name, each, expected[name])


def chief_evaluates_and_breaks():
    """What the chief has asked for in a call is not asked for again; nobody would answer."""
    _, step = job(norm=False, builder="PSLoadBalancing:sync=false", stall_limit=20)
    begun = time.monotonic()
    with step:
        for number in range(50):
            step(*batch(number))
            if number == 4:
                step.evaluate(mse, *batch(9))
                if step.is_chief:
                    time.sleep(0.5)  # rank 1 goes on meanwhile
                    break
    assert time.monotonic() - begun < 15


def chief_breaks_and_saves(folder):
    """What the chief wanted to save is there, if without the others' statistics."""
    model, step = job(norm=True)
    with step:
        for number in range(50):
            step(*batch(number))
            if step.is_chief and number == 4:
                step.save(folder)
                break
    assert os.listdir(folder) == ["step-5"], os.listdir(folder)
    expected = {name: each.clone() for name, each in model.state_dict().items()}
    loaded, alone = small(True), autodist.AutoDist("")
    with alone.distribute(loaded, mse, "adam:lr=0.01", batch(0)) as step:
        assert step.load(folder) == 5
        for name, each in loaded.state_dict().items():
            assert torch.equal(each, expected[name]), name


def statistics(_):
    model, step = job(norm=True)
    norm = model[1]
    with step:
        train(step, 0, 3)
        own = norm.running_mean.clone()
        figures = {}
        for whose in ("chief", "mean"):
            for _ in range(2):  # the second time nothing is asked of the others
                figures[whose] = step.evaluate(mse, *batch(9), statistics=whose).item()
                assert torch.equal(norm.running_mean, own)
        sums = step.sum_over_ranks([*figures.values(), *own.tolist()])
        assert sums[0] == RANKS * figures["chief"] and sums[1] == RANKS * figures["mean"], sums
        assert figures["chief"] != figures["mean"]
        middle = torch.tensor(sums[2:], dtype=own.dtype) / RANKS
        assert not torch.allclose(middle, own)  # each rank has its own
        seen = step.evaluate(lambda model: model[1].running_mean.clone(), statistics="mean")
        assert torch.allclose(seen, middle)
        seen = step.evaluate(lambda model: model[1].running_mean.clone())
        assert torch.equal(seen, own) == step.is_chief
        comparing.refused("'chief' or 'mean' expected", step.evaluate, mse, *batch(9), statistics="median")
        train(step, 3, 5)  # none of it has ended the job


def steps_in(folder):
    return sorted(each for each in os.listdir(folder) if each.startswith("step-"))


def save_plain(folder):
    """The owners hold all of it: at once, and it goes on as if it had been saved by all."""
    model, step = job(norm=False)
    with step:
        train(step, 0, 3)
        if step.is_chief:
            step.save(folder)
            assert steps_in(folder) == ["step-3"]
            step.evaluate(mse, *batch(9))
        train(step, 3, 6)
        step.synchronize()
        expected = [each.clone() for each in model.state_dict().values()]
    if step.is_chief:
        comparing.run(__file__, "resume", folder, "0", "3", *numbers(expected))


def numbers(tensors):
    return [repr(sum(each.double().sum().item() for each in tensors))]


def resume(folder, norm, first, expected):
    model, step = job(norm=norm == "1")
    with step:
        assert step.load(folder) == int(first)
        train(step, int(first), 6)
        step.synchronize()
        if step.is_chief:
            assert numbers(model.state_dict().values()) == [expected]


def save_norm(folder):
    """All save two steps later; the others' statistics are among it."""
    model, step = job(norm=True)
    with step:
        train(step, 0, 2)
        if step.is_chief:
            step.save(folder)
            assert not os.path.exists(folder)
        train(step, 2, 4)
        step.synchronize()
        if step.is_chief:
            step.save(folder)  # is there already
            assert steps_in(folder) == ["step-4"]
        train(step, 4, 6)
        step.synchronize()
        expected = [each.clone() for each in model.state_dict().values()]
    if step.is_chief:
        assert steps_in(folder) == ["step-4"]
        comparing.run(__file__, "resume", folder, "1", "4", *numbers(expected))


def save_norm_late(folder):
    """After the last step: in finish(). And all ranks may save as ever."""
    _, step = job(norm=True)
    with step:
        train(step, 0, 2)
        step.save(folder)
        train(step, 2, 5)
        if step.is_chief:
            step.save(folder)
            assert steps_in(folder) == ["step-2"]
    if step.is_chief:
        assert steps_in(folder) == ["step-2", "step-5"], steps_in(folder)


def save_asynchronous(folder):
    _, step = job(norm=False, builder="PS:sync=false")
    with step:
        for number in range(6):
            step(*batch(number))
            if step.is_chief and number == 2:
                step.save(folder)
        step.evaluate(mse, *batch(9))
        assert not os.path.exists(folder)
    if step.is_chief:
        assert steps_in(folder) == ["step-6"], steps_in(folder)


case, *arguments = sys.argv[1:]
globals()[case.replace("-", "_")](*arguments)
