"""A loop that is killed and started again has all that it has beside the model: as if nothing had been lost.

    kept_restarts_test.py AUTODIST
"""

import pathlib
import re
import sys
import tempfile

import comparing
from running import run

comparing.skip_without_torch()

# An average of weights, a schedule, the best loss, clipped weights, evaluations, data that are
# shuffled and disturbed at random; saved every other step. It stops early, after 4 epochs of 6
# batches: noise is not learned, so that only the first epoch's loss is half of the best before.
LOOP = """
import copy, os, pathlib, random, signal, sys, time, autodist, torch
folder, deals = pathlib.Path(sys.argv[1]), sys.argv[2] == "deals"
losses = dict(word.split("=") for word in sys.argv[3:])  # rank -> after which step it is lost, once; "end": the last

class Data(torch.utils.data.Dataset):
    def __init__(self):
        made = torch.Generator().manual_seed(5)
        self.x, self.y = torch.randn(96, 8, generator=made), torch.randn(96, 1, generator=made)
    def __len__(self):
        return 96
    def __getitem__(self, i):
        return self.x[i] + 0.1 * torch.rand(8) + 0.1 * random.random(), self.y[i]

class Best:
    loss, at = float("inf"), 0
    def state_dict(self):
        return {"loss": self.loss, "at": self.at}
    def load_state_dict(self, state):
        self.loss, self.at = state["loss"], state["at"]

class Patience:
    best, waited = float("inf"), 0
    def is_over(self, loss):
        if loss < 0.5 * self.best:
            self.best, self.waited = loss, 0
        else:
            self.waited += 1
        return self.waited >= 3
    def state_dict(self):
        return {"best": self.best, "waited": self.waited}
    def load_state_dict(self, state):
        self.best, self.waited = state["best"], state["waited"]

def be_lost(at):
    if losses.get(str(ad.rank)) != at or (folder / f"lost-{ad.rank}").exists():
        return
    (folder / f"lost-{ad.rank}").touch()
    if not saves:
        time.sleep(0.5)  # for the thread that writes the snapshot
    os.kill(os.getpid(), signal.SIGKILL)

torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.BatchNorm1d(32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
loss_fn = lambda m, x, y: torch.nn.functional.mse_loss(m(x), y)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)
data = Data()
ad = autodist.AutoDist("local:2", builder="PS")
dealt = torch.utils.data.DistributedSampler(data, ad.size, ad.rank) if deals else None
loader = torch.utils.data.DataLoader(data, 8 if deals else 16, shuffle=None if deals else True, sampler=dealt)
held_out = torch.randn(20, 8), torch.randn(20, 1)
average, best, patience = copy.deepcopy(model), Best(), Patience()
saves = "unsaved" not in folder.name
step = ad.distribute(model, loss_fn, optimizer, (data.x[:8], data.y[:8]))
with step:
    step.keep("average", average)
    print("begins at", step.resume(folder / "saved" if saves else None), flush=True)
    step.keep("schedule", schedule)
    step.keep("optimizer", optimizer)
    step.keep("best", best)
    step.keep("patience", patience)
    for epoch in step.epochs(loader, 9):
        for x, y in epoch:
            loss = step.run_local(x, y) if deals else step(x, y)
            with torch.no_grad():
                for mean, each in zip(average.state_dict().values(), model.state_dict().values()):
                    mean.copy_(0.9 * mean + 0.1 * each if mean.is_floating_point() else each)
                model[3].weight.clamp_(-0.15, 0.15)
            be_lost(str(step.step))
            if saves and step.step % 2 == 0:
                step.save(folder / "saved", wait=False)
        score = float(step.evaluate(lambda m: loss_fn(m, *held_out)))
        if score < best.loss:
            best.loss, best.at = score, epoch.number
        schedule.step()
        if patience.is_over(score):
            break
    be_lost("end")
    state = {**model.state_dict(), **{f"average {name}": each for name, each in average.state_dict().items()}}
    if ad.is_chief:
        print("trained", step.step, epoch.number, best.loss.hex(), best.at, optimizer.param_groups[0]["lr"].hex(),
              " ".join(each.double().sum().item().hex() for each in state.values()), flush=True)
"""


