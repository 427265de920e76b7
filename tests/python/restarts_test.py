"""A program of one's own under `autodist run --restarts`: killed ranks change nothing of what it trains.

    restarts_test.py AUTODIST
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import comparing
from running import run

comparing.skip_without_torch()

SCRIPT = """
import os, pathlib, signal, sys, autodist, torch
folder = pathlib.Path(sys.argv[1])
losses = dict(word.split("=") for word in sys.argv[2:])  # rank -> the step at which it is lost, once
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.BatchNorm1d(32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
loss = lambda m, x, y: torch.nn.functional.mse_loss(m(x), y)
x, y = torch.randn(40, 16, 8), torch.randn(40, 16, 1)
ad = autodist.AutoDist("local:2", builder="PS")
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
with ad.distribute(model, loss, optimizer, (x[0], y[0])) as step:
    begun = step.resume(folder / "saved")
    print("begins at", begun, flush=True)
    for at in range(begun, 40):
        if losses.get(str(ad.rank)) == str(at) and not (folder / f"lost-{ad.rank}").exists():
            (folder / f"lost-{ad.rank}").touch()
            if "throws" in losses:
                raise OSError("the data are away")
            os.kill(os.getpid(), signal.SIGKILL)
        step(x[at], y[at])
        if (at + 1) % 5 == 0:
            step.save(folder / "saved", wait=False)
if ad.is_chief:
    state = {**model.state_dict()}
    print("trained", " ".join(each.double().sum().item().hex() for each in state.values()), flush=True)
"""


def started(autodist, script, folder, *words, restarts=2, code=0):
    folder.mkdir()
    return run([autodist, "run", "--cluster", "local:2", "--restarts", restarts, "--", sys.executable, script, folder,
                *words], code)


# Its data are drawn anew at each start, and in the first one a rank is lost.
UNSEEDED = """
import os, pathlib, signal, sys, autodist, torch
folder = pathlib.Path(sys.argv[1])
torch.manual_seed(3)
model = torch.nn.Linear(8, 1)
loss = lambda m, x, y: torch.nn.functional.mse_loss(m(x), y)
ad = autodist.AutoDist("local:2", builder="PS")
with ad.distribute(model, loss, "sgd:lr=0.01", (torch.zeros(16, 8), torch.zeros(16, 1))) as step:
    begun = step.resume(folder / "saved")
    torch.seed()
    for at in range(begun, 20):
        if ad.rank == 1 and at == 15 and begun == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        step(torch.randn(16, 8), torch.randn(16, 1))
        if step.step == 5:
            step.save(folder / "saved")
"""


def other_data_are_said(autodist, folder):
    script = folder.parent / "unseeded.py"
    script.write_text(UNSEEDED)
    done = started(autodist, script, folder)
    assert "starting again (1 of 2)" in done.stderr, done
    said = re.findall(r"\[rank 0\] autodist: step (\d+) was done again and its loss is (\S+), before (\S+): something outside "
                      r"of the job's state differs", done.stdout)
    assert len(said) == 1 and said[0][0] == "5" and said[0][1] != said[0][2], done
    print("a loop whose data differ is told so:", said[0])


# Its newest checkpoint is damaged, and the rank that is killed has forked a process, which holds its connections.
DAMAGED = """
import os, pathlib, signal, sys, time, autodist, torch
saved = pathlib.Path(sys.argv[1]) / "saved"
model = torch.nn.Linear(8, 1)
loss = lambda m, x, y: torch.nn.functional.mse_loss(m(x), y)
x, y = torch.ones(16, 8), torch.zeros(16, 1)
ad = autodist.AutoDist("local:2", builder="PS", restarts=2)
with ad.distribute(model, loss, "sgd:lr=0.01", (x, y)) as step:
    begun = step.resume(saved)
    print("begins at", begun, flush=True)
    if begun == 0 and ad.rank == 1 and os.fork() == 0:
        time.sleep(15)
        os._exit(0)
    for at in range(begun, 20):
        step(x, y)
        step.snapshot()
        time.sleep(0.02)
        if step.step in (3, 10):
            step.save(saved)
        if step.step == 12 and ad.rank == 1 and begun == 0:
            manifest = saved / "step-10" / "manifest.json"
            while not manifest.exists():  # it is written beside the steps
                time.sleep(0.01)
            manifest.write_text("{")
            os.kill(os.getpid(), signal.SIGKILL)
"""


def a_snapshot_is_newer_than_what_is_sound(folder):
    script = folder.parent / "damaged.py"
    script.write_text(DAMAGED)
    done = run([sys.executable, script, folder], 0)
    # By a step that waits for it, or between two steps.
    assert re.search(r"is lost: its process has ended|was killed by signal 9", done.stderr), done
    assert "waiting for it" not in done.stderr, done
    began = min(int(each) for each in re.findall(r"begins at ([1-9]\d*)", done.stdout))
    assert began >= 5, done
    if began <= 10:  # else the snapshot is newer than the damaged one says of itself, which nobody opens
        assert re.search(r"what is in memory, of step \d+, takes the place of step 3 in ", done.stderr), done
    print("a snapshot is gone on from where the newest checkpoint is damaged")


def trained(done):
    return re.search(r"trained (.*)", done.stdout)[1]


SILENT = """
import os, pathlib, signal, sys, autodist, torch
folder, how = pathlib.Path(sys.argv[1]), sys.argv[2]
model = torch.nn.Linear(8, 1)
loss = lambda m, x, y: torch.nn.functional.mse_loss(m(x), y)
x, y = torch.randn(16, 8), torch.randn(16, 1)
ad = autodist.AutoDist("local:2", builder="PS", silence_limit=4)
step = ad.distribute(model, loss, "sgd:lr=0.01", (x, y))
step.resume()
for at in range(20):
    step(x, y)
    if how == "halted" and ad.is_chief and at == 9 and not (folder / "halted").exists():
        (folder / "halted").touch()
        os.kill(os.getpid(), signal.SIGSTOP)
"""


def silent(autodist, folder, how, *program):
    place = folder / how
    place.mkdir()
    script = place / "silent.py"
    script.write_text(SILENT)
    line = f"{sys.executable} {script} {place} {how}"
    return run([autodist, "run", "--cluster", "local:2", "--restarts", "2", "--", "sh", "-c", " ".join([line, *program])])


STANDBY = """
import os, pathlib, signal, sys, time, autodist, torch
folder = pathlib.Path(sys.argv[1])
print("loaded", flush=True)
torch.manual_seed(3)
model = torch.nn.Linear(8, 1)
loss = lambda m, x, y: torch.nn.functional.mse_loss(m(x), y)
x, y = torch.randn(16, 8), torch.randn(16, 1)
ad = autodist.AutoDist("local:2", builder="PS")
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
with ad.distribute(model, loss, optimizer, (x, y)) as step:
    begun = step.resume(folder / "saved")
    print("begins at", begun, flush=True)
    while step.step < 100000 and (begun == 0 or step.step < begun + 50):
        step(x, y)
        if step.step % 20 == 0:
            time.sleep(0.1)
            step.save(folder / "saved")
        if begun == 0 and (folder / "ready").exists() and ad.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def a_standby_takes_over(autodist, folder):
    folder.mkdir()
    script = folder / "standby.py"
    script.write_text(STANDBY)
    command = [autodist, "run", "--cluster", "local:2", "--restarts", "2", "--standby", "--", sys.executable, script,
               str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        while "a standby is ready" not in job.stderr.readline():
            assert job.poll() is None
        (folder / "ready").touch()
        out, told = job.communicate(timeout=100)
    assert job.returncode == 0, (out, told)
    # What the standby said is shown when it takes over, before what it says then; that of the next one is not.
    begun = [int(each) for each in re.findall(r"\[rank 0\] begins at (\d+)", out)]
    assert len(begun) == 2 and begun[0] == 0 < begun[1], out
    assert out.count("[rank 0] loaded") == 2, out
    assert "the standby takes over (1 of 2), its newest checkpoint is of step" in told, told
    print("under run:", re.findall("autodist: training again .*", told)[0])


OWN = """
import os, pathlib, signal, sys, autodist, torch
folder = pathlib.Path(sys.argv[1])
torch.manual_seed(3)
model = torch.nn.Linear(8, 1)
loss = lambda m, x, y: torch.nn.functional.mse_loss(m(x), y)
x, y = torch.randn(40, 16, 8), torch.randn(40, 16, 1)
ad = autodist.AutoDist("local:2", builder="PS", **eval(sys.argv[2]))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
with ad.distribute(model, loss, optimizer, (x[0], y[0])) as step:
    begun = step.resume(folder / "saved")
    for at in range(begun, 40):
        if (folder / f"lose-{ad.rank}-{at}").exists():
            (folder / f"lose-{ad.rank}-{at}").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        step(x[at], y[at])
        if (at + 1) % 5 == 0:
            step.save(folder / "saved", wait=False)
if ad.is_chief:
    print("begun at", begun, "trained", *[each.double().sum().item().hex() for each in model.state_dict().values()])
"""


def a_program_that_starts_itself(autodist, folder):
    """Killed ranks, the chief among them, with restarts= and under `autodist supervise`; and what is refused."""
    folder.mkdir()
    script = folder / "own.py"
    script.write_text(OWN)

    def own(name, words, kills, above=(), code=0):
        place = folder / name
        place.mkdir()
        for rank, at in kills:
            (place / f"lose-{rank}-{at}").touch()
        return run([*above, sys.executable, script, place, words], code)

    wanted = trained(own("clean", "{}", []))
    for name, words, above in (("own", "{'restarts': 2}", ()),
                               ("above", "{}", (autodist, "supervise", "--restarts", "2", "--"))):
        done = own(name, words, [(1, 17), (0, 33)], above)
        assert trained(done) == wanted and "starting again (1 of 2)" in done.stderr, done
        # No line of the program is changed, and none is said twice.
        assert re.match("begun at (25|30) ", done.stdout) and len(done.stdout.splitlines()) == 1, done
    for words, said in (("{'standby': True}", "standby=True: of restarts, and there are none"),
                        ("{'restarts': -1}", "restarts=-1: a whole number of 0 or more expected"),
                        ("{'restarts': 2, 'min_ranks': 3}", "--min-ranks 3: the job has 2 ranks")):
        done = own(f"refused{len(said)}", words, [], code=2)
        assert said in done.stderr.splitlines()[-1], done
    done = own("launched", "{'restarts': 2}", [], (autodist, "run", "--cluster", "local:2", "--"))
    assert trained(done) == wanted and done.stdout.count("restarts=2: without effect") == 1, done
    for words, said in ((["--min-ranks", "2", "--", "true"], "--min-ranks 2: the program's machines are not known"),
                        (["--", "no-such-program"], "supervise: no-such-program cannot be started")):
        done = run([autodist, "supervise", *words], 2)
        assert said in done.stderr and len(done.stderr.splitlines()) == 1, done
    print("a program that starts its ranks itself is started again")


def goes_on_after_its_job(autodist, folder):
    done = silent(autodist, folder, "wrapped", "; sleep 6; echo after it")
    assert done.stdout.count("after it") == 2 and "silent" not in done.stderr, done
    print("a script goes on after its job, for longer than the silence limit")


def a_halted_chief_is_lost(autodist, folder):
    done = silent(autodist, folder, "halted", "; true")
    assert "has been silent for" in done.stderr and "training again" in done.stderr, done
    print("a chief that is halted is lost:", re.findall("autodist: training again .*", done.stderr)[0])


def main(autodist):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        script = folder / "script.py"
        script.write_text(SCRIPT)
        wanted = trained(started(autodist, script, folder / "clean"))
        for words in (["1=12", "0=33"], ["1=17", "throws=1"]):
            done = started(autodist, script, folder / "-".join(words), *words)
            assert trained(done) == wanted and "was done again" not in done.stdout, (words, done)
            losses = [word for word in words if not word.startswith("throws")]
            for loss in losses:
                last = int(loss.split("=")[1]) // 5 * 5
                # The last one may not have been written yet.
                assert f"begins at {last}\n" in done.stdout or f"begins at {last - 5}\n" in done.stdout, done
            again = re.findall(r"autodist: training again (\S+ \S+) after the loss was noticed", done.stderr)
            assert len(again) == len(losses), done
            assert "autodist: starting again (1 of 2), its newest checkpoint is of step" in done.stderr, done
            print(f"{' '.join(words)}: training again after {', '.join(again)}; the same parameters")
        done = started(autodist, script, folder / "none", "1=17", restarts=0, code=5)
        assert "starting again" not in done.stderr and "rank 1 (pid " in done.stderr, done
        other_data_are_said(autodist, folder / "unseeded")
        a_snapshot_is_newer_than_what_is_sound(folder / "damaged")
        a_standby_takes_over(autodist, folder / "standby")
        a_program_that_starts_itself(autodist, folder / "own")
        goes_on_after_its_job(autodist, folder)
        a_halted_chief_is_lost(autodist, folder)
        # A program that makes no step is not started again.
        done = run([autodist, "run", "--cluster", "local:2", "--restarts", "3", "--", "sh", "-c", "echo begun; exit 4"], 4)
        assert done.stdout.count("begun") <= 2 and "starting again" not in done.stderr, done
        done = run([autodist, "run", "--cluster", "local:2", "--restarts", "3", "--", "sh", "-c", "kill -9 $$"], 5)
        assert "not started again, as no step was made" in done.stderr, done
        print("without restarts a loss is the end, and so it is for what never trained")


main(sys.argv[1])
