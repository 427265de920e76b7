"""Ranks are lost, and all start again: what comes out is what an undisturbed job makes.

    restarts_test.py AUTODIST

Ranks, the chief among them, are killed with SIGKILL while `autodist train` trains. The files of the last checkpoint are
those of a job that lost nothing. Whoever cannot get on gives up and says so; nothing is left behind.
"""

import contextlib
import json
import math
import os
import pathlib
import re
import shlex
import signal
import sys
import tempfile
import time

from killed import STEPS, Training, state_of
from ranks import wait_for_ends
from running import SECONDS, run

LEAST_SILENCE = 4  # seconds that may be asked for


def killed_ranks_change_nothing(autodist, folder):
    """Under plans of builders and of the search: every generation takes the first one's."""
    for builder, more in (("PS", ()), ("auto", ("--budget", "8"))):
        place = folder / builder
        (place / "clean").mkdir(parents=True)
        (place / "killed").mkdir()
        plan = place / "plan.pbtxt"
        job = Training(autodist, place / "killed", "--json", "--save", place / "killed" / "saved", "--write-strategy",
                       plan, "--report", place / "report.html", *more, builder=builder)
        job.until_steps(25)
        first = plan.read_bytes()
        job.kill(1)
        job.until(lambda: "training again" in job.said())
        job.until_steps(15)
        job.kill(0)  # the chief
        job.until(lambda: job.said().count("training again") == 2)
        if builder == "PS":
            job.until_steps(15)
            job.kill(0, 1)
            job.until(lambda: job.said().count("training again") == 3)
        got = json.loads(job.ended(0))
        assert plan.read_bytes() == first, builder
        assert "was done again" not in job.said() and "now computes on" not in job.said(), job.said()
        times = re.findall(r"training again (\S+ \S+) after the loss", job.said())
        assert len(times) == (3 if builder == "PS" else 2), job.said()
        in_report = re.search(r'"losses":\[(.*?)\]', (place / "report.html").read_text())[1]
        assert in_report.count('"away_seconds":') == len(times), in_report
        clean = Training(autodist, place / "clean", "--json", "--save", place / "clean" / "saved", "--strategy", plan,
                         builder=builder)
        wanted = json.loads(clean.ended(0))
        assert got["loss"] == wanted["loss"] and got["program_digest"] == wanted["program_digest"], (got, wanted)
        assert state_of(job.saved, STEPS) == state_of(clean.saved, STEPS), builder
        print(f"{builder}: {len(times)} losses, training again after {', '.join(times)}, the same bytes after step {STEPS}")


def without_checkpoints_it_goes_on_from_memory(autodist, folder):
    """Of a job that saves at its end alone. Buffers of replicas and what compression owes are in it, too."""
    for model, builder in (("digits", "PS"), ("digits-norm", "AllReduce:compressor=bf16+ef")):
        place = folder / model
        (place / "clean").mkdir(parents=True)
        (place / "killed").mkdir()
        job = Training(autodist, place / "killed", "--json", "--save", place / "killed" / "saved", model=model,
                       builder=builder, every=0)
        for number in (1, 0):
            job.until_steps(30)
            job.kill(number)
            job.until(lambda: job.said().count("training again") == 2 - number)
        got = json.loads(job.ended(0))
        begun = [int(step) for step in re.findall(r"starting again \(\d of 3\).*?, from step (\d+), which is in memory",
                                                  job.said())]
        assert len(begun) == 2 and 5 <= begun[0] <= begun[1], job.said()
        assert [int(step) for step in re.findall(r"training again .* was noticed, from step (\d+)", job.said())] == begun, job.said()
        clean = Training(autodist, place / "clean", "--json", "--save", place / "clean" / "saved", model=model,
                         builder=builder, every=0)
        wanted = json.loads(clean.ended(0))
        assert got["loss"] == wanted["loss"], (got, wanted)
        assert state_of(job.saved, STEPS) == state_of(clean.saved, STEPS), builder
        print(f"{model}: from memory, from steps {begun}; the same bytes after step {STEPS}")


def it_gives_up(autodist, folder):
    """After as many starts as were allowed, which got no further. What memory has is saved then, and what is said
    goes on from it."""
    job = Training(autodist, folder, "--restarts", 1, "--save", folder / "saved", every=0)
    job.until_steps(30)
    job.kill(1)
    job.until(lambda: "starting again (1 of 1)" in job.said() and 1 in job.ranks())
    job.kill(1)  # before its first step
    job.ended(5)
    assert "given up: 1 start in a row got no further than step" in job.said(), job.said()
    told = re.search(r"to go on from \S+step-(\d+): (.*)", job.said())
    assert told and f"from step {told[1]}, which is in memory" in job.said(), job.said()
    command = shlex.split(told[2])
    assert command[:3] == ["autodist", "train", "digits"] and command[-2] == "--resume", command
    run([autodist, *command[1:]])
    state_of(folder / "saved", STEPS)
    print(f"given up: what was in memory, of step {told[1]}, lies where checkpoints are, and what is said goes on")


