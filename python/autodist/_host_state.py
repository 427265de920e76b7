"""What a step reads from Python and not from tensors: plain attributes of its modules, and plain
variables of the loss function. A replay knows them as they were at the capture."""

import functools
import inspect
import types

import torch

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def _is_plain(value):
    try:
        if isinstance(value, (tuple, list)):
            return len(value) <= 64 and all(_is_plain(each) for each in value)
        if isinstance(value, dict):
            return len(value) <= 64 and all(_is_plain(each) for each in value.values())
    except Exception:  # a class of somebody's that has no length, say
        return False
    return isinstance(value, _PLAIN)


def _number(value, of_model):
    """Of a tensor without dimensions on the host, its value: a capture reads it like a number, unless
    it is the model's."""
    if not isinstance(value, torch.Tensor) or id(value) in of_model:
        return value
    is_one = value.dim() == 0 and value.device.type == "cpu" and value.layout == torch.strided
    return value.detach().numpy().item() if is_one and value.dtype != torch.bfloat16 else value


def _written(value):
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _variables_of(function):
    """{as a message calls it: value} of what a function reads beside its arguments."""
    if isinstance(function, functools.partial):
        bound = {f"loss_fn.args[{i}]": value for i, value in enumerate(function.args)}
        bound |= {f"loss_fn.{key}": value for key, value in function.keywords.items()}
        return {**_variables_of(function.func), **bound}
    if inspect.ismethod(function):
        owner, function = function.__self__, function.__func__
        found = {f"self.{key}": value for key, value in getattr(owner, "__dict__", {}).items()}
    elif isinstance(function, types.FunctionType):
        found = {}
    else:  # a callable object
        return {f"loss_fn.{key}": value for key, value in getattr(function, "__dict__", {}).items()}
    for key in function.__code__.co_names:
        if key in function.__globals__:
            found[key] = function.__globals__[key]
    for key, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            found[key] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    return found


def snapshot(model, loss_fn):
    """{as a message calls it: its value, written out} of what is plain."""
    found = {}
    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        for key, value in vars(module).items():
            if not key.startswith("_") and key != "training":  # a step keeps its modes
                found[f"model.{prefix}{key}"] = value
    if loss_fn is not None:
        found.update(_variables_of(loss_fn))
    of_model = {id(each) for table in (model.parameters(), model.buffers()) for each in table}
    numbers = {name: _number(value, of_model) for name, value in found.items()}
    return {name: _written(value) for name, value in numbers.items() if _is_plain(value)}


def changes(before, now):
    """A sentence about the first few that differ; '' where none does."""
    differing = [
        f"{name} was {before.get(name, 'not there')} and is {now.get(name, 'gone')}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
    if not differing:
        return ""
    more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
    return f"Since the capture {'; '.join(differing[:3])}{more} has changed."
