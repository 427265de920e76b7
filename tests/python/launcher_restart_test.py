"""A launcher that starts all ranks again after a loss, as torchrun does: resume() gives what an undisturbed run has."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import comparing

comparing.skip_without_torch()

SCRIPT = """
import os, pathlib, signal, sys, autodist, torch
folder, lost, lost_at = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.BatchNorm1d(32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
loss = lambda m, x, y: torch.nn.functional.mse_loss(m(x), y)
x, y = torch.randn(40, 16, 8), torch.randn(40, 16, 1)
ad = autodist.AutoDist(builder="PS")
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
with ad.distribute(model, loss, optimizer, (x[0], y[0])) as step:
    begun = step.resume(folder)
    print("begins at", begun, flush=True)
    for at in range(begun, 40):
        if begun == 0 and (ad.rank, at) == (lost, lost_at):
            os.kill(os.getpid(), signal.SIGKILL)
        step(x[at], y[at])
        if (at + 1) % 5 == 0:
            step.save(folder, wait=False)
if ad.is_chief:
    print("trained", " ".join(each.double().sum().item().hex() for each in model.state_dict().values()))
"""


def started(script, folder, count, lost, at):
    """Both ranks, as torchrun starts them for the count-th time again: their exit codes, and what they said."""
    job = {"TORCHELASTIC_RUN_ID": f"{os.getpid()} {folder.name}", "TORCHELASTIC_RESTART_COUNT": str(count),
           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "4711", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    ranks = [subprocess.Popen([sys.executable, script, folder, str(lost), str(at)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True,
                              env={**os.environ, **job, "RANK": rank, "LOCAL_RANK": rank})
             for rank in "01"]
    try:
        said = [each.communicate(timeout=100) for each in ranks]
    finally:
        for each in ranks:
            each.kill()
    return [each.returncode for each in ranks], said


def trained(codes, said):
    assert codes == [0, 0], (codes, said)
    return re.search("trained (.*)", said[0][0])[1]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        script = folder / "script.py"
        script.write_text(SCRIPT)
        wanted = trained(*started(script, folder / "whole", 0, -1, -1))
        for lost, at in ((1, 17), (0, 23)):
            place = folder / f"lost-{lost}"
            codes, said = started(script, place, 0, lost, at)
            assert codes[lost] == -signal.SIGKILL and codes[1 - lost] == 5, (codes, said)
            assert f"rank {lost} " in said[1 - lost][1], said
            codes, said = started(script, place, 1, lost, at)
            assert trained(codes, said) == wanted, (wanted, said)
            begun = int(re.search(r"begins at (\d+)", said[0][0])[1])
            # The last one may not have been written yet.
            assert at // 5 * 5 - 5 <= begun <= at // 5 * 5 and begun > 0, begun
            print(f"rank {lost} lost at step {at}, both started again from step {begun}: the same parameters")


main()
