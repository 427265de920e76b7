"""Trials before a training, and the history that they and trainings leave behind.

    history_test.py AUTODIST

Trials run real plans and change nothing: a training behind them ends with the bits of one that takes
the same strategy at once. What they took is kept, unless it is not wanted, and the next plans on the
same cluster learn from it.
"""

import json
import os
import pathlib
import re
import sys
import tempfile

from running import run

ENOUGH = 12  # measured plans from which a search learns
SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
PLACES = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"}


class History:
    def __init__(self, autodist, folder):
        self.autodist = autodist
        self.folder = folder
        self.kept = folder / "history"
        self.environment = {name: value for name, value in os.environ.items()
                            if name not in PLACES and not name.startswith(("AUTODIST_", "OMPI_", "SLURM_"))}
        self.environment.update(AUTODIST_HISTORY=str(self.kept), OMP_NUM_THREADS="1")

    def run(self, *words):
        done = run([self.autodist, *words], env=self.environment, cwd=self.folder)
        return done.stdout + done.stderr

    def measured(self):
        """Plans that were measured: files of how long their steps took."""
        return sorted(path for path in self.kept.rglob("*.yml") if path.parent.name == "runtime")


def seconds_of(text):
    number, unit = text.split()
    return float(number) * SECONDS[unit]


def trials_change_nothing(history):
    common = ("train", "digits", "--cluster", "local:2", "--steps", 25, "--batch", 32)
    said = history.run(*common, "--budget", 10, "--trials", 3, "--write-strategy", "taken.strategy",
                       "--save", "tried")
    trials = re.findall(r"^trial +([\d.]+ \S+), (.+)$", said, re.MULTILINE)
    assert len(trials) == 3 and len({name for _, name in trials}) == 3, said
    best = re.search(r"^measured best +([\d.]+ \S+), (.+)$", said, re.MULTILINE)
    assert best, said
    fastest = min(seconds_of(step) for step, _ in trials)
    assert seconds_of(best[1]) == fastest, said
    assert (best[1], best[2]) in trials, said
    plans = len(history.measured())
    # The training itself is measured, too: the same plan again where its strategy is a trial's.
    assert 3 <= plans <= 4, history.measured()

    history.run(*common, "--strategy", "taken.strategy", "--save", "at-once", "--no-history")
    assert len(history.measured()) == plans, "--no-history kept something"
    tensors = [next((history.folder / name).rglob("model.safetensors")).read_bytes()
               for name in ("tried", "at-once")]
    assert tensors[0] == tensors[1], "trials changed what a training computes"
    print(f"3 trials, the fastest taken; {plans} plans kept; the training has the bits of one without trials")


def plans_learn(history):
    said = history.run("plan", "digits", "--cluster", "local:2", "--budget", 10, "--from-history")
    assert "measured best" in said and "too few measured plans" in said, said
    history.run("plan", "digits", "--cluster", "local:2", "--budget", 40, "--trials", ENOUGH + 2, "-o",
                "by-trials.strategy")
    assert (history.folder / "by-trials.strategy").stat().st_size > 0
    said = history.run("plan", "digits", "--cluster", "local:2", "--budget", 10, "--from-history")
    assert re.search(r"^expected ", said, re.MULTILINE), said
    assert re.search(r"^gain ", said, re.MULTILINE), said
    assert "too few" not in said, said
    other = history.run("plan", "digits", "--cluster", "local:3", "--budget", 10, "--from-history")
    assert "nothing was measured" in other, other
    alone = history.run("plan", "digits", "--cluster", "local:2", "--budget", 10, "--no-history")
    assert not re.search(r"^expected ", alone, re.MULTILINE), alone
    print(f"{len(history.measured())} measured plans: the next plan expects, and says what it would gain")


def broken_history_is_passed_over(history):
    victim = history.measured()[0]
    victim.write_text("no: [data")
    said = history.run("plan", "digits", "--cluster", "local:2", "--budget", 10, "--json")
    assert json.loads(said.splitlines()[0])["prediction"], said


def main():
    autodist = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="autodist-") as folder:
        history = History(autodist, pathlib.Path(folder))
        trials_change_nothing(history)
        plans_learn(history)
        broken_history_is_passed_over(history)


if __name__ == "__main__":
    main()
