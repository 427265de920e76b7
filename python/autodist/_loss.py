"""The loss of a step over the whole job, for whoever asks."""

import numbers

import torch

from ._errors import UsageError


def _tensor(value):
    """What a function of torch is given in the place of losses."""
    if isinstance(value, Loss):
        return value.tensor()
    if isinstance(value, (list, tuple)) and any(isinstance(each, Loss) for each in value):
        return type(value)(map(_tensor, value))
    return value


class Loss(numbers.Real):
    """What a step returns: the loss over all samples of all ranks, the same number at every rank.

    It is known a little after the step. ``float(loss)``, ``loss.item()``, printing and arithmetic
    wait for the other ranks to have computed the step; who does none of that waits for nobody, and
    no rank need do as another does. With asynchronous variables it is this rank's loss.

    Functions and methods of tensors take it for a tensor without dimensions and without a gradient:
    ``torch.stack(losses)``, ``total += loss``, ``loss.cpu()``; numpy takes it for a number. What wants
    a ``float`` itself, as :mod:`json` does, is given ``float(loss)``.
    """

    __slots__ = ("_source", "_value")

    def __init__(self, source):
        self._source = source
        self._value = None

    def item(self):
        """The number; waits as ``float(loss)`` does."""
        if self._value is None:
            self._value = self._source.value()
            self._source = None
        return self._value

    def tensor(self):
        """As a tensor without dimensions, of the default dtype; waits as ``float(loss)`` does."""
        return torch.tensor(self.item(), dtype=torch.get_default_dtype())

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        keywords = {key: _tensor(value) for key, value in (keywords or {}).items()}
        return function(*map(_tensor, arguments), **keywords)

    def __array__(self, dtype=None, copy=None):
        import numpy  # which has asked

        return numpy.array(self.item(), dtype)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(f"'Loss' object has no attribute '{name}'")
        return getattr(self.tensor(), name)

    def detach(self):
        """Itself: it has no gradient."""
        return self

    def backward(self, *arguments, **keywords):
        """Refused: the step has computed and used the gradients when it returns."""
        raise UsageError(
            "loss.backward(): the step has computed the gradients and updated the parameters when "
            "it returns: leave this call out."
        )

    def __float__(self):
        return self.item()

    def __repr__(self):
        return repr(self.item())

    def __format__(self, spec):
        return format(self.item(), spec)

    def __hash__(self):
        return hash(self.item())

    def __reduce__(self):
        return (float, (self.item(),))


def _delegate(name):
    method = getattr(float, name)

    def call(self, *others):
        return method(self.item(), *(float(x) if isinstance(x, Loss) else x for x in others))

    call.__name__ = name
    setattr(Loss, name, call)


for _name in (
    "__abs__ __add__ __bool__ __ceil__ __divmod__ __eq__ __floor__ __floordiv__ __ge__ __gt__ "
    "__int__ __le__ __lt__ __mod__ __mul__ __ne__ __neg__ __pos__ __pow__ __radd__ __rdivmod__ "
    "__rfloordiv__ __rmod__ __rmul__ __round__ __rpow__ __rsub__ __rtruediv__ __sub__ __truediv__ "
    "__trunc__"
).split():
    if hasattr(float, _name):
        _delegate(_name)
Loss.__abstractmethods__ = frozenset()
