"""What arguments have to be, said where they are given."""

import collections.abc
import math
import numbers
import operator
import os

from ._errors import UsageError


def one_of(name, value, other_name, other):
    """What was given under one of two names."""
    if value and other:
        raise UsageError(f"{name} and {other_name} say the same thing: give one of them")
    return value or other


def whole(name, value, least=0, bits=63, otherwise=""):
    """The argument as an int of so many bits; a Boolean, which Python takes for one, is none."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number < 2**bits:
        large = number is not None and number >= least
        expected = f"below 2**{bits}" if large else f"of {least} or more"
        raise UsageError(f"{name}={value!r}: {otherwise}a whole number {expected} expected.")
    return number


def seconds(name, value):
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not real or not 0 < value < math.inf:
        raise UsageError(f"{name}={value!r}: a number of seconds above 0 expected.")
    return float(value)


def text(name, value, expected):
    if not isinstance(value, str):
        raise UsageError(f"{name}={value!r}: {expected} expected, as text.")
    return value


def flag(name, value, hint=""):
    """A Boolean of Python's or numpy's, a number, or None; words and paths are true, too, and meant otherwise."""
    if value is not None and not isinstance(value, int) and type(value).__name__ not in ("bool", "bool_"):
        raise UsageError(f"{name}={value!r}: True or False expected.{hint}")
    return bool(value)


def path(name, value, default=None):
    """As bytes; None stands for the default, where there is one."""
    if value is None and default is not None:
        return default
    try:
        return os.fsencode(value)
    except TypeError:
        raise UsageError(f"{name}={value!r}: a path expected.") from None


def mapping(name, value, of):
    """The items of a dict; none for None, and where there is nothing in it."""
    empty = value is None or isinstance(value, collections.abc.Sized) and not len(value)
    if not empty and not isinstance(value, collections.abc.Mapping):
        raise UsageError(f"{name}={value!r}: a dict of {of} by name expected.")
    return () if empty else value.items()
