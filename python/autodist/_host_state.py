"""What a step reads from Python and not from its batch: plain values, and which tensors, modules and
functions there are, of its model and of what the loss function reaches. A replay knows them as they were
at the capture."""

import functools
import sys
import types
import weakref

import torch

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_MOST = 20_000  # values of a snapshot
_LONGEST = 64  # of lists and dictionaries that are looked into
_DEEPEST = 5  # objects in objects, and functions that functions call
_OWN_OF_MODULES = {*vars(torch.nn.Module())}  # a step keeps its modes
# Their objects are no settings of a step, but for modules and for what only holds attributes.
_LIBRARIES = {"torch", "autodist", "numpy", *sys.stdlib_module_names}
_WITHOUT_SETTINGS = _LIBRARIES - {"argparse", "types", "collections"}


def _is_of_library(thing):
    is_class = issubclass(type(thing), type)
    name = type.__getattribute__(thing, "__module__") if is_class else thing.__module__
    return not isinstance(name, str) or name.partition(".")[0] in _WITHOUT_SETTINGS


def _number(tensor):
    """Of a tensor without dimensions on the host, its value: a capture reads it like a number."""
    if tensor.dim() != 0 or tensor.device.type != "cpu" or tensor.layout != torch.strided:
        return None
    try:
        return tensor.detach().numpy().item()
    except (TypeError, RuntimeError):  # NumPy has no such type
        return None


def _items(container):
    """(key, value) of a list, tuple or dictionary that is not long, also of a class of somebody's."""
    kind = next(each for each in (list, tuple, dict) if issubclass(type(container), each))
    if kind.__len__(container) > _LONGEST:
        return []
    if kind is dict:
        return [item for item in list(dict.items(container)) if issubclass(type(item[0]), _PLAIN)]
    return list(enumerate(kind.__iter__(container)))


class _Walk:
    """Through what is reached from a model and a loss function, by no code of the user's: no property
    is read. An object is looked into once."""

    def __init__(self, model):
        self.found = {}
        self._named = {}  # by a message's word for a variable: where it is one
        self._seen = {id(each) for table in (model.parameters(), model.buffers()) for each in table}
        self._model_of(model)

    def _model_of(self, model):
        kinds = {}
        for path, module in model.named_modules():
            name = f"model.{path}" if path else "model"
            self._seen.add(id(module))
            self.found[name] = weakref.ref(module)
            self._attributes(name, module, 0)
            kinds[type(module)] = True
        for kind in kinds:
            self._forward(kind, 0)

    def _attributes(self, name, module, depth):
        for key, value in list(vars(module).items()):
            if key not in _OWN_OF_MODULES:
                self.visit(f"{name}.{key}", value, depth)

    def _forward(self, kind, depth):
        """What the methods of a module's class read beside the module."""
        if _is_of_library(kind) or id(kind) in self._seen:
            return
        self._seen.add(id(kind))
        for key, method in vars(kind).items():
            if type(method) is types.FunctionType and key != "__init__":
                self._read_by(method, depth + 1)

    def visit(self, name, value, depth):
        found, kind = self.found, type(value)  # and not isinstance, which asks for value.__class__
        if issubclass(kind, _PLAIN):
            found[name] = value
            return
        if depth > _DEEPEST or len(found) >= _MOST:
            return
        if issubclass(kind, torch.Tensor):
            if id(value) not in self._seen:
                number = _number(value)
                found[name] = weakref.ref(value) if number is None else number
            return
        is_module = issubclass(kind, torch.nn.Module)
        if is_module or kind is types.FunctionType:
            found[name] = weakref.ref(value)
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if is_module:
            self._attributes(name, value, depth)
            for table in (value._parameters, value._buffers, value._modules):
                for key, each in list(table.items()):
                    self.visit(f"{name}.{key}", each, depth)
            self._forward(kind, depth)
        elif issubclass(kind, (list, tuple, dict)):
            for key, each in _items(value):
                self.visit(f"{name}[{key!r}]", each, depth + 1)
        elif kind in (types.FunctionType, types.MethodType, functools.partial):
            self.function(name, value, depth + 1)
        elif kind is type:
            if not _is_of_library(value):
                for key, each in list(vars(value).items()):
                    if issubclass(type(each), _PLAIN) and not key.startswith("__"):
                        found[f"{name}.{key}"] = each
        elif kind.__dictoffset__ and not _is_of_library(kind):
            for key, each in list(object.__getattribute__(value, "__dict__").items()):
                self.visit(f"{name}.{key}", each, depth + 1)

    def _word_for(self, key, place, owner):
        """Its name alone, if no other variable has that."""
        return key if self._named.setdefault(key, place) is place else f"{owner}.{key}"

    def function(self, name, function, depth):
        """What a function reads beside its arguments."""
        kind = type(function)
        if kind is functools.partial:
            for i, value in enumerate(function.args):
                self.visit(f"{name}.args[{i}]", value, depth)
            for key, value in function.keywords.items():
                self.visit(f"{name}.{key}", value, depth)
            self.function(name, function.func, depth)
        elif kind is types.MethodType:
            self.visit("self" if depth == 0 else f"{name}.self", function.__self__, depth)
            self.function(name, function.__func__, depth)
        elif kind is types.FunctionType:
            self._read_by(function, depth)
        else:
            self.visit(name, function, depth)

    def _read_by(self, function, depth):
        if _is_of_library(function):
            return
        names = function.__code__.co_names
        tables = function.__globals__
        for key in names:
            value = tables.get(key)
            if type(value) is types.ModuleType:
                if value.__name__.partition(".")[0] not in _LIBRARIES:
                    for each in names:  # its attributes that are meant are among them
                        if each in vars(value):
                            self.visit(f"{key}.{each}", vars(value)[each], depth)
            elif key in tables:
                self.visit(self._word_for(key, tables, tables.get("__name__")), value, depth)
        for key, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                self.visit(self._word_for(key, cell, function.__qualname__), cell.cell_contents, depth)
            except ValueError:  # not filled yet
                continue


