"""What the steps of a training were, in the files that its user asked for; the chief writes them."""

import collections
import dataclasses
import os
import sys
import time

from . import _arguments, _autodist
from ._errors import MachineError, UsageError

_NAMES = ["loss", "lr", "step_seconds", "samples", "samples_per_second", "computing_seconds",
          "waiting_seconds"]


@dataclasses.dataclass(frozen=True)
class Files:
    """Where; None: nowhere."""

    log: str | None
    tensorboard: str | None
    report: str | None

    @classmethod
    def of(cls, log, tensorboard, report):
        """Of paths."""
        return cls(*(None if each is None else os.fsdecode(_arguments.path(name, each)) for name, each in
                     (("log", log), ("tensorboard", tensorboard), ("report", report))))

    def check(self):
        """That they can be written is said before the work."""
        for option, path, expect in (
            ("log=", self.log, lambda *of: _autodist.expect_lines(*of, _NAMES)),
            ("tensorboard=", self.tensorboard, _autodist.expect_folder),
            ("report=", self.report, _autodist.expect_writable),
        ):
            if path == "":
                raise UsageError(f"{option}'': a path expected, or None for no file")
            expect(option, os.fsencode(path or ""))

    def of_step(self, name):
        """One of several steps has files of its own: run-critic.csv, and a folder critic/."""

        def beside(path):
            stem, suffix = os.path.splitext(path)
            return f"{stem}-{name}{suffix}"

        return Files(
            self.log and beside(self.log),
            self.tensorboard and os.path.join(self.tensorboard, name),
            self.report and beside(self.report),
        )


class Records:
    """Of one session, at the chief. A step is written as soon as its loss is known, which is while
    a later one runs: nothing waits for it before :meth:`end`."""

    def __init__(self, handle, title, files):
        self._handle = handle
        self._title = title
        self._files = files
        self._logs = []
        self._open = False  # until the first step: a standby leaves the job's files alone
        self._run = _autodist.RunLog(_NAMES)
        self._untold = collections.deque()
        self._ended = None  # when the last step was

    @property
    def wanted(self):
        """Whether there is a file to write."""
        return bool(self._files.log or self._files.tensorboard or self._files.report)

    def _open_logs(self):
        self._open = True
        if self._files.log:
            self._logs.append(_autodist.open_lines("log=", os.fsencode(self._files.log), _NAMES))
        if self._files.tensorboard:
            folder = os.fsencode(self._files.tensorboard)
            self._logs.append(_autodist.open_tensorboard("tensorboard=", folder, time.time()))

    def add(self, lr):
        """After a step."""
        if not self.wanted:
            return
        if not self._open:
            self._open_logs()
        last = self._handle.last
        now = time.monotonic()
        wall = last.total_seconds if self._ended is None else now - self._ended
        self._ended = now
        self._untold.append((last, self._handle.job_loss(), lr, wall, time.time()))
        self._tell(wait=False)

    def _tell(self, wait):
        while self._untold and (wait or self._untold[0][1].known):
            last, loss, lr, wall, ended = self._untold.popleft()
            value = loss.value()  # waits
            waiting = last.waiting_seconds
            values = [value, lr, wall, loss.samples, loss.samples / wall,
                      last.total_seconds - waiting, waiting]
            for log in self._logs:
                known = log.failure
                if not log.write(last.step, ended, list(zip(_NAMES, values)), last.plan) and not known:
                    print(f"autodist: {log.failure}; step {last.step} is missing in it, "
                          "the training goes on", file=sys.stderr)
            if self._files.report:
                self._run.add(last.step, values, last.plan)

    def come_to_end(self):
        """Before the job ends in order."""
        self._tell(wait=True)

    def leave(self):
        """When it does not: with what is known."""
        self._tell(wait=False)

    def end(self):
        """After the job has ended; returns what is missing on disk, in words."""
        missing = [log.failure for log in self._logs if log.failure]
        if self._files.report:
            try:
                self._handle.write_report(os.fsencode(self._files.report), self._title, self._run)
            except MachineError as error:
                missing.append(f"report= {error}")
        return missing
