"""How sessions end with their process, where their user has not ended them."""

import atexit
import os
import sys
import weakref

from . import _autodist, _signals
from ._errors import Error

live = weakref.WeakSet()


@atexit.register
def _end():
    """Before the interpreter goes: what was not ended is, by the exit code that it ends with.

    That code is the error's, where one was not caught or the end is not in order.
    """
    # An interactive session has gone on after it, and ends as its user ends it.
    uncaught = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    failed = uncaught is not None
    if isinstance(uncaught, Error):
        _autodist.exit_with(uncaught.code, instead_of=1)
    for each in list(live):
        if each._process != os.getpid():
            continue
        failed = failed or _signals.stopped_early()
        if not failed and not each._ended and not each._calls_python:
            each._handle.end_with_process()
            continue
        try:
            if not failed:
                each.finish()
        except Error as error:
            print(f"autodist: {error}", file=sys.stderr)
            _autodist.exit_with(error.code, instead_of=0)
        each.close(words_of(uncaught) or _signals.stopped_early())


def words_of(error):
    """As its traceback ends, in one line; '' for none."""
    return "" if error is None else f"{type(error).__name__}: {error}".split("\n")[0]
