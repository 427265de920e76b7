"""A job of this process and others, and the sessions that train in it."""

import atexit
import collections.abc
import difflib
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
    loss_scaling : str or float, optional
        ``'dynamic'``, ``'dynamic:scale=65536,growth=2,backoff=0.5,interval=2000'`` (what
        ``torch.cuda.amp.GradScaler`` does) or a fixed scale. A step in which a gradient of any rank
        is not finite is skipped by all ranks. Takes the place of `on_nonfinite`.
    update_rules : dict of str to (int, callable), optional
        Update rules of your own, for optimizers ``'user:rule=NAME,lr=…'``: how many states they
        keep per element, and ``rule(parameters, gradient, *states, lr, step, **options)``, which
        changes parameters and states in place: tensors of one dimension, any part of a parameter.
        It must treat every element by itself.
    trace : bool
        Keep what every step does, for :meth:`Session.write_trace`.
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
        loss_scaling=None,
        update_rules=None,
        trace=False,
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
        options.loss_scaling = "" if loss_scaling is None else str(loss_scaling)
        for rule, (states, function) in (update_rules or {}).items():
            options.add_rule(rule, states, function)
        options.trace = trace
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
        session = Session(self._job.distribute(step, text), step)
        try:
            _optimizers.check_sparse(optimizer, session.graph)
        except Error:
            session.close()
            raise
        return session

    def distribute_steps(self, **steps):
        """Several steps over one set of variables, in turns: a generator's and its critic's.

        Each has its own optimizer, strategy and count of steps. A step reads what the others have
        trained. All ranks run the same steps in the same order. Called once.

        Parameters
        ----------
        **steps : TrainingStep
            By name.

        Returns
        -------
        Steps
        """
        for name, each in steps.items():
            if not isinstance(each, TrainingStep):
                raise UsageError(
                    f"distribute_steps: '{name}' is of type {type(each).__name__}; an "
                    "autodist.TrainingStep expected"
                )
        declared = [
            (name, each._step, each._text, each._builder) for name, each in steps.items()
        ]
        handles = self._job.distribute_steps(declared)
        sessions = {
            name: Session(handle, each._step)
            for (name, each), handle in zip(steps.items(), handles)
        }
        result = Steps(sessions)
        try:
            for name, each in steps.items():
                _optimizers.check_sparse(each._optimizer, sessions[name].graph)
        except Error:
            result.close()
            raise
        return result

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


class TrainingStep:
    """One of several steps of a job, for :meth:`AutoDist.distribute_steps`.

    Parameters
    ----------
    model : torch.nn.Module
        The same for all steps of a job, or modules whose parameters' names tell them apart: a name
        means one tensor.
    loss_fn : callable or None
        ``loss_fn(model, *batch)``, a scalar tensor; None: ``model(*batch)`` is the loss.
    optimizer : str, torch.optim.Optimizer, callable or None
        As for :meth:`AutoDist.distribute`. None: the step trains nothing; it computes its loss in
        evaluation mode, without gradients.
    example_batch : tuple of torch.Tensor
        What one replica gets in a step.
    trains : sequence of str, optional
        The parameters that it trains, by name or by the name of a module that holds them; the
        others it reads as they are. By default what an optimizer of torch.optim holds, else all.
    batched, reduction
        As for :func:`capture`.
    builder : str, optional
        A builder for this step, in the place of the job's.
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
    ):
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
        self._optimizer = optimizer
        self._text = None
        if optimizer is not None:
            own = _optimizers.of_names(parameters, self._step.trains)
            self._text = _optimizers.text_of(optimizer, own)
        self._builder = builder or ""

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

    def _any(self):
        return next(iter(self._sessions.values()))

    def synchronize(self):
        """Make this rank's variables the newest."""
        self._any().synchronize()

    def save(self, directory):
        """Write a checkpoint of all steps, ``step-N`` for N steps together; every rank calls it."""
        self._any().save(directory)

    def load(self, directory):
        """Load the newest sound checkpoint before the first step; every rank calls it.

        Returns
        -------
        int
            Steps together.
        """
        self._any().load(directory)
        return self.step

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
        for each in self._sessions.values():
            each.finish()

    def close(self):
        """Leave the job, also when it is under way: the other ranks are told."""
        for each in self._sessions.values():
            each.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        for each in self._sessions.values():
            each.__exit__(kind, error, trace)

    def __repr__(self):
        return f"<autodist.Steps {', '.join(self._sessions)}>"


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

    def loss_scale(self):
        """The scale of the next step, and how many were skipped, with ``loss_scaling=``.

        Waits until all ranks have computed the last step.

        Returns
        -------
        LossScale
        """
        return self._handle.loss_scale()

    def export_torchscript(self, path, forward=None):
        """Write the model as a TorchScript file, which loads without this package and its code.

        The file has ``forward(inputs…)`` and a differentiable ``train_step(batch…)``, the loss.
        Both are traced with the example and compared with the model on other rows. At the chief;
        every rank calls it.

        Parameters
        ----------
        path : path
        forward : callable, optional
            ``forward(model, *batch)``, a tensor or a tuple; by default the model, of as many of the
            batch's tensors as it takes. What it does not read is no input of the file's.

        Raises
        ------
        UsageError
            For what cannot be traced, or computes something else in the file.
        """
        self._step.forward = forward
        self._handle.export_torchscript(os.fspath(path))

    def write_trace(self, path):
        """Write what this rank's steps did since the last call, for Chrome or Perfetto.

        Empty unless the job was made with ``trace=True``.
        """
        trace = self._handle.take_trace()
        with open(path, "w", encoding="utf-8") as file:
            file.write(trace)

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
