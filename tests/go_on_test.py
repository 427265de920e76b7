"""What a job says when it cannot go on as it is, and that what it says works.

    go_on_test.py AUTODIST

A rank is killed: the message names the newest checkpoint and a command that goes on from it. Meanwhile a second job
with the same `--save` is refused. Ranks with other seeds are refused, too, and an optimizer that lacks its state.
"""

import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile

from ports import free_port
from ranks import children_of, rank_of
from running import SECONDS, run, wait_until


def a_lost_rank(autodist, folder):
    saved = folder / "a b"  # a name that a shell must be told of
    command = [autodist, "train", "digits", "--cluster", "local:2", "--builder", "PS", "--steps", "1000000",
               "--checkpoint-every", "20", "--save", str(saved), "--restarts", "0"]
    chief = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: list(saved.glob("step-*/manifest.json")) or chief.poll() is not None)
    assert chief.poll() is None, chief.communicate()
    second = run(command, 6)
    assert "another job writes its checkpoints there (process " in second.stderr, second.stderr
    assert len(second.stderr.splitlines()) == 1, second.stderr
    assert (saved / ".lock").exists()
    for child in children_of(chief.pid):
        if rank_of(child) == 1:
            os.kill(child, signal.SIGKILL)
    _, said = chief.communicate(timeout=SECONDS)
    assert chief.returncode == 5, (chief.returncode, said)
    line = next(each for each in said.splitlines() if " The newest checkpoint is " in each)
    newest, command = line.split(" The newest checkpoint is ")[1].split(". To go on from it: ")
    assert (pathlib.Path(newest) / "manifest.json").exists(), line
    words = shlex.split(command)
    assert words[0] == "autodist" and words[-2:] == ["--resume", str(saved)], words
    steps = int(newest.rsplit("-", 1)[1]) + 3
    words[words.index("--steps") + 1] = str(steps)
    run([autodist, *words[1:]])
    assert (saved / f"step-{steps}").exists()
    print("after a lost rank:", line[-200:])


def other_seeds(autodist, folder):
    port = free_port()
    key = folder / "key"
    key.write_text("ab" * 32)
    key.chmod(0o600)
    environment = {**os.environ, "AUTODIST_SIZE": "2", "AUTODIST_CHIEF": f"127.0.0.1:{port}",
                   "AUTODIST_KEY_FILE": str(key)}
    ranks = [subprocess.Popen([autodist, "train", "digits", "--cluster", "local:2", "--builder", "PS", "--steps", "2",
                               "--seed", str(5 + rank)], env={**environment, "AUTODIST_RANK": str(rank)},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(2)]
    said = [rank.communicate(timeout=SECONDS)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [2, 2], said
    for text in said:
        assert "the ranks differ: seed" in text and "(5) at rank 0" in text and "(6) at rank 1" in text, said
    print("ranks with other seeds are refused")


def another_optimizer(autodist, folder):
    """The one rank that has no state to begin with says why, and the other one knows it from there."""
    saved = folder / "momentum"
    words = [autodist, "train", "digits", "--cluster", "local:2", "--builder", "PS", "--no-history"]
    run([*words, "--optimizer", "sgd:lr=0.1,momentum=0.9", "--steps", "3", "--save", saved])
    said = run([*words, "--optimizer", "adam:lr=1e-3", "--steps", "6", "--resume", saved], 6).stderr
    why = "checkpoint: optimizer state 'conv1.weight.exp_avg' is missing among 8. Give the optimizer that wrote it"
    lines = [each for each in said.splitlines() if why in each]
    assert len(lines) == 2 and lines[-1].startswith(f"autodist: {why}"), said
    assert f"left: {why}" in lines[0], said
    print("an optimizer without the state that it needs is refused")


def main(autodist):
    with tempfile.TemporaryDirectory(prefix="autodist-go-on-") as name:
        folder = pathlib.Path(name)
        a_lost_rank(autodist, folder)
        other_seeds(autodist, folder)
        another_optimizer(autodist, folder)


main(sys.argv[1])
