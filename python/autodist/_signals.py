"""SIGTERM of a training: the job ends in order, as `autodist train` does."""

import os
import signal
import sys
import threading
import weakref

from . import _autodist
from ._errors import JobEnded

_preparing = weakref.WeakSet()  # jobs without a session
_sessions = weakref.WeakSet()
_wished = False
_stopped_early = False


def watch(job):
    """From the main thread, unless the script has a handler of its own: that one stays."""
    _preparing.add(job)
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)
        # Also where the interpreter cannot run a handler: in a step that hangs.
        _autodist.end_at_second_signal(signal.SIGTERM)


def watch_session(job, session):
    """In the place of its job, until `forget`."""
    _preparing.discard(job)
    _sessions.add(session)


def forget(ended):
    """A job or session that a signal has nothing to do with any more."""
    _preparing.discard(ended)
    _sessions.discard(ended)
    if not _preparing and not _sessions:
        _default()


def stopped_early():
    """Whether a signal came before the first step: then nobody waits for an end in order."""
    return _stopped_early


def heed(session):
    """Before a step: the chief ends the job here, the other ranks tell it to.

    Raises
    ------
    JobEnded
        At the chief; the session is open.
    """
    if not session.is_chief:
        if _wished:
            session._handle.wish_for_the_end()
        return
    rank = 0 if _wished else session._handle.who_wishes_for_the_end()
    if rank is None:
        return
    whose = f" (rank {rank})" if rank else ""
    what = f"stopped by SIGTERM{whose} after step {session.step - 1}"
    if not session._told_stop:
        print(f"autodist: {what}", file=sys.stderr, flush=True)
    session._told_stop = True
    raise JobEnded(what)


def _default():
    mine = threading.current_thread() is threading.main_thread()
    if mine and signal.getsignal(signal.SIGTERM) is _on_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _on_sigterm(number, frame):
    global _wished, _stopped_early
    if not _preparing and not _sessions:
        _default()
        os.kill(os.getpid(), number)
        return
    if _wished:
        return
    _wished = True
    if any(each._begun for each in _sessions):
        return
    _stopped_early = True
    what = "stopped by SIGTERM before the first step: nothing was trained or saved"
    print(f"autodist: {what}", file=sys.stderr, flush=True)
    raise JobEnded(what)


# A fork (a worker that loads data) has no part in the job.
os.register_at_fork(after_in_child=_default)
