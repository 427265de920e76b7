"""The example's loop on digits, and the same loop written for DistributedDataParallel.

Both reach the same accuracy, and few lines tell them apart.
"""

import difflib
import os
import re
import subprocess
import sys
import tempfile

import comparing
from ports import free_port

comparing.skip_without_torch()

import torch

FEWEST_RIGHT = 97.0  # of 100 held-out images
MOST_APART = 0.6  # two of 360 images
MOST_LINES = 14


def accuracy_of(output):
    return float(re.search(r"best accuracy ([\d.]+)%", output).group(1))


def parallel(script, *arguments):
    """What the first of two processes prints, as torchrun would start them."""
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
                   "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    ranks = [subprocess.Popen([sys.executable, script, *arguments], stdout=subprocess.PIPE,
                              env={**environment, "RANK": str(rank)}, text=True)
             for rank in range(2)]
    outputs = [each.communicate()[0] for each in ranks]
    assert [each.returncode for each in ranks] == [0, 0], outputs
    return outputs[0]


def main(source):
    ours, theirs = (os.path.join(source, "examples", name)
                    for name in ("training_loop.py", "training_loop_ddp.py"))
    with open(ours) as a, open(theirs) as b:
        lines = list(difflib.ndiff(b.readlines(), a.readlines()))
    more, fewer = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    print(f"{fewer} lines of DistributedDataParallel's are {more} here")
    assert max(more, fewer) <= MOST_LINES
    of_ranks = [line for line in lines if line.startswith("+") and "rank" in line]
    assert not of_ranks, of_ranks

    data = os.path.join(source, "data", "digits", "digits.csv.gz")
    with tempfile.TemporaryDirectory() as folder:
        best = os.path.join(folder, "best.pt")
        reached = accuracy_of(comparing.run(ours, data, best, AUTODIST_HISTORY="off").stdout)
        state = torch.load(best)
        assert sorted(state) == ["0.bias", "0.weight", "1.bias", "1.weight", "3.bias", "3.weight"]
        print(f"AutoDist: {reached} %")
        assert reached >= FEWEST_RIGHT
        if not torch.distributed.is_available():
            print("SKIPPED beside DistributedDataParallel: this PyTorch is not distributed")
            return
        expected = accuracy_of(parallel(theirs, data, best))
        print(f"DistributedDataParallel: {expected} %")
        assert abs(reached - expected) <= MOST_APART, (reached, expected)


main(sys.argv[1])
