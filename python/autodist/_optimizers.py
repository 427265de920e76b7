"""torch.optim's optimizers in the words of AutoDist's (docs/formats/optimizer.md)."""

import contextlib
import difflib

import torch

from . import _guards, _own_updates
from ._errors import UsageError

# Class: (our rule, {its option: ours}). Its other options must be in _ALLOWED or _OFF.
_PLAIN = {"lr": "lr", "weight_decay": "weight_decay"}
_BETAS = {**_PLAIN, "betas": ("beta1", "beta2"), "eps": "eps"}
_DECOUPLED = {"decoupled_weight_decay": "decoupled_weight_decay"}
_RULES = {
    "SGD": (
        "sgd",
        {**_PLAIN, "momentum": "momentum", "dampening": "dampening", "nesterov": "nesterov"},
    ),
    "Adam": ("adam", {**_BETAS, "amsgrad": "amsgrad"}),
    "AdamW": ("adamw", {**_BETAS, "amsgrad": "amsgrad"}),
    # Ours on rows; check_sparse() says whether all gradients have them.
    "SparseAdam": ("adam", {"lr": "lr", "betas": ("beta1", "beta2"), "eps": "eps"}),
    "Adagrad": (
        "adagrad",
        {
            **_PLAIN,
            "lr_decay": "lr_decay",
            "eps": "eps",
            "initial_accumulator_value": "initial_accumulator_value",
        },
    ),
    "Adadelta": ("adadelta", {**_PLAIN, "rho": "rho", "eps": "eps"}),
    "Adamax": ("adamax", _BETAS),
    "NAdam": ("nadam", {**_BETAS, **_DECOUPLED, "momentum_decay": "momentum_decay"}),
    "RAdam": ("radam", {**_BETAS, **_DECOUPLED}),
    "RMSprop": (
        "rmsprop",
        {**_PLAIN, "alpha": "alpha", "eps": "eps", "momentum": "momentum", "centered": "centered"},
    ),
}

# How torch computes, not what.
_ALLOWED = {"foreach", "fused", "capturable"}
# Options that change the result and that we do not have: False for our rules.
_OFF = {"maximize", "differentiable", "decoupled_weight_decay"}


def _plain(value):
    return value.item() if isinstance(value, torch.Tensor) else value


def _number(value):
    return float(_plain(value))


def _lacks(kind, key, value):
    """Whether our rule for torch's `kind` has nothing for this option of its."""
    if key in _RULES[kind][1] or key in _ALLOWED or value is None:
        return False
    if kind == "AdamW" and key == "decoupled_weight_decay":  # what its name says
        return False
    return key not in _OFF or bool(value)


def _options(optimizer, group):
    """One parameter group in our words. What is no option of its class, torch does not read: names
    of groups, and what schedulers leave behind."""
    kind = type(optimizer).__name__
    _, words = _RULES[kind]
    options = {}
    for key, value in group.items():
        if key not in optimizer.defaults:
            continue
        if _lacks(kind, key, value):
            raise UsageError(
                f"optimizer: torch.optim.{kind} with {key}={value} trains otherwise than when it was "
                "distributed. Distribute a step with the optimizer as it shall be."
            )
        if key not in words or value is None:
            continue
        word = words[key]
        if isinstance(word, tuple):
            options.update(zip(word, map(_number, value)))
        else:
            options[word] = _number(value)
    if kind == "NAdam":
        if not torch.__version__.startswith("1."):
            options["as_published"] = 1.0  # 1.13 has another product of momenta
        if torch.get_default_dtype() == torch.float64:
            options["double_product"] = 1.0
    return options


def _names_by_tensor(parameters):
    """Every trained tensor's names, the first one first."""
    names = {}
    for name, tensor in parameters:
        if tensor.requires_grad:
            names.setdefault(id(tensor), []).append(name)
    return names


