"""Several steps over one set of variables."""

import collections.abc
import contextlib
import difflib

from . import _optimizers
from ._errors import UsageError
from ._model import Step
from ._planning import chosen_builder


class TrainingStep:
    """One of several steps of a job, for :meth:`AutoDist.distribute_steps`.

    Parameters
    ----------
    model : torch.nn.Module
        The same for all steps of a job, or modules whose parameters' names tell them apart: a name
        means one tensor.
    loss_fn : callable or None
        ``loss_fn(model, *batch)``, a scalar tensor; None: ``model(*batch)`` is the loss.
    optimizer : str, torch.optim.Optimizer, callable, list or None
        As for :meth:`AutoDist.distribute`. None: the step trains nothing; it computes its loss in
        evaluation mode, without gradients.
    example_batch : tuple
        What one replica gets in a step: tensors, or structures of them; ``()``: nothing.
    trains : sequence of str, optional
        The parameters that it trains, by name or by the name of a module that holds them; the
        others it reads as they are. By default what an optimizer of torch.optim holds, else all.
    batched, reduction
        As for :func:`capture`.
    builder : str or StrategyBuilder, optional
        A builder for this step, in the place of the job's; one of your own by its name in the job's
        `builders`.
    clip : float, optional
        As for :meth:`AutoDist.distribute`.

    Raises
    ------
    UsageError
        As :meth:`AutoDist.distribute`; for a name in `trains` that the model has not, with the
        nearest that it has; for `trains` or `clip` without an optimizer.
    """

    def __init__(
        self,
        model,
        loss_fn,
        optimizer,
        example_batch,
        *,
        trains=None,
        batched=None,
        reduction="mean",
        builder=None,
        clip=None,
    ):
        for name, given in (("trains", trains), ("clip", clip)):
            if optimizer is None and given is not None:
                raise UsageError(
                    f"TrainingStep: {name}={given!r}: of a step that trains, and one without an "
                    f"optimizer does not. Give it one, or leave {name} out."
                )
        self._step = Step(
            model,
            loss_fn,
            example_batch,
            batched=batched,
            reduction=reduction,
            evaluates=optimizer is None,
        )
        parameters = self._step.parameters
        if trains is None:
            trains = _optimizers.trained_by(optimizer, parameters)
        self._step.trains = [trains] if isinstance(trains, str) else list(trains)
        self._optimizer = None
        self._text = None
        if optimizer is not None:
            own = _optimizers.of_names(parameters, self._step.trains)
            self._optimizer = _optimizers.made(optimizer, own)
            self._text = _optimizers.clipped_text_of(self._optimizer, own, clip)
        self._builder, functions = chosen_builder(builder, None)
        if functions:
            raise UsageError(
                "TrainingStep: builder: a name or one of autodist.strategy expected, got "
                f"{type(builder).__name__}. Give yours to AutoDist(builders={{'{self._builder}': …}}), "
                f"and its name here: builder='{self._builder}'."
            )

    def __repr__(self):
        return f"<autodist.TrainingStep of '{self._step.name}'>"


class Steps(collections.abc.Mapping):
    """The sessions of a job that has several steps, by name. Made by
    :meth:`AutoDist.distribute_steps`.

    A context manager, as :class:`Session`. What concerns the whole job is here; a session of it
    does the same.
    """

    def __init__(self, sessions):
        self._sessions = sessions
        for each in sessions.values():
            each._of_job = list(sessions.values())

    def __getitem__(self, name):
        if name not in self._sessions:
            near = difflib.get_close_matches(str(name), self._sessions, 1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise UsageError(
                f"steps: the job has no '{name}'; it has {', '.join(self._sessions)}.{hint}"
            )
        return self._sessions[name]

    def __iter__(self):
        return iter(self._sessions)

    def __len__(self):
        return len(self._sessions)

    def __contains__(self, name):
        return name in self._sessions

    def get(self, key, default=None):
        """The session of that name; the default where the job has none."""
        return self._sessions.get(key, default)

    def _any(self):
        return next(iter(self._sessions.values()))

    def synchronize(self):
        """Make this rank's variables the newest."""
        self._any().synchronize()

    def save(self, directory, wait=True):
        """Write a checkpoint of all steps, ``step-N`` for N steps together; every rank calls it.

        ``wait``: as :meth:`autodist.Session.save`.
        """
        self._any().save(directory, wait)

    def load(self, directory):
        """Load the newest sound checkpoint before the first step; every rank calls it.

        Returns
        -------
        int
            Steps together.
        """
        self._any().load(directory)
        return self.step

    def resume(self, directory=None):
        """Load the newest checkpoint, or snapshot, if there is one, else begin; every rank calls it.

        Returns
        -------
        int
            Steps together; 0 where the training begins.
        """
        self._any().resume(directory)
        return self.step

    def snapshot(self):
        """Let the state of all steps be copied into memory: as :meth:`Session.snapshot`."""
        self._any().snapshot()

    def keep(self, name, what):
        """Keep the state of something beside the model: as :meth:`Session.keep`."""
        self._any().keep(name, what)

    def epochs(self, loader, epochs=None, name="epochs"):
        """The passes over a loader: as :meth:`Session.epochs`."""
        return self._any().epochs(loader, epochs, name)

    @property
    def step(self):
        """How many steps were done, of all together."""
        return sum(each.step for each in self._sessions.values())

    @property
    def rank(self):
        """This process's number, from 0."""
        return self._any().rank

    @property
    def size(self):
        """Number of ranks."""
        return self._any().size

    @property
    def is_chief(self):
        """Whether this is rank 0, which saves."""
        return self._any().is_chief

    def finish(self):
        """End the job in order: every rank has finished its steps when it returns."""
        self._all("finish")

    def close(self, reason=""):
        """Leave the job, also when it is under way: the other ranks are told, and why."""
        for each in self._sessions.values():
            each.close(reason)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self._all("__exit__", kind, error, trace)

    def _all(self, method, *arguments):
        """Of every session, whether one of them raises or not."""
        with contextlib.ExitStack() as calls:
            for each in reversed(self._sessions.values()):
                calls.callback(getattr(each, method), *arguments)

    def __repr__(self):
        return f"<autodist.Steps {', '.join(self._sessions)}>"
