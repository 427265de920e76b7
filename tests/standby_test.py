"""A standby takes over: what comes out is what an undisturbed job makes, and nothing is left behind.

    standby_test.py AUTODIST
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

from killed import STEPS, Training, state_of, wait_for_none_with
from running import run

READY = "a standby is ready"


def wait_for_standby(job, number):
    job.until(lambda: job.said().count(READY) == number)


def a_standby_takes_over(autodist, folder):
    """Plans of a builder and of the search (encrypted: a library's sums differ from run to run), from snapshots and
    from checkpoints; the chief is lost, too."""
    for name, builder, more in (("PS", "PS", ()), ("search", "auto", ("--budget", "8", "--encrypt", "on")),
                                ("owing", "AllReduce:compressor=bf16+ef", ("--no-snapshots",))):
        place = folder / name
        (place / "clean").mkdir(parents=True)
        (place / "killed").mkdir()
        plan = place / "plan.pbtxt"
        steps = (8 if name == "PS" else 4) * STEPS  # three standbys are started meanwhile
        job = Training(autodist, place / "killed", "--standby", "--json", "--save", place / "killed" / "saved",
                       "--write-strategy", plan, *more, builder=builder, steps=steps)
        for number, ranks in enumerate(((1,), (0,), (0, 1)) if name == "PS" else ((0,),), start=1):
            wait_for_standby(job, number)
            job.until_steps(15)
            job.kill(*ranks)
            job.until(lambda: job.said().count("training again") == number)  # noqa: B023: called in this turn
        got = json.loads(job.ended(0))
        assert job.said().count("the standby takes over (1 of 3), from ") == number, job.said()
        assert "starting again" not in job.said(), job.said()
        if name == "owing":
            assert re.search(r"takes over \(1 of 3\), from \S+/step-\d+0\n", job.said()), job.said()
        clean = Training(autodist, place / "clean", "--json", "--save", place / "clean" / "saved", "--strategy", plan,
                         builder=builder, steps=steps)
        wanted = json.loads(clean.ended(0))
        assert wanted["reproducible"] and got["program_digest"] == wanted["program_digest"], (got, wanted)
        assert got["loss"] == wanted["loss"], (got, wanted)
        assert state_of(job.saved, steps) == state_of(clean.saved, steps), name
        times = re.findall(r"training again (\S+ \S+) after the loss", job.said())
        print(f"{name}: a standby takes over after {', '.join(times)}; the same bytes after step {steps}")


def a_standby_that_ends_is_no_loss(autodist, folder):
    job = Training(autodist, folder, "--standby", steps=1000000)
    wait_for_standby(job, 1)
    done = job.steps()
    os.kill(job.ranks(standby=True)[1], signal.SIGKILL)
    job.until(lambda: "no standby: " in job.said())
    said = re.search(r"no standby: its rank 0 \(pid \d+\) ended with exit code 5; it is tried again", job.said())
    assert said, job.said()
    job.until_steps(20)
    assert "starting again" not in job.said() and job.steps() > done, job.said()
    job.kill(1)  # as it is without one
    job.until(lambda: "training again" in job.said())
    assert "starting again (1 of 3), from step" in job.said(), job.said()
    job.process.send_signal(signal.SIGTERM)
    job.ended(0)
    print("a standby that ends is said, and the job goes on")


def a_loss_before_it_is_ready(autodist, folder):
    """And one of a standby that is halted, and of a job of one rank: all are started again, and counted once."""
    job = Training(autodist, folder, "--standby", steps=1000000)
    job.until(lambda: job.ranks(standby=True))
    os.kill(job.ranks(standby=True)[0], signal.SIGSTOP)
    job.until_steps(30)
    job.kill(1)
    job.until(lambda: "training again" in job.said())
    assert "starting again (1 of 3), from step" in job.said() and READY not in job.said(), job.said()
    wait_for_standby(job, 1)
    os.kill(job.ranks(standby=True)[0], signal.SIGSTOP)
    job.kill(1)
    job.until(lambda: job.said().count("training again") == 2)
    assert job.said().count("starting again (1 of 3), from step") == 2, job.said()
    assert "takes over" not in job.said(), job.said()
    job.process.send_signal(signal.SIGTERM)
    job.ended(0)
    # Another rank of it: the chief of a standby hears each of them every second.
    (folder / "other").mkdir()
    other = Training(autodist, folder / "other", "--standby", "--silence-timeout", 4, steps=1000000)
    wait_for_standby(other, 1)
    os.kill(other.ranks(standby=True)[1], signal.SIGSTOP)
    other.kill(1)
    other.until(lambda: "training again" in other.said())
    assert "starting again (1 of 3), from step" in other.said(), other.said()
    other.process.send_signal(signal.SIGTERM)
    other.ended(0)
    (folder / "alone").mkdir()
    alone = Training(autodist, folder / "alone", "--standby", ranks=1, steps=1000000)
    wait_for_standby(alone, 1)
    alone.kill(0)
    alone.until(lambda: "training again" in alone.said())
    assert "the standby takes over" in alone.said(), alone.said()
    alone.process.send_signal(signal.SIGTERM)
    alone.ended(0)
    print("a standby that is not ready, or halted, does not take over; that of one rank does")


def what_it_resumes_from_may_be_gone(autodist, folder):
    """Checkpoints that the job has dropped by now: a standby goes on from the newest."""
    first = Training(autodist, folder, "--save", folder / "saved", steps=20)
    first.ended(0)
    job = Training(autodist, folder, "--standby", "--no-snapshots", "--save", folder / "saved", "--resume",
                   folder / "saved" / "step-20", steps=1000000)
    job.until(lambda: not (folder / "saved" / "step-20").exists())
    for number in (1, 2):
        wait_for_standby(job, number)
        job.until_steps(100)
        job.kill(1)
        job.until(lambda: job.said().count("training again") == number)  # noqa: B023: called in this turn
    begun = [int(step) for step in re.findall(r"takes over \(1 of 3\), from \S+/step-(\d+)\n", job.said())]
    assert len(begun) == 2 and 50 < begun[0] < begun[1], job.said()
    job.process.send_signal(signal.SIGTERM)
    job.ended(0)
    print(f"checkpoints that come and go: standbys go on from steps {begun}")


def chaos_lets_it_wait(autodist, folder):
    command = [pathlib.Path(autodist).resolve(), "chaos", "--kill-every", "10", "--faults", "50", "--", "train", "digits", "--cluster",
               "local:2", "--builder", "PS", "--batch", "64", "--steps", "1000000", "--standby"]

    def harmed_those_that_took_over(said):
        return said.partition("the standby takes over")[2].count("training again") >= 2

    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job:
        said = ""
        # On a loaded machine the first faults may come before there is one.
        while not harmed_those_that_took_over(said):
            line = job.stderr.readline()
            assert line, said
            said += line
        job.send_signal(signal.SIGTERM)
        said += job.communicate(timeout=60)[1]
    assert job.returncode == 0 and "no standby" not in said, said
    print("chaos:", re.findall(r"autodist: (chaos: \d+ faults.*)", said)[0])


def nothing_is_left(autodist, folder):
    """After the job's end, a signal to it, and the death of who started it; none speaks before its turn."""
    mark = f"AUTODIST_TEST_MARK={os.getpid()}"
    environment = {**os.environ, "AUTODIST_TEST_MARK": str(os.getpid())}
    for how in ("end", "signal", "death"):
        (folder / how).mkdir()
        job = Training(autodist, folder / how, "--standby", steps=4 * STEPS if how == "end" else 1000000,
                       environment=environment)
        wait_for_standby(job, 1)
        ranks = list(job.ranks(standby=True).values())
        assert len(ranks) == 2, ranks
        if how == "end":
            job.ended(0)
        elif how == "signal":
            job.process.send_signal(signal.SIGTERM)
            job.ended(0)
        else:
            job.process.kill()
            job.process.communicate(timeout=60)
        wait_for_none_with(mark)
        assert "stopped" not in job.said() and "standby:" not in job.said(), job.said()
    print("nothing is left of a standby: at the job's end, after a signal, after a kill -9")


def what_is_refused(autodist):
    train = [autodist, "train", "digits", "--cluster", "local:1", "--steps", "1"]
    for command, words in ((train + ["--standby", "--restarts", "0"], "--standby with --restarts 0: "),
                           ([autodist, "run", "--standby", "--cluster", "local:1", "--", "true"],
                            "--standby with --restarts 0: "),
                           (train + ["--standby=false"], "--standby: takes no value. Leave that out.")):
        done = run(command, 2)
        assert words in done.stderr, (command, done)
    done = run(train + ["--restarts", "0"], 2, env={**os.environ, "AUTODIST_STANDBY": "1"})
    assert "AUTODIST_STANDBY without AUTODIST_JOB_FD" in done.stderr, done
    print("without restarts, and with a value, it is refused")


def main(autodist):
    with tempfile.TemporaryDirectory(prefix="autodist-standby-") as name:
        folder = pathlib.Path(name)
        what_is_refused(autodist)
        for part in (a_standby_takes_over, a_standby_that_ends_is_no_loss, a_loss_before_it_is_ready,
                     what_it_resumes_from_may_be_gone, chaos_lets_it_wait, nothing_is_left):
            place = folder / part.__name__
            place.mkdir()
            part(autodist, place)


main(sys.argv[1])
