"""How a job ends that a script leaves, before its first step and without a `with` block."""

import os
import signal
import subprocess
import sys
import tempfile
import time

import comparing

comparing.skip_without_torch()

SCRIPT = """
import atexit, os, signal, sys, threading, time, autodist, torch
word = sys.argv[1]
if word == "sigterm-own":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(9))
rank = int(os.environ.get("AUTODIST_RANK", "0"))
made = []
if word == "alone-first":
    autodist.AutoDist("local:1")
def make():
    made.append(autodist.AutoDist("local:2", join_limit=3.0 if "sleep" in word else 60.0))
if word == "thread":
    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
else:
    make()
ad = made[0]
model = torch.nn.Linear(4, 1)
def loss(m, x):
    if word == "raise-in-loss" and ad.rank == 1:
        raise KeyError("in the loss")
    if word in ("ctrl-c", "sigterm-early"):
        print("capturing", flush=True)
        for _ in range(20000):
            x = x + 0.0
            time.sleep(0.005)
    return m(x).square().mean()
if word == "raise" and ad.rank == 1:
    raise KeyError("after AutoDist")
if word == "second-size":
    try:
        autodist.AutoDist("local:3")
    except autodist.UsageError as error:
        print("second:", error, flush=True)
if word == "sleep" and ad.is_chief:
    time.sleep(6)
if word == "second":
    try:
        autodist.AutoDist("local:2")
    except autodist.UsageError as error:
        print("second:", error, flush=True)
step = ad.distribute(model, loss, "sgd:lr=0.1", (torch.ones(2, 4),), batched=None)
if word == "sleep-before-step" and ad.is_chief:
    time.sleep(6)
if word == "raise-before-step" and ad.rank == 1:
    raise KeyError("before the step")
if word == "sigterm-before-step":
    if ad.is_chief:
        print("begins", flush=True)
    else:
        time.sleep(60)
# The chief may do two more steps without a rank that has left.
for number in range(10 if word == "raise-in-step" else 3):
    step(torch.ones(4, 4))
    if word == "raise-in-step" and ad.rank == 1 and number == 1:
        time.sleep(1)  # the chief waits in a step by then, and does not look for children that ended
        raise KeyError("in the step")
if word == "exit" and ad.rank == 1:
    time.sleep(1)
    sys.exit(3)
if word == "exit-chief" and ad.is_chief:
    sys.exit(4)
if word == "vanish" and ad.rank == 1:
    os._exit(3)
if word == "fork":
    for end in (sys.exit, os._exit):
        child = os.fork()
        if child == 0:
            end(3)
        assert os.waitpid(child, 0)[1] == 3 << 8
    step(torch.ones(4, 4))
    atexit.register(print, "atexit", flush=True)
if word == "raise-late" and ad.is_chief:
    raise KeyError("late")
if word == "sigterm-workers":
    rows = torch.utils.data.DataLoader([torch.ones(4)] * 40, 4, num_workers=2)
    for epoch in step.epochs(rows):
        for batch in epoch:
            step(batch)
        if epoch.number == 1 and ad.is_chief:
            print("training", flush=True)
try:
    for number in range(1000000 if word.startswith(("exit", "vanish", "raise-l", "sigterm")) else 0):
        step(torch.ones(4, 4))
        if number == 3 and ad.is_chief:
            print("training", flush=True)
except autodist.JobEnded:
    if word != "sigterm-save":
        raise
    if ad.is_chief:
        step.save(sys.argv[2])
        step.finish()
print("through", flush=True)
"""


# What is typed at a prompt: a slip of long ago is no reason to leave the job.
TYPED = """
import sys, autodist, torch
model, x = torch.nn.Linear(4, 1), torch.ones(4, 4)
step = autodist.AutoDist(report=sys.argv[1]).distribute(model, lambda m, x: m(x).square().mean(), "sgd:lr=0.1", (x,))
first = step(x)
nonsense
second = step(x)
"""


def told_to_end(path, word, code, said, seconds=20, *, to_chief=True, to_all=False, more=(), number=signal.SIGTERM):
    """Its stderr, after the signal, once it has `said` so."""
    process = subprocess.Popen([sys.executable, path, word, *more], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=to_all)
    assert process.stdout.readline() == said, process.communicate()
    target = process.pid
    if not to_chief:
        with open(f"/proc/{target}/task/{target}/children", encoding="utf-8") as children:
            target = int(children.read().split()[0])
    began = time.monotonic()
    (os.killpg if to_all else os.kill)(target, number)
    out, errors = process.communicate(timeout=100)
    assert process.returncode == code, (word, process.returncode, out, errors)
    assert time.monotonic() - began < seconds, (word, time.monotonic() - began, errors)
    return out, errors


def run(path, word, code, seconds):
    began = time.monotonic()
    done = subprocess.run([sys.executable, path, word], capture_output=True, text=True, timeout=200)
    took = time.monotonic() - began
    assert done.returncode == code, (word, done)
    assert took < seconds, (word, took, done)
    return done


