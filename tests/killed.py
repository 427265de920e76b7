"""A job of `autodist train` whose ranks are killed: how far it is, what it has said, what it leaves behind."""

import contextlib
import json
import os
import pathlib
import signal
import struct
import subprocess
import time

from ranks import children_of, rank_of, standby_of
from running import SECONDS, wait_until

STEPS = 300  # seconds' worth: a loaded machine may be late to kill


class Training:
    """`autodist train`, its words in files; or `autodist` with the words `under`, which start that."""

    def __init__(self, autodist, folder, *more, ranks=2, steps=STEPS, builder="PS", model="digits",
                 every=10, batch=64, optimizer="adam:lr=1e-3", environment=None, under=()):
        self.saved = folder / "saved"
        self.log = folder / "log.jsonl"
        self.said_in = folder / "stderr"
        saves = ["--checkpoint-every", every] if "--save" in more else []
        chooses = [] if "--strategy" in more else ["--builder", builder]
        words = [*under, "train", model, "--cluster", f"local:{ranks}", *chooses, "--batch", batch, "--steps", steps, *saves,
                 "--log", self.log, "--optimizer", optimizer, *more]
        with open(self.said_in, "w", encoding="utf-8") as said:
            self.process = subprocess.Popen([autodist, *(str(each) for each in words)], stdout=subprocess.PIPE,
                                            stderr=said, text=True, env=environment)

    def said(self):
        return self.said_in.read_text()

    def until(self, happens, every=0.005):
        end = time.monotonic() + SECONDS
        while not happens():
            assert self.process.poll() is None and time.monotonic() < end, self.said()
            time.sleep(every)

    def steps(self):
        return self.log.read_text().count("\n") if self.log.exists() else 0

    def until_steps(self, more):
        wanted = self.steps() + more
        self.until(lambda: self.steps() >= wanted)

    def ranks(self, standby=False):
        """Their processes, by number; or those of the standby, whose number is higher than the job's own."""
        found = {}
        with contextlib.suppress(OSError):  # one that ends meanwhile
            chiefs = sorted(children_of(self.process.pid), key=standby_of)
            for chief in chiefs[1:] if standby else chiefs[:1]:
                found[0] = chief
                found.update({rank_of(each): each for each in children_of(chief)})
        return found

    def kill(self, *numbers):
        ranks = self.ranks()
        for number in numbers:
            os.kill(ranks[number], signal.SIGKILL)

    def ended(self, code):
        out, _ = self.process.communicate(timeout=SECONDS)
        assert self.process.returncode == code, (self.process.returncode, out, self.said())
        return out


def state_of(folder, step):
    files = sorted((folder / f"step-{step}").glob("*.safetensors"))
    assert files, list(folder.iterdir())
    return {each.name: each.read_bytes() for each in files}


def tensors_of(data):
    """What a safetensors file has of each tensor, and of itself."""
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    about = header.pop("__metadata__", None)
    return {"": about, **{name: (each["dtype"], each["shape"], data[8 + size:][slice(*each["data_offsets"])])
                          for name, each in header.items()}}


def what_differs(one, other):
    """Between two of state_of(): the names of files, and of tensors in them."""
    found = sorted(set(one) ^ set(other))
    for name in sorted(set(one) & set(other)):
        if one[name] != other[name]:
            a, b = tensors_of(one[name]), tensors_of(other[name])
            found += [f"{name}: {each}" for each in sorted(set(a) | set(b)) if a.get(each) != b.get(each)] or [name]
    return found


def processes_with(variable):
    """Those of this machine in whose environment it is, as NAME=VALUE, by number with their words."""
    found = {}
    for each in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # one that ends meanwhile, or is another user's
            if each.name.isdigit() and variable.encode() in (each / "environ").read_bytes().split(b"\0"):
                found[int(each.name)] = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def wait_for_none_with(variable, seconds=20):
    """An AssertionError where some of processes_with() still run then."""
    wait_until(lambda: not processes_with(variable), seconds, every=0.05,
               said=lambda: f"processes are left: {processes_with(variable)}")