def _groups_by_name(optimizers, names):
    """Per variable (its first name) its optimizer and group."""
    groups = {}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for tensor in group["params"]:
                if id(tensor) in names:
                    name = names[id(tensor)][0]
                    if name in groups:
                        raise UsageError(
                            f"optimizer: several of the list hold '{name}', which each would update. "
                            "Give it to one of them."
                        )
                    groups[name] = (optimizer, group)
                elif tensor.requires_grad:
                    raise UsageError(
                        "optimizer: it holds a parameter that is not the model's. Make it of "
                        "model.parameters()."
                    )
    for found in names.values():
        if found[0] not in groups:
            raise UsageError(
                f"optimizer: it does not hold '{found[0]}', which requires a gradient. Add it, or "
                "say requires_grad_(False)."
            )
    return groups


def _groups(options, base, aliases):
    """`group.PATTERN.option=value` where a variable's options differ from `base`.

    A variable's pattern is the longest of its names. A pattern holds for every variable one of
    whose names contains it, and the later wins: so a pattern that another name contains comes
    first, and what it would wrongly change is said again.
    """
    pattern_of = {name: max(names, key=len) for name, names in aliases.items()}
    named = {name for name in aliases if options[name] != base}
    while True:  # a pattern may hit variables of the base, which then need one, too
        hit = {
            name
            for name, names in aliases.items()
            if name not in named
            and any(pattern_of[other] in each for other in named for each in names)
        }
        if not hit:
            break
        named |= hit
    varying = sorted(key for key in base if len({each[key] for each in options.values()}) > 1)
    items = []
    for name in sorted(named, key=lambda name: len(pattern_of[name])):
        pattern = pattern_of[name]
        if any(letter in pattern for letter in ",|="):
            raise UsageError(
                f"optimizer: the name '{pattern}' holds ',', '|' or '=', which a group cannot. "
                "Rename it."
            )
        items += [f"group.{pattern}.{key}={options[name][key]!r}" for key in varying]
    return items


def _has_trained(optimizer):
    for state in optimizer.state.values():
        if "step" in state:
            if float(state["step"]) > 0:
                return True
        elif any(value is not None for value in state.values()):
            return True
    return False


def _hook_of(optimizer):
    """'pre' or 'post', if it has a hook of its step."""
    return next((when for when in ("pre", "post")
                 if getattr(optimizer, f"_optimizer_step_{when}_hooks", None)), None)


def _refuse_hooks(optimizer):
    when = _hook_of(optimizer)
    if when:
        raise UsageError(
            f"optimizer: it has got a step_{when}_hook since it was distributed, and its step is not "
            "called. Register it before, or do that between the session's steps instead."
        )


def _has_rule(optimizer):
    """Whether a rule of ours computes what its step would, from its beginning."""
    kind = type(optimizer).__name__
    if kind not in _RULES or type(optimizer) is not getattr(torch.optim, kind):
        return False
    lacks = any(_lacks(kind, key, group[key])
                for group in optimizer.param_groups for key in optimizer.defaults if key in group)
    return not (lacks or _hook_of(optimizer) or _has_trained(optimizer))


def _listed(optimizer):
    """Those of torch.optim's interface among what :func:`made` gives."""
    if isinstance(optimizer, torch.optim.Optimizer):
        return [optimizer]
    return optimizer if isinstance(optimizer, list) else []


def _own(optimizer):
    """Those whose own step updates the parameters; none where a rule of ours does."""
    listed = _listed(optimizer)
    return [] if isinstance(optimizer, torch.optim.Optimizer) and _has_rule(optimizer) else listed


def trained_by(optimizer, parameters):
    """The names of what optimizers of torch.optim hold; nothing for other kinds of optimizers."""
    listed = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    held = {id(tensor) for each in listed if isinstance(each, torch.optim.Optimizer)
            for group in each.param_groups for tensor in group["params"]}
    return [name for name, tensor in parameters if id(tensor) in held]


def _known_names(parameters):
    """Of parameters, and of the modules that hold them."""
    known = {}
    for name, _ in parameters:
        parts = name.split(".")
        known.update(dict.fromkeys(".".join(parts[:depth]) for depth in range(len(parts), 0, -1)))
    return known


