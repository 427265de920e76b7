"""Batches and results that are structures of tensors: tuples, lists, dictionaries, dataclasses and
None, nested as they come.

What is captured takes and gives tensors in a row. A structure is what an example looked like: it
takes values of the same look apart, whatever the order of their keys, and puts them together again.
"""

import collections.abc
import copy
import dataclasses
import functools
import inspect

import torch

from ._errors import UsageError

_AS_EXAMPLE = "Give a batch that is built as the example's."


def _is_named_tuple(value):
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _children(value):
    """[(how it is written, key, child)] of a container; None of what is none."""
    if isinstance(value, collections.abc.Mapping):  # before dataclasses: some are both
        return [(f"[{key!r}]", key, child) for key, child in value.items()]
    if _is_named_tuple(value):
        return [(f".{key}", key, getattr(value, key)) for key in value._fields]
    if isinstance(value, (tuple, list)):
        return [(f"[{index}]", index, child) for index, child in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        keys = [each.name for each in dataclasses.fields(value)]
        return [(f".{key}", key, getattr(value, key)) for key in keys]
    return None


def _attributes(value):
    """{name: value} of what an instance has beside its items."""
    held = getattr(value, "__dict__", None)
    return {} if held is None or held is value else held


def _tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [each for _, _, child in _children(value) or [] for each in _tensors(child)]


def _is_cached(value, name):
    return isinstance(getattr(type(value), name, None), functools.cached_property)


def _derives(container):
    """Whether a dataclass may make further attributes of its fields when it is made, and of nothing
    else."""
    kind = type(container)
    if not dataclasses.is_dataclass(kind) or not hasattr(kind, "__post_init__"):
        return False
    parameters = list(inspect.signature(kind.__init__).parameters)[1:]
    return parameters == [each.name for each in dataclasses.fields(kind) if each.init]


def _derived(value, items):
    """The attributes that a dataclass with these fields makes of them; None where it does not."""
    if not _derives(value):
        return None
    try:
        made = type(value)(**{key: child for key, child in items.items()
                              if key in inspect.signature(type(value).__init__).parameters})
    except Exception:  # the user's own checks, of what is no example
        return None
    if any(getattr(made, key) is not child for key, child in items.items()):
        return None  # it changes what it is given
    return {name: held for name, held in _attributes(made).items() if name not in items}


def _beside(value, children):
    """The name of an attribute with a tensor that a rebuilt container would have from its example."""
    items = {key: child for _, key, child in children}
    own = {id(each) for child in items.values() for each in _tensors(child)}
    for name, held in _attributes(value).items():
        if held is items.get(name) or _is_cached(value, name):
            continue
        # A container of the items is where they lie, as UserDict's.
        lies_there = not isinstance(held, torch.Tensor) and all(id(each) in own for each in _tensors(held))
        if _tensors(held) and not lies_there:
            derived = _derived(value, items)
            if derived is None or name not in derived:
                return name
    return None


def _kind(value):
    return "None" if value is None else f"of type {type(value).__name__}"


class Structure:
    """What `example` looks like, which messages call `what`.

    Attributes
    ----------
    names : list of str
        Of its tensors, in order, as they are reached from it: ``[1]['mask']``.
    """

    def __init__(self, example, what):
        self._what = what
        self._leaf = torch.Tensor
        self.names = []
        self._root = self._look(example, "")

    def like(self, leaf):
        """This structure with leaves of the type `leaf` in the place of tensors."""
        other = copy.copy(self)
        other._leaf = leaf
        return other

    def _look(self, value, path):
        """(container, [(written, key, look)]), a leaf's name, or None."""
        if value is None:
            return None
        if isinstance(value, self._leaf):
            self.names.append(path)
            return path
        children = _children(value)
        if children is None:
            raise UsageError(
                f"{self._what}{path} is {_kind(value)}, a tensor expected (or tuples, lists, dicts, "
                "dataclasses of some). Make it one: anything else would be the same in every step."
            )
        beside = _beside(value, children)
        if beside is not None:
            what = "fields" if dataclasses.is_dataclass(value) else "items"
            raise UsageError(
                f"{self._what}{path}.{beside} is a tensor beside the {what}, which alone are taken: "
                "it would be the same in every step. Make it one of them."
            )
        looks = [(written, key, self._look(child, path + written))
                 for written, key, child in children]
        return (self._emptied(value), looks)

    @staticmethod
    def _emptied(value):
        """A container like it that keeps no tensors alive."""
        if isinstance(value, (tuple, list)) and not isinstance(value, collections.abc.Mapping):
            return type(value)
        if isinstance(value, collections.abc.Mapping):
            return _filled(value, [(key, None) for key in value])
        emptied = copy.copy(value)
        fields = [each.name for each in dataclasses.fields(value)]
        for name in {*fields, *(key for key, held in _attributes(value).items() if _tensors(held))}:
            object.__setattr__(emptied, name, None)
        return emptied

    def leaves(self, value, what=None):
        """Its tensors in order, if it looks like the example.

        Raises
        ------
        UsageError
            With the first path at which it does not.
        """
        found = []
        self._collect(self._root, value, what or self._what, found)
        return found

    def _collect(self, look, value, path, found):
        if look is None or isinstance(look, str):
            fits = value is None if look is None else isinstance(value, self._leaf)
            if not fits:
                wanted = "None" if look is None else f"a {self._leaf.__name__.lower()}"
                raise UsageError(
                    f"{path} is {_kind(value)}; the step was captured with {wanted} there. {_AS_EXAMPLE}"
                )
            if look is not None:
                found.append(value)
            return
        container, looks = look
        children = _children(value)
        if children is None:
            kind = container if isinstance(container, type) else type(container)
            raise UsageError(
                f"{path} is {_kind(value)}; the step was captured with a {kind.__name__} "
                f"there. {_AS_EXAMPLE}"
            )
        by_key = {key: child for _, key, child in children}
        for written, key, below in looks:
            if key not in by_key:
                raise UsageError(
                    f"{path} has no {written.lstrip('.')}, which the step was captured with. "
                    f"{_AS_EXAMPLE}"
                )
            self._collect(below, by_key[key], path + written, found)
        known = {key for _, key, _ in looks}
        for written, key, _ in children:
            if key not in known:
                raise UsageError(
                    f"{path}{written} was not there when the step was captured. {_AS_EXAMPLE}"
                )

    def rebuilt(self, leaves):
        """The structure with these tensors."""
        return self._build(self._root, iter(leaves))

    def _build(self, look, leaves):
        if look is None:
            return None
        if isinstance(look, str):
            return next(leaves)
        container, looks = look
        items = [(key, self._build(below, leaves)) for _, key, below in looks]
        if not isinstance(container, type):
            return _filled(container, items)
        values = [value for _, value in items]
        return container(*values) if hasattr(container, "_fields") else container(values)


def _filled(container, items):
    """A copy of a mapping or dataclass with these values in it, and in the attributes of theirs."""
    if isinstance(container, collections.abc.Mapping):
        if not isinstance(container, collections.abc.MutableMapping):
            return dict(items)
        held = _attributes(container)
        mirrored = [key for key, _ in items if key in held and held[key] is container[key]]
        filled = copy.copy(container)
        for key, value in items:
            filled[key] = value
        if getattr(container, "__dict__", None) is container:
            filled.__dict__ = filled
        for key in mirrored:
            _attributes(filled)[key] = filled[key]
    else:
        filled = copy.copy(container)
        for key, value in items:
            object.__setattr__(filled, key, value)  # a frozen one, too
        missing = {name for name, held in _attributes(filled).items()
                   if held is None and name not in dict(items)}
        derived = _derived(filled, dict(items)) if missing else None
        for name in missing & set(derived or ()):
            object.__setattr__(filled, name, derived[name])
    attributes = _attributes(filled)
    for name in [each for each in attributes if _is_cached(filled, each)]:
        del attributes[name]
    return filled


def moved(value, device):
    """`value` with its tensors on `device`; itself where all of them are there."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    children = _children(value) or []
    items = [(key, moved(child, device)) for _, key, child in children]
    if all(new is old for (_, new), (_, _, old) in zip(items, children)):
        return value
    if _is_named_tuple(value):
        return type(value)(*(new for _, new in items))
    if isinstance(value, (tuple, list)):
        return type(value)(new for _, new in items)
    return _filled(value, items)
