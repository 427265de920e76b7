"""The ranks of a job as processes of this machine."""

import contextlib
import pathlib

from running import wait_until


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


def has_ended(pid):
    """A zombie has, which only waits for somebody to ask how."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
    return True


def wait_for_ends(pids, seconds=20):
    """An AssertionError where some of the processes still run then."""
    def left():
        return [pid for pid in pids if not has_ended(pid)]

    wait_until(lambda: not left(), seconds, said=lambda: f"processes are still there: {left()}")
