"""What a loop keeps beside the model: in checkpoints, and restored with them."""

import collections
import io
import itertools
import json
import random
import sys
import weakref

import torch
from torch.optim import lr_scheduler

from . import _guards, _signals
from ._errors import UsageError

_Scheduler = getattr(lr_scheduler, "LRScheduler", lr_scheduler._LRScheduler)
_CONTAINERS = {each.__name__: each
               for each in (dict, collections.OrderedDict, collections.Counter, list, tuple, set)}


def state_of(what):
    """The bytes of ``what.state_dict()``: its structure as JSON, and its tensors."""
    with _guards.options_alone():
        state = what.state_dict()
    if isinstance(what, _Scheduler):  # some hold methods of theirs, which they have anyway
        state = {key: value for key, value in state.items() if not callable(value)}
    tensors = []
    structure = json.dumps(_described(state, "state_dict()", tensors))
    out = io.BytesIO()
    torch.save({"structure": structure, "tensors": tensors}, out)
    return out.getvalue()


def restore(what, state):
    """Hand it to ``what.load_state_dict``."""
    # On the host: another rank's device is not this one's. No code of anybody's runs.
    loaded = torch.load(io.BytesIO(state), map_location="cpu", weights_only=True)
    what.load_state_dict(_made(json.loads(loaded["structure"]), loaded["tensors"]))