def of_names(parameters, names):
    """Those of the parameters that have one of the names, or lie in a module that has; all without
    names."""
    if not names:
        return parameters
    known = _known_names(parameters)
    for each in names:
        if not isinstance(each, str):
            raise UsageError(
                f"trains: names of parameters or modules expected, got {type(each).__name__}. Write "
                "'head' or 'head.weight', say."
            )
        if each not in known:
            near = difflib.get_close_matches(each, known, 1)
            hint = f"Did you mean '{near[0]}'?" if near else "Name some of its own."
            raise UsageError(
                f"trains='{each}': the model has no parameter and no module with parameters of this "
                f"name. {hint}"
            )
    return [
        (name, tensor)
        for name, tensor in parameters
        if any(name == each or name.startswith(each + ".") for each in names)
    ]


def check_sparse(optimizer, graph):
    """Refuses what torch's SparseAdam does when its step is called: a dense gradient."""
    if not isinstance(optimizer, torch.optim.SparseAdam):
        return
    dense = [each.name for each in graph.variables if each.used and not each.sparse]
    if dense:
        raise UsageError(
            f"optimizer: torch.optim.SparseAdam trains sparse gradients alone, and that of "
            f"'{dense[0]}' is dense. The text 'adam' trains both."
        )


def updates_of(optimizer, parameters, scales_loss):
    """What a session asks of an optimizer: :class:`Followed` or :class:`OwnUpdates`."""
    own = _own(optimizer)
    if own:
        return _own_updates.OwnUpdates(own, parameters, scales_loss)
    return Followed(optimizer, parameters)


class Followed:
    """An optimizer of torch.optim whose options the session goes by in every step, as its own
    ``step`` would: what a scheduler, or whoever else, sets in it.

    Parameters
    ----------
    optimizer : object
        What the user gave; nothing is followed but an optimizer of torch.optim.
    parameters : list of (str, torch.Tensor)
        What the step trains.
    """

    def __init__(self, optimizer, parameters):
        self._optimizer = optimizer if isinstance(optimizer, torch.optim.Optimizer) else None
        if self._optimizer is None:
            return
        self._kind = type(optimizer).__name__
        _, words = _RULES[self._kind]
        self._watched = [*words, *_OFF]
        self._names = {key: names[0] for key, names in _names_by_tensor(parameters).items()}
        self._is_noted = False  # that a session has its state
        self._used = None  # names of parameters that the step gives a gradient
        self._held = self._tensors()
        self._last = self._values()
        self._first_momenta = self._momenta()

    def _tensors(self):
        return [[id(tensor) for tensor in group["params"]] for group in self._optimizer.param_groups]

    def _values(self):
        return [
            [_plain(group.get(key)) for key in self._watched]
            for group in self._optimizer.param_groups
        ]

    def _momenta(self):
        return [(group.get("betas"), group.get("momentum_decay")) for group in self._optimizer.param_groups]

    @property
    def lr(self):
        """Of the first group, as the next step takes it; None where nothing is followed."""
        return None if self._optimizer is None else float(self._optimizer.param_groups[0]["lr"])

    kept = None  # the session has the state

    def note_loaded(self, step):
        """Nothing: the session says so."""

    def put_newest(self, fetched):
        """Nothing: what was fetched is what the step made."""

    def check_plan(self, handle):
        """Nothing: our rules train under any."""

    def check_strategy(self, strategy):
        """Nothing."""

    def updating(self, handle, seed):
        """Around a step of the session, which updates the parameters by itself."""
        return contextlib.nullcontext()

    def tell(self, handle):
        """Tell the session what is set now, if it is something else than in the step before."""
        if self._optimizer is None:
            return
        _refuse_hooks(self._optimizer)
        values = self._values()
        if values == self._last:
            return
        if self._kind == "NAdam" and self._momenta() != self._first_momenta:
            raise UsageError(
                "optimizer: NAdam's betas and momentum_decay have changed since it was distributed; "
                "its product of momenta is that of the first ones. Leave them (OneCycleLR: "
                "cycle_momentum=False)."
            )
        if self._tensors() != self._held:
            raise UsageError(
                f"optimizer: {self._kind}: its parameter groups hold others than when it was "
                "distributed. Distribute a step with the optimizer as it shall be."
            )
        if self._used is None:
            graph = handle.graph
            self._used = {name for each in graph.variables if each.used
                          for name in (each.name, *each.aliases)}
        options = {}
        for group in self._optimizer.param_groups:
            of_group = _options(self._optimizer, group)
            for tensor in group["params"]:
                name = self._names.get(id(tensor))
                if name in self._used:  # one without a gradient is not updated
                    options[name] = of_group
        handle.set_options(options)
        self._last = values

    def count(self):
        """A step was done: schedulers ask whether the optimizer has made one before theirs."""
        if self._optimizer is not None:
            self._optimizer._step_count = getattr(self._optimizer, "_step_count", 0) + 1
            self._optimizer._opt_called = True
            if not self._is_noted:
                self._is_noted = True
                _guards.note_trained(self._optimizer)