def trained(autodist, script, folder, *words):
    """What it prints in its end, and all that was said."""
    folder.mkdir()
    done = run([autodist, "run", "--cluster", "local:2", "--restarts", "3", "--", sys.executable, script, folder, *words])
    # Of a loss at the end the chief may hear when it has printed.
    results = set(re.findall("trained (.*)", done.stdout))
    assert len(results) == 1, done
    return results.pop(), done


def loops_come_back(autodist, folder):
    """Lost in the middle of an epoch, after its last batch, after its first, in the evaluation's step, and when the
    loop has stopped early."""
    script = folder / "loop.py"
    script.write_text(LOOP)
    for deals in ("shared", "deals"):
        wanted, _ = trained(autodist, script, folder / deals, deals)
        assert wanted.startswith("24 3 "), wanted
        cases = (["1=3", "0=6"], ["1=7", "0=end"], ["0=14", "1=24"]) if deals == "shared" else (["1=9"], ["0=18", "1=end"])
        for words in cases:
            found, done = trained(autodist, script, folder / "-".join([deals, *words]), deals, *words)
            assert found == wanted and done.stderr.count("starting again") == len(words), (deals, words, wanted, done)
        print(f"{deals}: lost {sum(len(words) for words in cases)} times, the loop ends as the one that lost nothing")
        found, done = trained(autodist, script, folder / f"{deals}-unsaved", deals, "1=4", "0=16")
        assert found == wanted, (deals, wanted, done)
        assert re.search(r"from step \d+, which is in memory", done.stderr), done
        print(f"{deals}: so it does from snapshots alone")


GIVEN_UP = """
import os, signal, sys, autodist, torch
torch.manual_seed(3)
model = torch.nn.Linear(8, 1)
loss_fn = lambda m, x, y: torch.nn.functional.mse_loss(m(x), y)
x, y = torch.randn(16, 8), torch.randn(16, 1)
ad = autodist.AutoDist("local:2", builder="PS")
with ad.distribute(model, loss_fn, torch.optim.Adam(model.parameters()), (x[:8], y[:8])) as step:
    begin = step.resume(sys.argv[1])
    print("begins at", begin, flush=True)
    for i in range(begin, 400):
        if sys.argv[2] == "lost" and ad.rank == 1 and (begin > 0 or i == 200):
            os.kill(os.getpid(), signal.SIGKILL)
        step(x, y)
        step.snapshot()
"""


def what_is_given_up_is_saved(autodist, folder):
    script, saved = folder / "given_up.py", folder / "given-up"
    script.write_text(GIVEN_UP)
    command = [autodist, "run", "--restarts", "1", "--", sys.executable, script, saved]
    done = run([*command, "lost"], 5)
    assert "given up: 1 start in a row" in done.stderr, done
    kept = re.search(r"what was in memory is (.*/step-(\d+))\n", done.stderr)
    assert kept and pathlib.Path(kept[1]).parent == saved and 0 < int(kept[2]) <= 200, done
    done = run([*command, "whole"])
    assert f"begins at {kept[2]}" in done.stdout, done
    print("a program that is given up leaves its snapshot where it resumes from")


SNAPSHOT_AND_SAVE = """
import sys, autodist, torch
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 1))
if sys.argv[2] == "plain":
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
loss_fn = lambda m, x, y: torch.nn.functional.mse_loss(m(x), y)
x, y = torch.randn(16, 8), torch.randn(16, 1)
ad = autodist.AutoDist("local:2", builder="PartitionedPS")
with ad.distribute(model, loss_fn, torch.optim.Adam(model.parameters()), (x[:8], y[:8])) as step:
    step.resume(sys.argv[1])
    for i in range(40):
        step(x, y)
        step.snapshot()
        step.save(sys.argv[1])
print("saved", step.step)
"""


def a_snapshot_and_a_save_follow_the_same_step(autodist, folder):
    script = folder / "snapshot_and_save.py"
    script.write_text(SNAPSHOT_AND_SAVE)
    for model in ("plain", "statistics"):
        done = run([autodist, "run", "--restarts", "1", "--", sys.executable, script, folder / model, model])
        assert "saved 40" in done.stdout and "no checkpoint" not in done.stderr, done
    print("a snapshot and a save() follow the same step where another rank owns state")


def main(autodist):
    with tempfile.TemporaryDirectory() as name:
        for part in (loops_come_back, what_is_given_up_is_saved, a_snapshot_and_a_save_follow_the_same_step):
            part(autodist, pathlib.Path(name))


main(sys.argv[1])
