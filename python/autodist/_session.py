"""A job of this process and others, and the session that trains in it."""

import atexit
import os
import sys
import weakref

from . import _autodist, _optimizers
from ._errors import Error, UsageError
from ._model import Step
from ._planning import chosen_builder

_live = weakref.WeakSet()


def _own_command():
    """How the other ranks are started: as this interpreter was, with the same arguments.

    None where that cannot be repeated: an interactive session, a notebook, a script from standard
    input, a worker of multiprocessing.
    """
    arguments = list(sys.orig_argv[1:])
    script = getattr(sys.modules.get("__main__"), "__file__", None) or "<none>"
    repeatable = not script.startswith("<") or sys.argv[:1] == ["-c"]
    if not repeatable or "--multiprocessing-fork" in arguments or not sys.executable:
        return None
    return [sys.executable, *arguments]


@atexit.register
def _end():
    """Before the interpreter goes: what was not ended is, in order after an orderly script."""
    failed = getattr(sys, "last_value", None) is not None
    for each in list(_live):
        if each._process != os.getpid():
            continue
        try:
            if not failed:
                each.finish()
        except Error as error:
            print(f"autodist: {error}", file=sys.stderr)
        each.close()


class AutoDist:
    """This process's place in a job.

    Every rank runs the same script. The first process is the chief and starts the others, here and
    over ssh, with its own arguments; or they are started by ``torchrun``, ``mpirun``, ``srun``.

    Parameters
    ----------
    cluster : str, path or Cluster
        ``local:N`` (N ranks on this machine), or the path of a resource specification or host file.
        Empty: the ranks that a launcher started, else this process alone.
    builder : str or callable, optional
        The strategy: a builder's name, with options if wanted (``'AllReduce:chunk_size=64'``), or a
        function ``(graph, cluster) -> Strategy``. By default ``'PSLoadBalancing'``.
    builders : dict of str to callable, optional
        Your own builders by name, beside AutoDist's.
    strategy_file : path, optional
        A strategy that was written before; takes the builder's place.
    seed : int
        Of random generators; every replica and step derives its own.
    cpu_only : bool
        One CPU rank for each listed GPU.
    accumulate : int
        Micro-batches per step.
    verify_every : int
        Every so many steps, compare the replayed step with the model's own; 0: never.
    on_nonfinite : {'stop', 'ignore'}
        What a loss or gradient that is not finite does.
    initial_weights : path, optional
        A safetensors file whose tensors take the place of the model's own first values.
    measure : bool
        Time every op at capture; fixes what travels first.
    join_limit, stall_limit : float
        Seconds for the ranks to meet, and for a wait within a step.

    Raises
    ------
    UsageError, MachineError, PeersLostError
    """

    def __init__(
        self,
        cluster="",
        *,
        builder=None,
        builders=None,
        strategy_file=None,
        seed=0,
        cpu_only=False,
        accumulate=1,
        verify_every=0,
        on_nonfinite="stop",
        initial_weights=None,
        measure=True,
        join_limit=60.0,
        stall_limit=300.0,
    ):
        specification = _specification(cluster)
        options = _autodist.JobOptions()
        options.builder, own = chosen_builder(builder, builders)
        options.set_builders(own)
        options.strategy_file = "" if strategy_file is None else os.fspath(strategy_file)
        options.seed = seed
        options.cpu_only = cpu_only
        options.accumulate = accumulate
        options.verify_every = verify_every
        options.set_on_nonfinite(on_nonfinite)
        options.initial_weights = "" if initial_weights is None else os.fspath(initial_weights)
        options.measure = measure
        options.set_limits(join_limit, stall_limit)
        options.command = _command_for(specification)
        self._job = _autodist.Job(specification, options)

    @property
    def rank(self):
        """This process's number, from 0."""
        return self._job.rank

    @property
    def size(self):
        """Number of ranks."""
        return self._job.size

    @property
    def is_chief(self):
        """Whether this is rank 0, which plans and saves."""
        return self._job.rank == 0

    @property
    def launcher(self):
        """'torchrun', 'Open MPI', …; '' where AutoDist started the ranks."""
        return self._job.launcher

    def distribute(
        self, model, loss_fn, optimizer, example_batch, *, name=None, batched=None, reduction="mean"
    ):
        """Capture the step, choose a strategy, agree with the other ranks.

        All ranks start from the chief's parameters and buffers. Called once.

        Parameters
        ----------
        model : torch.nn.Module
            Its parameters are trained in place.
        loss_fn : callable or None
            ``loss_fn(model, *batch)``, a scalar tensor; None: ``model(*batch)`` is the loss.
        optimizer : str, torch.optim.Optimizer or callable
            ``'adam:lr=1e-3'`` (docs/formats/optimizer.md), or a new optimizer of torch.optim over
            the model's parameters, whose groups are kept; its ``step`` is never called.
        example_batch : tuple of torch.Tensor
            What one replica gets in a step. Its shapes and types count.
        name, batched, reduction
            As for :func:`capture`.

        Returns
        -------
        Session
        """
        step = Step(model, loss_fn, example_batch, name=name, batched=batched, reduction=reduction)
        text = _optimizers.text_of(optimizer, step.parameters)
        return Session(self._job.distribute(step, text), step)

    def __repr__(self):
        return f"<autodist.AutoDist rank {self.rank} of {self.size}>"


def _specification(cluster):
    if isinstance(cluster, _autodist.Cluster):
        if not cluster.source:
            raise UsageError("cluster: it is from a text; write that to a file, and name the file")
        return cluster.source
    return os.fspath(cluster)


