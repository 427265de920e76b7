"""The ranks of a job as processes of this machine."""

import contextlib
import pathlib


def number_in(pid, variable):
    words = pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    return next((int(word[len(variable) + 1:]) for word in words if word.startswith(variable + "=")), None)


def rank_of(pid):
    return number_in(pid, "AUTODIST_RANK")


def standby_of(pid):
    return number_in(pid, "AUTODIST_STANDBY") or 0


def children_of(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that ends meanwhile
            found += [int(each) for each in (task / "children").read_text().split()]
    return found