def _described(value, where, tensors):
    """JSON's own values stand for themselves; anything else is ``[kind, what it holds]``."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        return value.item()
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return ["tensor", len(tensors) - 1]
    if isinstance(value, (torch.dtype, torch.device)):
        return [type(value).__name__, str(value).replace("torch.", "")]
    kind = type(value).__name__
    if _CONTAINERS.get(kind) is not type(value):
        raise UsageError(
            f"{where} is a {kind}; tensors, numbers, strings, and lists, tuples, sets and dicts of "
            "those can be kept. Leave it out, or let state_dict() give what it is made of."
        )
    if isinstance(value, dict):
        items = [[_described(key, f"a key of {where}", tensors),
                  _described(each, f"{where}[{key!r}]", tensors)] for key, each in value.items()]
    else:
        items = [_described(each, f"{where}[{i}]", tensors) for i, each in enumerate(value)]
    return [kind, items]


def _made(described, tensors):
    if not isinstance(described, list):
        return described
    kind, items = described
    if kind == "tensor":
        return tensors[items]
    if kind == "dtype":
        return getattr(torch, items)
    if kind == "device":
        return torch.device(items)
    make = _CONTAINERS[kind]
    if issubclass(make, dict):
        return make({_made(key, tensors): _made(each, tensors) for key, each in items})
    return make(_made(each, tensors) for each in items)


def check(name, what):
    """That it can be kept is found out before anything depends on it."""
    for method in ("state_dict", "load_state_dict"):
        if not callable(getattr(what, method, None)):
            raise UsageError(
                f"keep: '{name}', a {type(what).__name__}, has no {method}(). Give it one."
            )
    try:
        state_of(what)
    except UsageError as error:
        raise UsageError(f"keep: '{name}': {error}") from None


class Epochs:
    """Where a loop is in its data. What :meth:`autodist.Session.epochs` iterates over.

    Every epoch begins with random numbers that follow from the job's seed and the epoch. So an
    epoch has the same order whenever it is begun, and a training that is resumed in the middle of
    one skips what it has had.
    """

    def __init__(self, session, loader, epochs, seed):
        self._session = weakref.proxy(session)  # which holds this
        self._loader = loader
        self._epochs = epochs
        self._seed = seed
        self._epoch = 0
        self._batches = 0  # of this epoch, handed out
        self._samples = 0  # of a batch, of all ranks that share the data; 0: not known
        self._handed_at = -1  # steps of the job then; -1: it is through with the batch
        self._over = False  # this epoch's batches

    def state_dict(self):
        """A batch that was handed out and not trained with is handed out again."""
        epoch, batches = self._epoch, self._batches
        if self._over:
            epoch, batches = epoch + 1, 0
        elif self._handed_at == self._session._steps_of_job:
            batches -= 1
        return {"epoch": epoch, "batches": batches, "samples": self._samples}

    def load_state_dict(self, state):
        self._epoch = state["epoch"]
        self._batches = state["batches"]
        self._samples = state["samples"]

    def __iter__(self):
        while self._epochs is None or self._epoch < self._epochs:
            yield Epoch(self, self._epoch)
            self._epoch += 1
            self._batches = 0
            self._over = False
            self._handed_at = -1

    def _rest_of(self, epoch):
        samples = self._samples_of_batch(self._begin(epoch))
        other = samples != self._samples and self._samples and samples  # ranks, or a batch's size
        if other:
            self._batches = self._batches * self._samples // samples
        self._samples = samples
        with _signals.workers_of(self._loader):
            batches = iter(self._loader)
        had = sum(1 for _ in itertools.islice(batches, self._batches))
        if had < self._batches and not other:
            raise UsageError(
                f"epochs: epoch {epoch} had {self._batches} batches when it was saved, and has "
                "fewer now: another loader? Give the one that it had."
            )
        for batch in batches:
            if epoch != self._epoch:
                raise UsageError(
                    f"epochs: epoch {epoch} is over, as the next one has begun. Iterate over each in "
                    "turn."
                )
            self._batches += 1
            self._handed_at = self._session._steps_of_job
            yield batch
            self._handed_at = -1  # it asks for the next one
            if not self._session._ended:
                self._session.snapshot()
        self._over = True

    def _samples_of_batch(self, deals):
        size = getattr(self._loader, "batch_size", None)
        if size is None:
            size = getattr(getattr(self._loader, "batch_sampler", None), "batch_size", None)
        return size * (self._session.size if deals else 1) if isinstance(size, int) else 0

    def _begin(self, epoch):
        """Seed whatever the loader may draw from; whether a sampler gives each rank its part."""
        dataset = getattr(self._loader, "dataset", None)
        by_batches = getattr(self._loader, "batch_sampler", None)
        samplers = [getattr(self._loader, "sampler", None), by_batches, getattr(by_batches, "sampler", None)]
        for each in {id(each): each for each in (self._loader, dataset, *samplers)}.values():
            if hasattr(each, "set_epoch"):
                each.set_epoch(epoch)
        deals = any(hasattr(each, "set_epoch") for each in samplers)
        # Ranks that have rows of their own may augment them differently. Else all need the same
        # batch.
        rank = self._session.rank if deals else 0
        seed = random.Random(f"{self._seed} {epoch} {rank}").getrandbits(63)
        torch.manual_seed(seed)
        random.seed(seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed % 2**32)
        for each in (self._loader, *samplers):
            generator = getattr(each, "generator", None)
            if isinstance(generator, torch.Generator):
                generator.manual_seed(seed)
        return deals


class Epoch:
    """One pass over the data, or what is left of it; iterates over its batches, once.

    Made by :meth:`autodist.Session.epochs`.
    """

    def __init__(self, epochs, number):
        self._epochs = epochs
        self._number = number
        self._begun = False

    @property
    def number(self):
        """From 0."""
        return self._number

    @property
    def batch(self):
        """Which batch of the epoch was handed out last, from 0; also after a resume in its middle, where
        `enumerate` begins at 0 again."""
        return self._epochs._batches - 1

    def __iter__(self):
        # What checkpoints keep is one place: that of the epoch whose turn it is.
        if self._begun or self._number != self._epochs._epoch:
            why = "was iterated over already" if self._begun else "is not the one whose turn it is"
            raise UsageError(
                f"epochs: epoch {self._number} {why}. Iterate over each once, in turn: for epoch in "
                "session.epochs(…): for batch in epoch: …"
            )
        self._begun = True
        return self._epochs._rest_of(self._number)

    def __repr__(self):
        return f"<autodist.Epoch {self._number}>"
