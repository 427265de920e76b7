"""How Python scripts become ranks, and how they end."""

import os
import shutil
import sys
import tempfile

import comparing
from running import run

comparing.skip_without_torch()

SCRIPT = """
import os, sys, autodist, torch
ad = autodist.AutoDist("" if "launched" in sys.argv else "local:2")
model = torch.nn.Linear(4, 1)
loss = lambda m, x: m(x).square().mean()
step = ad.distribute(model, loss, "sgd:lr=0.1", (torch.ones(2, 4),))
if "fail" not in sys.argv:
    step(torch.ones(4, 4))
else:
    try:
        for at in range(1000):
            if ad.rank == 1 and at == 1:
                raise KeyError("this rank's own mistake")
            step(torch.ones(4, 4))
    except autodist.PeersLostError as error:
        print("lost:", error)
        sys.exit(5)
# In one piece: ranks of mpirun share a terminal.
os.write(1, f"rank {ad.rank} of {ad.size} is through {ad.launcher}\\n".encode())
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "script.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(SCRIPT)
        # Started as this one was: a file, -m, -c. Without finish() the interpreter's end is orderly.
        found = os.environ.get("PYTHONPATH", "") + os.pathsep + folder
        for arguments in ([path], ["-m", "script"], ["-c", SCRIPT]):
            done = run([sys.executable, *arguments], env={**os.environ, "PYTHONPATH": found})
            assert done.stdout.startswith("rank 0 of 2 is through"), done
            assert done.stderr.startswith("[rank 1] rank 1 of 2 is through"), done
        piped = run([sys.executable], 2, input=SCRIPT)
        assert "Write it to a file." in piped.stderr, piped
        # A rank that fails is named; what it says is told.
        bad = run([sys.executable, path, "fail"], 5)
        assert "rank 1" in bad.stdout, bad
        assert "this rank's own mistake" in bad.stderr, bad
        if shutil.which("mpirun"):
            launched = run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable, path, "launched"])
            lines = sorted(line for line in launched.stdout.splitlines() if line.startswith("rank"))
            assert lines == [f"rank {rank} of 2 is through Open MPI" for rank in (0, 1)], launched
    print("launching: all as it should be")


main()