def _autocast():
    """{as a message calls it: whether ops convert what they take}, a mode of this thread's."""
    try:
        return {f"torch.is_autocast_enabled('{kind}')": torch.is_autocast_enabled(kind)
                for kind in ("cpu", "cuda")}
    except TypeError:  # before libtorch 2.4
        return {"torch.is_autocast_cpu_enabled()": torch.is_autocast_cpu_enabled(),
                "torch.is_autocast_enabled()": torch.is_autocast_enabled()}


def snapshot(model, loss_fn):
    """{as a message calls it: its value, or a weak reference} of what a step may read."""
    walk = _Walk(model)
    walk.found.update(_autocast())
    if loss_fn is not None:
        walk.function("loss_fn", loss_fn, 0)
    return walk.found


def _is_same(before, now):
    return before is now or (
        isinstance(before, _PLAIN) and type(before) is type(now) and before == now)


def differing(before, now):
    """The names of what is not the same in two snapshots, sorted."""
    same = [name for name, value in before.items() if name in now and _is_same(value, now[name])]
    return sorted({*before, *now}.difference(same))


def has_others(before, now):
    """Whether a tensor, module or function has gone, or another one is in its place."""
    return any(isinstance(value, weakref.ref) and now.get(name) is not value
               for name, value in before.items())


def _written(value):
    if isinstance(value, weakref.ref):
        there = value()
        return "another object" if there is None else f"a {type(there).__name__}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _change(name, before, now):
    if isinstance(before.get(name), weakref.ref) and isinstance(now.get(name), weakref.ref):
        return f"{name} is another {type(now[name]()).__name__}"
    was = _written(before[name]) if name in before else "not there"
    return f"{name} was {was} and is {_written(now[name]) if name in now else 'gone'}"


def changes(before, now):
    """A sentence about the first few that differ; '' where none does."""
    told = []
    for name in differing(before, now):
        if not name.startswith(tuple(f"{each}{mark}" for each in told for mark in ".[")):
            told.append(name)
    if not told:
        return ""
    more = f" and {len(told) - 3} more" if len(told) > 3 else ""
    words = "; ".join(_change(name, before, now) for name in told[:3])
    remedy = " Write new values into the tensors that were captured: copy_(), or load_state_dict()."
    return f"Since the capture {words}{more}.{remedy if has_others(before, now) else ''}"
