"""A model's parameters, which are made the newest where somebody reaches them between two steps."""

import collections
import collections.abc
import contextlib
import copy
import os
import sys

from ._errors import AuthenticationError, JobEnded, PeersLostError, TimeoutError, UsageError

# With these the job is over, in whatever call they come.
_ENDS = (PeersLostError, TimeoutError, AuthenticationError, JobEnded)


class Settler:
    """Makes what is reached through the modules the newest first, and lets it be changed.

    One of a job, whatever number of steps it has.
    """

    def __init__(self):
        self._settle = None  # of any of the job's sessions: the others know
        self._trained = set()
        self._read = set()  # and what is only read
        self._modules = []
        self._settled = set()  # since the last step
        self._busy = False
        self._process = os.getpid()  # a fork has a copy of its own

    def watch(self, settle, model, parameters):
        """From here on; `settle(tensor)` waits for one parameter."""
        self._settle = settle
        self._trained |= {id(tensor) for _, tensor in parameters if tensor.requires_grad}
        for module in model.modules():
            known = module._parameters
            with self.untouched():
                self._read |= {id(tensor) for tensor in known.values()}
            if isinstance(known, _Parameters) and known._settler is self:
                continue
            module._parameters = _Parameters(self, known.items())
            self._modules.append(module)

    def end(self):
        """The modules are as they were."""
        for module in self._modules:
            known = module._parameters
            if isinstance(known, _Parameters) and known._settler is self:
                module._parameters = collections.OrderedDict(known.untouched())
        self._modules = []
        self._settle = None

    @contextlib.contextmanager
    def step(self):
        """While a step runs nothing is settled.

        What failed does not go on, and the tensors stay as they are.
        """
        with self.untouched():
            self._settled.clear()
            try:
                yield
            except UsageError:
                raise
            except BaseException:
                self.end()
                raise

    @contextlib.contextmanager
    def newest(self):
        """While a function of the user's runs in a call that makes everything the newest.

        What that function raises is its caller's to handle: the session goes on.
        """
        with self.untouched():
            self._settled.clear()
            try:
                yield
            except _ENDS:
                self.end()
                raise

    @contextlib.contextmanager
    def untouched(self):
        """While the session is in a call of its own, what Python does meanwhile asks it nothing."""
        busy, self._busy = self._busy, True
        try:
            yield
        finally:
            self._busy = busy

    def reach(self, tensor):
        """Somebody is about to read or write it."""
        if self._busy or self._settle is None or id(tensor) not in self._trained:
            return
        if id(tensor) not in self._settled and self._process == os.getpid():
            self._settle(tensor)
            self._settled.add(id(tensor))

    def replace(self, name, before, after):
        """Somebody puts another tensor in the place of one that is trained, or read."""
        is_trained = id(before) in self._trained
        if self._settle is None or after is before or before is None:
            return
        if not is_trained and (self._busy or id(before) not in self._read):
            return
        if _puts_back():
            return
        raise UsageError(
            f"'{name}' is {'trained' if is_trained else 'read'} by a live session, which would go on "
            f"with the old tensor. Write into it: with torch.no_grad(): model.{name}.copy_(values)."
        )


def _puts_back():
    """Whether `torch.func.functional_call` replaces a parameter, which it does for one call."""
    frame = sys._getframe(3)  # who writes into the table
    return frame.f_globals.get("__name__") in (
        "torch.nn.utils._named_member_accessor", "torch.nn.utils.stateless")


class _Parameters(collections.OrderedDict):
    """A module's table of parameters."""

    def __init__(self, settler, items):
        self._settler = None
        super().__init__(items)
        self._settler = settler

    def __getitem__(self, name):
        tensor = super().__getitem__(name)
        self._settler.reach(tensor)
        return tensor

    def get(self, name, default=None):
        return self[name] if name in self else default

    def items(self):
        return collections.abc.ItemsView(self)

    def values(self):
        return collections.abc.ValuesView(self)

    def untouched(self):
        """(name, tensor), as they are."""
        return [(name, super(_Parameters, self).__getitem__(name)) for name in self]

    def __setitem__(self, name, tensor):
        if self._settler is not None and name in self:
            self._settler.replace(name, super().__getitem__(name), tensor)
        super().__setitem__(name, tensor)

    def __delitem__(self, name):
        self._settler.replace(name, super().__getitem__(name), None)
        super().__delitem__(name)

    def copy(self):
        return collections.OrderedDict(self.items())

    __copy__ = copy

    # A copy of a module, or one that is saved, is nobody's.
    def __deepcopy__(self, memo):
        return copy.deepcopy(self.copy(), memo)

    def __reduce__(self):
        return (collections.OrderedDict, (list(self.items()),))
