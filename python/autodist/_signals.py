"""SIGTERM and SIGHUP of a training: the job ends in order, as `autodist train` does."""

import contextlib
import functools
import os
import signal
import sys
import threading
import weakref

from . import _autodist
from ._errors import JobEnded

_WISHES = (signal.SIGTERM, signal.SIGHUP)

_preparing = weakref.WeakSet()  # jobs without a session
_sessions = weakref.WeakSet()
_wished = ""  # the signal, in words
_stopped_early = ""
_early = None  # until all have done a step: ends the process where the interpreter can run no handler


def watch(job):
    """From the main thread, unless the script has a handler of its own: that one stays."""
    global _early
    _preparing.add(job)
    if threading.current_thread() is not threading.main_thread():
        return
    for each in _WISHES:
        if signal.getsignal(each) == signal.SIG_DFL:
            signal.signal(each, _on_wish)
            # Also where the interpreter cannot run a handler: in a step that hangs.
            _autodist.end_at_second_signal(each)
            _early = _early or _autodist.EarlyEnd()


def watch_session(job, session):
    """In the place of its job, until `forget`."""
    _preparing.discard(job)
    _sessions.add(session)


def stepped():
    """A step of this rank is done."""
    if _early is not None and _has_begun():
        _leave_it_to_handlers()


def forget(ended):
    """A job or session that a signal has nothing to do with any more."""
    _preparing.discard(ended)
    _sessions.discard(ended)
    if not _preparing and not _sessions:
        _default()


def stopped_early():
    """What is to say where a signal came before the first step, else '': then nobody waits for an
    end in order."""
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
    by = f"a signal to rank {rank}" if rank else _wished
    what = f"stopped by {by} after step {session.step}"
    if not session._told_stop:
        print(f"autodist: {what}", file=sys.stderr, flush=True)
    session._told_stop = True
    session._handle.wish_for_the_end()  # the job is not through, and keeps its snapshot
    raise JobEnded(what)


def heed_early():
    """After a rank was lost: where a signal came before all had done a step, that is why.

    Raises
    ------
    JobEnded
    """
    if _wished and not _has_begun():
        _end_early()


@contextlib.contextmanager
def workers_of(loader):
    """The workers that a ``DataLoader`` starts meanwhile live on when a signal comes to all processes
    of the job: the rank ends it in order, and needs batches until then."""
    if not getattr(loader, "num_workers", 0) or not hasattr(loader, "worker_init_fn"):
        yield
        return
    own = loader.worker_init_fn
    loader.worker_init_fn = functools.partial(_begin_worker, own, os.getpid())
    try:
        yield
    finally:
        loader.worker_init_fn = own


def _begin_worker(own, rank, number):
    _autodist.end_by_alone(rank)
    if own is not None:
        own(number)


def _has_begun():
    """Whether all ranks have done a step. One that only serves does none, and ends with the others."""
    return any(each._handle.only_serves or (each._first_loss is not None and each._first_loss.known)
               for each in _sessions)


def _leave_it_to_handlers():
    global _early
    _early = None


def _end_early():
    global _stopped_early
    _autodist.tell_chief_to_stop()
    _stopped_early = _autodist.stopped_early(_wished)
    print(f"autodist: {_stopped_early}", file=sys.stderr, flush=True)
    raise JobEnded(_stopped_early)


def _default():
    if threading.current_thread() is not threading.main_thread():
        return
    _leave_it_to_handlers()
    for each in _WISHES:
        if signal.getsignal(each) is _on_wish:
            signal.signal(each, signal.SIG_DFL)


def _on_wish(number, frame):
    global _wished
    if not _preparing and not _sessions:
        _default()
        os.kill(os.getpid(), number)
        return
    _leave_it_to_handlers()
    if _wished:
        return
    _wished = signal.Signals(number).name
    if _autodist.stop_signal_is_the_starters():
        _wished += " of what started this rank"  # which may have lost another one
    if not _has_begun():
        _end_early()
    for each in _sessions:
        if each._handle.only_serves:
            each._handle.wish_for_the_end()


# A fork (a worker that loads data) has no part in the job.
os.register_at_fork(after_in_child=_default)