def loss_told_by_chief(done):
    """The chief's line; those of other ranks, with their prefixes, may come after it."""
    start = "autodist._errors.PeersLostError: "
    lines = [line for line in done.stderr.splitlines() if line.startswith(start)]
    assert len(lines) == 1 and "rank 1 (" in lines[0], done
    return lines[0]


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "script.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(SCRIPT)

        # A rank that dies before its first step: at once, with its last line.
        for word, line in (("raise", "after AutoDist"), ("raise-in-loss", "in the loss")):
            done = run(path, word, 5, 40)
            assert f") ended with exit code 1; its last line: KeyError: '{line}'" in loss_told_by_chief(done), done

        # Later, too; whether it tells the others itself or is only gone.
        for word, line in (("raise-before-step", "KeyError: 'before the step'"),
                           ("raise-in-step", "KeyError: 'in the step'"),
                           ("exit", "its program ended with exit code 3")):
            done = run(path, word, 5, 40)
            assert loss_told_by_chief(done).endswith(f" left: {line}"), done
        done = run(path, "vanish", 5, 40)
        assert loss_told_by_chief(done).endswith(") ended with exit code 3"), done

        # Whoever started it.
        place = {"TORCHELASTIC_RUN_ID": str(os.getpid()), "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": "4711", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        ranks = [subprocess.Popen([sys.executable, path, "exit"], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True,
                                  env={**os.environ, **place, "RANK": rank, "LOCAL_RANK": rank})
                 for rank in "01"]
        errors = [each.communicate(timeout=100)[1] for each in ranks]
        assert [each.returncode for each in ranks] == [5, 3], errors
        assert errors[0].endswith(" left: its program ended with exit code 3\n"), errors

        # One that is alive is waited for beyond the limit, which is for silence.
        for word in ("sleep", "sleep-before-step"):
            done = run(path, word, 0, 100)
            assert done.stdout == "through\n", done

        # The ranks do not end with the thread that started them.
        done = run(path, "thread", 0, 100)
        assert done.stdout == "through\n" and "[rank 1] through" in done.stderr, done

        # A second job beside it is refused at every rank, and does no harm to the first.
        done = run(path, "second", 0, 100)
        assert done.stdout.startswith("second: AutoDist: this program has a job already"), done
        assert done.stdout.endswith("through\n"), done
        assert "[rank 1] second: AutoDist:" in done.stderr, done
        done = run(path, "second-size", 0, 100)
        for where in (done.stdout, done.stderr):
            assert "second: AutoDist: this program has a job already" in where, done
        # Nor can the ranks begin with another one.
        done = run(path, "alone-first", 5, 60)
        assert "AutoDist: rank 1 was started for a job of 2 ranks, and the first one" in loss_told_by_chief(done), done

        # sys.exit() outside of a `with` block ends the job at once; its code is the process's.
        run(path, "exit-chief", 4, 60)
        # An exception of the chief's.
        done = run(path, "raise-late", 1, 60)
        assert "KeyError: 'late'" in done.stderr, done

        # Forks have no part in the job, however they end; the interpreter's end is a whole one.
        done = run(path, "fork", 0, 100)
        assert done.stdout == "through\natexit\n", done

        # SIGTERM ends the job in order, whichever rank it comes to.
        out, errors = told_to_end(path, "sigterm", 0, "training\n")
        assert out == "" and "autodist: stopped by SIGTERM after step" in errors, (out, errors)
        out, errors = told_to_end(path, "sigterm", 0, "training\n", to_chief=False)
        assert out == "" and "stopped by a signal to rank 1 after step" in errors, (out, errors)
        _, errors = told_to_end(path, "sigterm", 0, "training\n", number=signal.SIGHUP)
        assert "autodist: stopped by SIGHUP after step" in errors, errors
        for word, said in (("sigterm-early", "capturing\n"), ("sigterm-before-step", "begins\n")):
            for to_chief in (True, False):
                # Within 2 s; an interpreter's end takes several times as long on a busy machine.
                _, errors = told_to_end(path, word, 0, said, seconds=10, to_chief=to_chief)
                assert "\nautodist: stopped by SIGTERM before the first step" in "\n" + errors, errors
        saved = os.path.join(folder, "saved")
        told_to_end(path, "sigterm-save", 0, "training\n", more=[saved])
        assert any(each.startswith("step-") for each in os.listdir(saved)), os.listdir(saved)
        # A scheduler's comes to the loader's workers, too.
        _, errors = told_to_end(path, "sigterm-workers", 0, "training\n", to_all=True)
        assert "autodist: stopped by SIGTERM after step" in errors, errors
        assert "DataLoader" not in errors, errors
        # A handler of the script's own stays.
        _, errors = told_to_end(path, "sigterm-own", 9, "training\n")
        assert "stopped by SIGTERM" not in errors, errors

        # An interactive session ends in order, and has its report, after an error that was typed.
        report = os.path.join(folder, "typed.html")
        done = subprocess.run([sys.executable, "-i", "-q", "-c", "", report], input=TYPED, capture_output=True,
                              text=True, timeout=100)
        assert done.returncode == 0 and "NameError" in done.stderr, done
        assert os.path.exists(report), done

        # Ctrl-C takes hold while the step is captured.
        process = subprocess.Popen([sys.executable, path, "ctrl-c"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "capturing\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert time.monotonic() - began < 20, errors
        assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in errors, errors
    print("endings: all as they should be")


main()