def a_signal_while_it_starts_again_keeps_it(autodist, folder):
    job = Training(autodist, folder, "--save", folder / "saved", every=0, steps=1000000)
    job.until_steps(30)
    job.kill(1)
    job.until(lambda: "starting again" in job.said())
    job.process.send_signal(signal.SIGTERM)
    job.process.communicate(timeout=SECONDS)
    # A chief that has just been started may not hear it yet, and none may have been started.
    assert job.process.returncode in (0, 5, 128 + signal.SIGTERM), (job.process.returncode, job.said())
    begun = re.search(r"from step (\d+), which is in memory", job.said())
    newest = max(int(each.name[5:]) for each in job.saved.glob("step-*"))
    assert begun and newest >= int(begun[1]), (newest, job.said())
    assert "nothing was trained or saved" not in job.said(), job.said()
    print(f"a signal while it starts again: step {newest} lies where checkpoints are")


def a_second_signal_keeps_it(autodist, folder):
    """To a job that cannot end in order."""
    job = Training(autodist, folder, "--save", folder / "saved", every=0, steps=1000000)
    job.until_steps(30)
    ranks = job.ranks()
    os.kill(ranks[1], signal.SIGSTOP)
    job.process.send_signal(signal.SIGTERM)
    time.sleep(1.5)  # a signal that comes within a second counts as the same wish
    assert job.process.poll() is None, job.said()
    job.process.send_signal(signal.SIGTERM)
    job.ended(128 + signal.SIGTERM)
    wait_for_ends(ranks.values())
    saved = re.search(r"what was in memory is (\S+/step-(\d+))", job.said())
    assert saved and int(saved[2]) >= 5, job.said()
    again = Training(autodist, folder, "--resume", saved[1], steps=saved[2])
    assert f"it is at step {saved[2]} already" in again.ended(0), again.said()
    print(f"a second signal ends all ranks, and what was in memory, of step {saved[2]}, is a checkpoint that is loaded")


def cpu_quota():
    """How many cores this process' control group and those above it, of version 2, leave it; without a limit inf."""
    quota, root = math.inf, pathlib.Path("/sys/fs/cgroup")
    own = re.search(r"^0::/(.*)$", pathlib.Path("/proc/self/cgroup").read_text(), re.M)
    group = root / (own[1] if own else "")
    for each in (group, *group.parents):
        with contextlib.suppress(OSError, ValueError):  # there is no such file, or no limit: "max"
            microseconds, period = (each / "cpu.max").read_text().split()
            quota = min(quota, float(microseconds) / float(period))
    return quota


def a_start_with_other_threads_says_so(autodist, folder):
    """Where the cores that a rank may run on are others than in the start before."""
    allowed = sorted(os.sched_getaffinity(0))
    if min(len(allowed), cpu_quota()) < 2 or "OMP_NUM_THREADS" in os.environ:
        print("SKIPPED in part: a rank has one thread here in any case")
        return
    job = Training(autodist, folder, ranks=1, steps=1000000)
    job.until_steps(10)
    os.sched_setaffinity(job.process.pid, allowed[:1])
    job.kill(0)
    job.until(lambda: "training again" in job.said())
    told = re.findall(r"rank 0 now computes on .* with 1 thread in place of .* with \d+ threads: results may", job.said())
    assert len(told) == 1, job.said()
    job.process.send_signal(signal.SIGTERM)
    job.ended(0)
    print("a start with fewer threads says so")


def without_both_it_begins_again(autodist, folder):
    job = Training(autodist, folder, "--no-snapshots")
    job.until_steps(10)
    job.kill(1)
    job.ended(0)
    assert "starting again (1 of 3), as it was started: it has saved no checkpoint yet" in job.said(), job.said()
    assert re.search(r"training again .* from step 0; \d+ steps? (is|are) done once more", job.said()), job.said()
    print("without checkpoint and snapshot the job begins again, and says so")


def an_older_jobs_checkpoint_is_not_this_jobs(autodist, folder):
    """A folder with a checkpoint of more steps, of a job before: nothing of it is taken."""
    old = Training(autodist, folder, "--save", folder / "saved", steps=STEPS + 10)
    old.ended(0)
    job = Training(autodist, folder, "--save", folder / "saved", "--seed", 7, "--no-snapshots")
    job.until_steps(15)
    job.kill(1)
    job.ended(0)
    begun = re.search(r"starting again \(1 of 3\), from (\S+)", job.said())
    assert begun and 10 <= int(begun[1].rsplit("-", 1)[1]) < STEPS, job.said()
    print("what another job saved in the folder is left alone")