def _command_for(specification):
    command = _own_command()
    if command is not None:
        return command
    others = specification and _autodist.Cluster(specification).size > 1
    if others and "AUTODIST_RANK" not in os.environ:
        raise UsageError(
            "this interpreter cannot start the other ranks: they run the same script, and there is "
            "none (interactive, notebook, standard input). Write it to a file."
        )
    return []


class Session:
    """Trains. Made by :meth:`AutoDist.distribute`.

    A context manager: it ends the job in order, or, after an exception, leaves it, and the other
    ranks are told. Without one, call :meth:`finish`; else the end of the interpreter does, which
    cannot know of ``sys.exit(1)``. One thread at a time.
    """

    def __init__(self, handle, step):
        self._handle = handle
        self._step = step
        self._ended = False
        self._process = os.getpid()  # a fork has a copy that is not its own to end
        _live.add(self)

    def __call__(self, *batch):
        """Run one step; see :meth:`run`."""
        return self._handle.run(self._step.fitting(batch, "batch"))

    def run(self, *batch):
        """One step on the whole job's batch, which every rank passes.

        Each replica takes its rows, as ``numpy.array_split``; what is not batched goes whole to
        each. New shapes are captured when they first come.

        Parameters
        ----------
        *batch : torch.Tensor

        Returns
        -------
        float
            The loss of this replica's rows; nan where it had none.

        Raises
        ------
        PeersLostError
            Naming the rank that was lost.
        UsageError
            For a batch that the step cannot take.
        """
        return self._handle.run(self._step.fitting(batch, "batch"))

    def run_local(self, *rows):
        """One step on rows that only this rank has; their number may differ between ranks."""
        return self._handle.run_local(self._step.fitting(rows, "rows"))

    def run_and_fetch(self, names, *batch):
        """One step as :meth:`run`, and values of it, whole and the same at every rank.

        Parameters
        ----------
        names : list of str
            The same at every rank: ``'loss'``; a parameter or buffer (after the step; of buffers
            the chief's); a gradient as ``'fc1.weight.grad'`` (averaged over all samples); a layer
            as ``'features.0'`` (what the last op that reads its parameters made).
        *batch : torch.Tensor

        Returns
        -------
        dict of str to torch.Tensor
            What has the batch as its first dimension comes from all replicas, in its order.

        Raises
        ------
        UsageError
            For a name that the step has not, with the nearest that it has.
        """
        return self._handle.run_and_fetch(list(names), self._step.fitting(batch, "batch"))

    def sum_over_ranks(self, values):
        """Sum what each rank passes; every rank calls it, at most six times between two steps.

        Parameters
        ----------
        values : sequence of float

        Returns
        -------
        list of float
        """
        return self._handle.sum_over_ranks([float(value) for value in values])

    def evaluate(self, *arguments, **keywords):
        """Call the model in evaluation mode on the newest variables.

        Plain Python on this rank, without gradients, after :meth:`synchronize`: where variables are
        asynchronous, every rank calls it after the same step.

        Parameters
        ----------
        *arguments, **keywords
            ``evaluate(function, …)`` calls ``function(model, …)``; without a function,
            ``model(…)``.

        Returns
        -------
        object
            What that returns.
        """
        function = None
        if arguments and callable(arguments[0]):
            function, *arguments = arguments
        self.synchronize()
        return self._step.evaluate(function, tuple(arguments), keywords)

    def synchronize(self):
        """Make this rank's variables the newest; between steps they may be of any version."""
        self._handle.synchronize()

    def save(self, directory):
        """Write a checkpoint ``step-N`` below the directory, at the chief; every rank calls it."""
        self._handle.save(os.fspath(directory))

    def load(self, directory):
        """Load the newest sound checkpoint before the first step; every rank calls it.

        Returns
        -------
        int
            Its step.
        """
        return self._handle.load(os.fspath(directory))

    def summarise(self, stop=False, save=False):
        """Tell the others this rank's part of the step; every rank calls it after every step.

        Parameters
        ----------
        stop, save : bool
            Ask all ranks to stop, or to save.

        Returns
        -------
        StepSummary
            Of the step before, so that nobody waits for this one.
        """
        return self._handle.summarise(stop, save)

    def last_summary(self):
        """The summary of the last step that was summarised.

        Returns
        -------
        StepSummary
        """
        return self._handle.last_summary()

    @property
    def last(self):
        """What the last step of this rank was.

        Returns
        -------
        StepReport
        """
        return self._handle.last

    @property
    def step(self):
        """Number of the next step."""
        return self._handle.step

    @property
    def rank(self):
        """This process's number, from 0."""
        return self._handle.rank

    @property
    def size(self):
        """Number of ranks."""
        return self._handle.size

    @property
    def replica(self):
        """Which part of a batch this rank computes, of :attr:`replicas`."""
        return self._handle.replica

    @property
    def replicas(self):
        """How many ranks compute."""
        return self._handle.replicas

    @property
    def is_chief(self):
        """Whether this is rank 0, which saves."""
        return self._handle.rank == 0

    @property
    def model(self):
        """The module that is trained, in place."""
        return self._step.model

    @property
    def graph(self):
        """The captured step."""
        return self._handle.graph

    @property
    def strategy(self):
        """The chief's strategy."""
        return self._handle.strategy

    def finish(self):
        """End the job in order: every rank has finished its steps when it returns.

        What the script does afterwards the chief does last: it waits for the ranks that it started
        to end.
        """
        if not self._ended and self._process == os.getpid():
            self._handle.finish()
            self._ended = True

    def close(self):
        """Leave the job, also when it is under way: the other ranks are told."""
        self._ended = True
        _live.discard(self)
        self._handle.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        orderly = kind is None or (kind is SystemExit and error.code in (None, 0))
        if orderly:
            self.finish()
        else:
            self.close()

    def __repr__(self):
        return f"<autodist.Session of '{self._step.name}'>"
