"""What goes wrong, as exceptions: one line each, and the exit code of AutoDist's programs."""

import builtins


class Error(Exception):
    """Whatever the world or the user got wrong.

    Attributes
    ----------
    code : int
        The exit code that AutoDist's programs give it.
    """

    code = 1


class UsageError(Error, ValueError):
    """An argument, a file or a model that cannot be used as given."""

    code = 2


class MachineError(Error):
    """This machine lacks something: a device, a port, a directory, a library."""

    code = 3


class InfeasibleError(Error):
    """The plan cannot be carried out on this cluster."""

    code = 4


class PeersLostError(Error):
    """Another rank died, hung or left."""

    code = 5


class CheckpointError(Error):
    """A checkpoint is missing, damaged or does not fit the model."""

    code = 6


class AuthenticationError(Error):
    """A peer could not prove that it belongs to the job."""

    code = 7


class TimeoutError(Error, builtins.TimeoutError):
    """A wait reached its limit."""

    code = 124


class JobEnded(SystemExit):
    """The chief has finished, and with it the job: a rank that would have gone on.

    At the chief itself: SIGTERM or SIGHUP came to a rank, and the job is to end; its session is open
    until the script finishes it, or ends. Before the first step at any rank that it came to.

    Not an :class:`Error`: nothing went wrong. As a ``SystemExit`` it passes ``except Exception``,
    and a script that does not catch it ends with exit code 0.

    Attributes
    ----------
    code : int
        0.
    """

    def __init__(self, message=""):
        super().__init__(message)
        self.code = 0


_CLASSES = (
    UsageError,
    MachineError,
    InfeasibleError,
    PeersLostError,
    CheckpointError,
    AuthenticationError,
    TimeoutError,
)


def of_code(code):
    """The class of errors with that code."""
    if code == 0:
        return JobEnded
    return next((each for each in _CLASSES if each.code == code), Error)