def a_chief_that_is_halted_is_lost(autodist, folder):
    """Also where it has no ranks beside it. A job that is halted as a whole, as by Ctrl-Z, goes on."""
    for number in (1, 2):
        place = folder / str(number)
        place.mkdir()
        job = Training(autodist, place, "--json", "--silence-timeout", LEAST_SILENCE, ranks=number, steps=1000000)
        job.until_steps(20)
        everybody = [job.process.pid, *(pid for _, pid in sorted(job.ranks().items()))]
        for each in everybody:
            os.kill(each, signal.SIGSTOP)
        time.sleep(LEAST_SILENCE + 2)
        for each in everybody:
            os.kill(each, signal.SIGCONT)
        job.until_steps(20)
        assert "starting again" not in job.said(), job.said()
        os.kill(everybody[1], signal.SIGSTOP)
        job.until(lambda: "training again" in job.said())
        said = re.search(r"the chief, rank 0 \(pid (\d+)\), has been silent for [4-9]\.?\d* s \(--silence-timeout "
                         r"waits longer\): killed", job.said())
        assert said and int(said[1]) == everybody[1] and "was killed by signal" not in job.said(), job.said()
        job.process.send_signal(signal.SIGTERM)
        assert json.loads(job.ended(0))["interrupted"]
    print("a chief that is halted is lost, and a job that is halted is not")


def a_job_that_never_trained_is_over(autodist, folder):
    job = Training(autodist, folder)
    job.until(lambda: 1 in job.ranks())
    job.kill(1)
    job.ended(5)
    assert "starting again" not in job.said(), job.said()
    refused = run([autodist, "train", "digits", "--builder", "nobody"], 2)
    assert len(refused.stderr.splitlines()) == 1, refused
    for words in (["--restarts", "some"], ["--restarts=-1"], ["--grace", "-3"]):
        refused = run([autodist, "train", "digits", *words], 2)
        assert words[0].split("=")[0] in refused.stderr, refused
    print("what never trained, or is refused, is not tried again")


def signals_end_it_in_order(autodist, folder):
    """To the process that was started, to the chief, to another rank; and that one killed."""
    for index, whom in enumerate(("first", 0, 1, "killed")):
        place = folder / str(index)
        place.mkdir()
        job = Training(autodist, place, "--save", place / "saved", steps=1000000)
        job.until_steps(5)
        ranks = job.ranks()
        if whom == "killed":
            os.kill(job.process.pid, signal.SIGKILL)
            job.process.wait()
        else:
            os.kill(job.process.pid if whom == "first" else ranks[whom], signal.SIGTERM)
            out = job.ended(0)
            assert "interrupted after step" in out, (out, job.said())
        assert "starting again" not in job.said(), job.said()
        wait_for_ends(ranks.values())
        newest = max(int(each.name[5:]) for each in job.saved.glob("step-*") if each.name[5:].isdigit())
        assert newest == job.steps(), (whom, newest, job.steps())
    print("a signal, and the end of who looks after it, end the job with a checkpoint of its last step")


def grace_is_an_end(autodist, folder):
    job = Training(autodist, folder, "--grace", 1.5, "--restarts", 0, steps=1000000)
    job.until_steps(5)
    ranks = job.ranks()
    os.kill(ranks[1], signal.SIGSTOP)  # nobody can end a step without it
    began = time.monotonic()
    job.process.send_signal(signal.SIGTERM)
    job.ended(128 + signal.SIGKILL)
    assert time.monotonic() - began < 10
    assert "still at work 1.50 s after SIGTERM: killed (a longer --grace waits longer)" in job.said(), job.said()
    wait_for_ends(ranks.values())
    print("a job that does not end within its grace is killed")


def main(autodist):
    with tempfile.TemporaryDirectory(prefix="autodist-restarts-") as name:
        for part in (killed_ranks_change_nothing, without_checkpoints_it_goes_on_from_memory,
                     it_gives_up, a_signal_while_it_starts_again_keeps_it,
                     a_second_signal_keeps_it, a_start_with_other_threads_says_so,
                     without_both_it_begins_again, a_chief_that_is_halted_is_lost,
                     an_older_jobs_checkpoint_is_not_this_jobs, a_job_that_never_trained_is_over,
                     signals_end_it_in_order, grace_is_an_end):
            folder = pathlib.Path(name) / part.__name__
            folder.mkdir()
            part(autodist, folder)


main(sys.argv[1])
