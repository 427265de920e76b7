"""A program that starts its ranks itself, and is started again when one of them is lost."""

import dataclasses
import os
import shutil
import sys

from . import _arguments, _autodist
from ._errors import MachineError, UsageError


@dataclasses.dataclass(frozen=True)
class Supervised:
    """What is asked for."""

    restarts: int
    standby: bool
    min_ranks: int | None

    @classmethod
    def of(cls, restarts, standby, min_ranks):
        """Of arguments."""
        result = cls(_arguments.whole("restarts", restarts, bits=20), _arguments.flag("standby", standby),
                     None if min_ranks is None else _arguments.whole("min_ranks", min_ranks, 1, bits=20))
        if not result.restarts and (result.standby or result.min_ranks):
            name = "standby" if result.standby else "min_ranks"
            raise UsageError(f"{name}={getattr(result, name)}: of restarts, and there are none. Add "
                             "restarts=3, or leave it out.")
        return result

    def begin(self, specification, cpu_only, command):
        """By rank 0. Does not return where this process is to be the one above it."""
        if not self.restarts or "AUTODIST_JOB_FD" in os.environ:
            return
        if _autodist.is_launched():
            print(f"autodist: restarts={self.restarts}: without effect, as another program has started "
                  "these ranks. Give it to that one (autodist run has --restarts).", file=sys.stderr)
            return
        if command is None:
            raise UsageError(f"restarts={self.restarts}: the program is started again, and there is "
                             "none (interactive, notebook, standard input). Write it to a file.")
        if self.min_ranks and not specification:
            raise UsageError(f"min_ranks={self.min_ranks}: of a cluster, and none is named. Name it, or "
                             "leave min_ranks out.")
        words = ["supervise", "--restarts", str(self.restarts)]
        words += ["--cluster", specification] if specification else []
        words += ["--devices", "cpu"] if cpu_only else []
        words += ["--standby"] if self.standby else []
        words += ["--min-ranks", str(self.min_ranks)] if self.min_ranks else []
        sys.stdout.flush()
        sys.stderr.flush()
        _become_autodist([*words, "--", *command])


def _become_autodist(words):
    """The program that was built or installed with this package."""
    try:
        import autodist_programs
    except ImportError:  # not by pip: the programs of a build's folder, or those on PATH
        build = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        program = os.path.join(build, "bin", "autodist")
        found = program if os.access(program, os.X_OK) else shutil.which("autodist")
        if found is None:
            raise MachineError(f"restarts: neither {program} is there, nor an autodist on PATH. Build "
                               "the programs, too (make).") from None
        os.execv(found, [found, *words])
    autodist_programs.start("autodist", words)
