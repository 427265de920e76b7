"""Calls that would do nothing to what a session trains, and say nothing: they are refused.

The session of a parameter computes its gradients, clips them and updates it, and most often has the
optimizer's state. So the functions that clip gradients, and ``step``, ``state_dict`` and
``load_state_dict`` of every optimizer, look whom they are called for, and else do what they did.
"""

import contextlib
import functools
import sys
import threading
import warnings
import weakref

import torch

from ._errors import UsageError

_CLIPPING = {
    "clip_grad_norm_": "Give distribute(…, clip=MAX_NORM), or 'clip=MAX_NORM' in the optimizer's "
    "text.",
    "clip_grad_value_": "Give an update rule of your own, which may clamp its gradient "
    "(AutoDist(update_rules=…)), or distribute(…, clip=MAX_NORM).",
}
_CLIPPING["clip_grad_norm"] = _CLIPPING["clip_grad_norm_"]  # its deprecated name
_CLIPPING["_clip_grads_with_norm_"] = _CLIPPING["clip_grad_norm_"]  # torch.nn.utils has it without "_"

_STATE = ("the session that trained its parameters has the momenta and what else an optimizer "
          "keeps: session.save(FOLDER) writes them, session.resume(FOLDER) goes on from them")

_live = weakref.WeakSet()
_stateless = weakref.WeakSet()  # optimizers whose state a session has, or had
_warned = weakref.WeakKeyDictionary()  # of what was said of an optimizer


class _Asking(threading.local):  # by this thread
    options = False  # alone
    updates = False  # what a session trains


_asking = _Asking()
_MARK = "_autodist_guards"


class Guard:
    """Refuses such calls for a session's parameters until :meth:`end`.

    Parameters
    ----------
    parameters : list of (str, torch.Tensor)
    has_state : bool
        Whether the session has the optimizer's state; else the optimizer itself.
    """

    def __init__(self, parameters, has_state=True):
        self._parameters = {id(tensor): name for name, tensor in parameters if tensor.requires_grad}
        self.has_state = has_state
        _live.add(self)
        install()

    def name_of(self, tensors):
        """The name of the first one that the session trains; None: it trains none of them."""
        return next((self._parameters[id(t)] for t in tensors if id(t) in self._parameters), None)

    def end(self):
        """The session is over: the parameters are like any others."""
        _live.discard(self)


def _refuse(what, tensors, remedy, guards=None):
    for guard in list(_live if guards is None else guards):
        name = guard.name_of(tensors)
        if name is not None:
            raise UsageError(f"{what}: a session of AutoDist trains '{name}', and {remedy}")


def _guarded_clipping(function):
    name = function.__name__

    @functools.wraps(function)
    def clip(parameters, *arguments, **keywords):
        if _live and not _asking.updates:
            parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            _refuse(
                name.lstrip("_"),
                parameters,
                f"clips its gradients itself: here there are none to be clipped. {_CLIPPING[name]}",
            )
        return function(parameters, *arguments, **keywords)

    return clip


def note_trained(optimizer):
    """A session has updated its parameters, and has its state."""
    keeps = any(group.get("momentum", 1) != 0 for group in optimizer.param_groups)
    if keeps:  # SGD without momentum has none
        _stateless.add(optimizer)


def is_stateless(optimizer):
    """Whether a session has, or had, the state that this optimizer would go on with."""
    return optimizer in _stateless and not optimizer.state


@contextlib.contextmanager
def options_alone():
    """While a state_dict() is asked for that need not have more."""
    _asking.options = True
    try:
        yield
    finally:
        _asking.options = False


@contextlib.contextmanager
def own_step():
    """While a session calls ``step`` of an optimizer itself."""
    _asking.updates = True
    try:
        yield
    finally:
        _asking.updates = False


def warn_of_state(optimizer, what):
    """Once for each `what`, where a session has, or had, the state that the optimizer lacks."""
    if is_stateless(optimizer) and not _asking.options and what not in _warned.setdefault(optimizer, set()):
        _warned[optimizer].add(what)
        warnings.warn(f"{what}: {_STATE}", stacklevel=3)


def _guarded_state_dict(function):
    @functools.wraps(function)
    def state_dict(self, *arguments, **keywords):
        warn_of_state(self, "optimizer.state_dict() has the options alone")
        return function(self, *arguments, **keywords)

    return state_dict


def _guarded_load(function):
    @functools.wraps(function)
    def load_state_dict(self, state_dict, *arguments, **keywords):
        if _live and not _asking.updates and state_dict.get("state"):
            _refuse(
                "optimizer.load_state_dict()",
                [tensor for group in self.param_groups for tensor in group["params"]],
                "has the state that it goes on with: session.resume(FOLDER) loads one.",
                [guard for guard in _live if guard.has_state],
            )
        return function(self, state_dict, *arguments, **keywords)

    return load_state_dict


def _guarded_step(function):
    @functools.wraps(function)
    def step(self, *arguments, **keywords):
        if _live and not _asking.updates:
            _refuse(
                f"optimizer: {type(self).__name__}.step()",
                [tensor for group in self.param_groups for tensor in group["params"]],
                "has updated it when its own step returns: leave this call out.",
            )
        warn_of_state(self, "optimizer.step() begins with a state of its own")
        return function(self, *arguments, **keywords)

    return step


def _all_optimizers(kind):
    yield kind
    for each in kind.__subclasses__():
        yield from _all_optimizers(each)


def _guard_clipping():
    """Wherever a module has one of the functions under whatever name."""
    originals = [getattr(torch.nn.utils.clip_grad, name, None) for name in _CLIPPING]
    guarded = {
        id(each): _marked(_guarded_clipping(each))
        for each in originals
        if each is not None and not hasattr(each, _MARK)
    }
    # A module that imported one later has what its origin had: the guarded one.
    for module in list(sys.modules.values()) if guarded else ():
        names = getattr(module, "__dict__", None)
        for name, value in list(names.items()) if isinstance(names, dict) else ():
            if id(value) in guarded:
                names[name] = guarded[id(value)]


def _marked(function):
    setattr(function, _MARK, True)
    return function


def install():
    """Guard what there is; again where a class of optimizers may have come since."""
    _guard_clipping()
    for kind in _all_optimizers(torch.optim.Optimizer):
        for name, guarded in (("step", _guarded_step), ("state_dict", _guarded_state_dict),
                              ("load_state_dict", _guarded_load)):
            method = kind.__dict__.get(name)
            if method is not None and not hasattr(method, _MARK):
                setattr(kind, name, _marked(guarded(method)))


install()