def clipped_text_of(optimizer, parameters, clip):
    """What :func:`text_of` gives, with the largest joint norm of the gradients, if not None."""
    text = text_of(optimizer, parameters)
    if clip is None:
        return text
    if isinstance(clip, bool) or not isinstance(clip, (int, float)) or not clip > 0:
        raise UsageError(f"clip={clip!r}: the largest norm of the gradients expected, a number above 0")
    return f"{text}{',' if ':' in text else ':'}clip={float(clip)!r}"


def made(optimizer, parameters):
    """What a user gave as optimizer: a text, one of torch.optim's interface, or a list of those.

    Parameters
    ----------
    optimizer : str, torch.optim.Optimizer, callable, list or tuple
        A callable (a class, a functools.partial) is given the trained parameters and makes one.
    parameters : list of (str, torch.Tensor)
    """
    if not any(tensor.requires_grad for _, tensor in parameters):
        raise UsageError(
            f"optimizer: nothing to train: none of the model's {len(parameters)} parameters "
            "requires a gradient. Unfreeze some with requires_grad_(True)."
        )
    if isinstance(optimizer, str):
        return optimizer
    if not isinstance(optimizer, torch.optim.Optimizer) and callable(optimizer):
        unique = {id(tensor): tensor for _, tensor in parameters if tensor.requires_grad}
        optimizer = optimizer(list(unique.values()))
    listed = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    other = [each for each in listed if not isinstance(each, torch.optim.Optimizer)]
    if other or not listed:
        raise UsageError(
            "optimizer: a text such as 'adam:lr=1e-3', an optimizer of torch.optim, or a list of those "
            f"expected, got {type(other[0]).__name__ if other else 'an empty list'}"
        )
    return listed if isinstance(optimizer, (list, tuple)) else optimizer


def text_of(optimizer, parameters):
    """What a user gave as optimizer, as text; of what :func:`made` takes."""
    optimizer = made(optimizer, parameters)
    if isinstance(optimizer, str):
        return optimizer
    names = _names_by_tensor(parameters)
    groups = _groups_by_name(_listed(optimizer), names)
    own = _own(optimizer)
    if own:
        _own_updates.check(own)
        return _own_updates.TEXT
    _guards.warn_of_state(optimizer, "optimizer: another session has trained with it, and this one "
                                     "begins anew unless resume() loads a state")
    options = {name: _options(optimizer, group) for name, (_, group) in groups.items()}
    base = max(options.values(), key=list(options.values()).count)
    aliases = {found[0]: found for found in names.values()}
    items = [f"{key}={value!r}" for key, value in sorted(base.items())]
    return f"{_RULES[type(optimizer).__name__][0]}:" + ",".join(items + _groups(options, base, aliases))
