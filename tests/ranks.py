"""The ranks of a job as processes of this machine."""

import pathlib


def rank_of(pid):
    words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next((int(word[14:]) for word in words if word.startswith(b"AUTODIST_RANK=")), None)


def children_of(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        found += [int(each) for each in (task / "children").read_text().split()]
    return found
