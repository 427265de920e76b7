"""A job of this process and others."""

import os
import shutil
import sys

from . import _arguments, _autodist, _optimizers, _signals
from ._errors import Error, MachineError, UsageError
from ._model import Step
from ._planning import chosen_builder
from ._parameters import Settler
from ._records import Files, Records
from ._session import Session
from ._steps import Steps, TrainingStep
from ._supervised import Supervised


# Steps of a run that are compared with the model's own, unless the user says otherwise.
_VERIFIED_STEPS = 20
# Whose trace is kept, unless the user says otherwise; and whose a report shows.
_TRACED_STEPS = 200
_REPORTED_STEPS = 16


def _show(line):
    """The line in the place of the last one; '' leaves nothing there."""
    columns = shutil.get_terminal_size().columns - 1
    fits = line if len(line) <= columns else line[: columns - 1] + "…"
    sys.stderr.write(f"\r{fits}\033[K")
    sys.stderr.flush()


def _chooser(builder, strategy_file, plans):
    """What chooses the strategy, as a message calls it; None: the search does."""
    given = [f"builder={builder!r}"] if builder else []
    given += [f"{name}={os.fsdecode(path)!r}"
              for name, path in (("strategy_file", strategy_file), ("plans", plans)) if path]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)}: each chooses the strategy. Give one of them.")
    return given[0] if given and builder != "auto" else None


def _refuse_of_search(chooser, **options):
    """Those that are not None, where something else chooses."""
    for name, value in options.items():
        if chooser is not None and value is not None:
            raise UsageError(
                f"{name}={value!r}: of the search, and {chooser} chooses without one. Leave one "
                "out."
            )


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
    return [os.fsencode(each) for each in (sys.executable, *arguments)]


class AutoDist:
    """This process's place in a job.

    Every rank runs the same script. The first process is the chief and starts the others, here and
    over ssh, with its own arguments; or they are started by ``torchrun``, ``mpirun``, ``srun``.

    Parameters
    ----------
    cluster : str, path or Cluster
        ``local:N`` (N ranks on this machine), or the path of a resource specification or host file.
        Empty: the ranks that a launcher started, else this process alone.
    strategy_builder, builder : str, StrategyBuilder or callable, optional
        The strategy: a builder's name, with options if wanted (``'AllReduce:chunk_size=64'``), one
        of :mod:`autodist.strategy`, or a function ``(graph, cluster) -> Strategy``. By default, and
        with ``'auto'``, it is searched. Either name will do; the first is AutoDist's.
    resource_spec_file : path, optional
        AutoDist's name of a `cluster` that is a file.
    builders : dict of str to callable, optional
        Your own builders by name, beside AutoDist's.
    strategy_file : path, optional
        A strategy that was written before; takes the builder's place.
    write_plans, plans : path, optional
        Where the chief keeps, from which step on, under which plan the job trains; and such a file
        of another run, which takes the builder's place: the job goes through the same plans at the
        same steps.
    seed : int
        Of random generators; every replica and step derives its own.
    cpu_only : bool
        One CPU rank for each listed GPU.
    accumulate : int
        Micro-batches per step.
    verify_every : int, optional
        Every so many steps, compare the replayed step with the model's own; 0: never. By default at
        each of the first 20, unless the plan places the graph's ops on several ranks.
    on_nonfinite : {'stop', 'ignore'}, optional
        What a loss or gradient that is not finite does: end the job, as by default, or nothing.
    loss_scaling : str or float, optional
        ``'dynamic'``, ``'dynamic:scale=65536,growth=2,backoff=0.5,interval=2000'`` (what
        ``torch.cuda.amp.GradScaler`` does) or a fixed scale. A step in which a gradient of any rank
        is not finite is skipped by all ranks. Not beside `on_nonfinite`.
    update_rules : dict of str to (int, callable), optional
        Update rules of your own, for optimizers ``'user:rule=NAME,lr=…'``: how many states they
        keep per element, and ``rule(parameters, gradient, *states, lr, step, **options)``, which
        changes parameters and states in place: tensors of one dimension, any part of a parameter.
        It must treat every element by itself.
    encrypt : {'auto', 'on', 'off'}
        What ranks say to each other; 'auto': where they are on more than one machine. All-reduces
        by a library, which are not encrypted, are refused unless it is off.
    trace : bool
        Keep what steps do, for :meth:`Session.write_trace`.
    trace_steps : int, optional
        Of the last so many steps, by default 200; 0: of all.
    initial_weights : path, optional
        A safetensors file whose tensors take the place of the model's own first values.
    measure : bool
        Time every op at capture; fixes what travels first.
    budget : str, optional
        Of the search: a time (``'10s'``, the default), or a number of simulations (``'40'``).
    search_seed : int, optional
        Of the search, by default 0.
    trials : int or 'any'
        Run so many of the most promising plans for 50 steps each first, and take the fastest.
        ``'any'``: `counted_trials` whatever the order in which plans add up. The bits of the
        training depend on the clock then; `write_plans` is needed, and `plans` repeats it.
    counted_trials : bool
        Without those: run some of the first steps under the most promising plans in turn, and go on
        with the fastest; 20 s at most. Plans that add up alike alone, so that no bit depends on it.
    library : bool
        Let the search take all-reduces by a library. They are not encrypted, and two runs with them
        differ.
    history : bool
        Learn from what trainings by ``autodist train`` and trials took on this cluster before, and
        keep what trials take (``AUTODIST_HISTORY`` says where).
    snapshots : bool
        Let :meth:`Session.snapshot` take some.
    restarts : int
        After a lost rank, start all ranks again, the chief too, up to so many times in a row that
        get no further; :meth:`Session.resume` says from where. This process becomes ``autodist
        supervise``, and the program begins once more as its child. For programs that start their
        ranks themselves; of others who starts the ranks starts them again.
    standby : bool
        With `restarts`: keep all ranks started once more, captured and waiting.
    min_ranks : int, optional
        With `restarts`: go on without machines that are gone, as long as so many ranks are left.
    progress : bool
        Say on standard error, at the chief and where that is a terminal, what is being captured and
        searched, and what was found.
    log, tensorboard, report : path, optional
        Written by the chief: a line for every step (CSV where the name ends in .csv, else JSON),
        appended; a folder for an event file; when the job ends in order, a page for a browser with
        the plan, the run, and the timeline of a step. With several steps each has its own, named
        after it (``run-critic.csv``, ``tensorboard/critic``).
    join_limit, stall_limit : float
        Seconds of silence of a rank that is waited for before the first step (one that is alive is
        waited for), and for a wait within a step.
    silence_limit : float
        Seconds for which a rank that says nothing (a paused machine, a link that is down) is waited
        for, 4 or more; a line names it after 3 s. A rank whose connection is closed is lost at once.

    Raises
    ------
    UsageError, MachineError, PeersLostError
    """

    def __init__(
        self,
        cluster="",
        strategy_builder=None,
        *,
        resource_spec_file=None,
        builder=None,
        builders=None,
        strategy_file=None,
        write_plans=None,
        plans=None,
        seed=0,
        cpu_only=False,
        accumulate=1,
        verify_every=None,
        on_nonfinite=None,
        loss_scaling=None,
        update_rules=None,
        encrypt="auto",
        trace=False,
        trace_steps=None,
        initial_weights=None,
        measure=True,
        budget=None,
        search_seed=None,
        trials=0,
        counted_trials=True,
        library=False,
        history=True,
        snapshots=True,
        restarts=0,
        standby=False,
        min_ranks=None,
        progress=True,
        log=None,
        tensorboard=None,
        report=None,
        join_limit=60.0,
        stall_limit=300.0,
        silence_limit=20.0,
    ):
        cluster = _arguments.one_of("cluster", cluster, "resource_spec_file", resource_spec_file)
        builder = _arguments.one_of("builder", builder, "strategy_builder", strategy_builder)
        specification = _specification(cluster or os.environ.get("AUTODIST_CLUSTER", ""))
        supervised = Supervised.of(restarts, standby, min_ranks)
        options = _autodist.JobOptions()
        options.builder, own = chosen_builder(builder or "auto", builders)
        options.set_builders(own)
        options.strategy_file = _arguments.path("strategy_file", strategy_file, b"")
        options.write_plans = _arguments.path("write_plans", write_plans, b"")
        options.plans_file = _arguments.path("plans", plans, b"")
        options.seed = self._seed = _arguments.whole("seed", seed, bits=64)
        options.cpu_only = _arguments.flag("cpu_only", cpu_only)
        options.accumulate = _arguments.whole("accumulate", accumulate, 1)
        options.verify_every = _arguments.whole("verify_every", verify_every or 0)
        options.verify_first = _VERIFIED_STEPS if verify_every is None else 0
        self._looks = verify_every is None
        if not (isinstance(trials, str) and trials == "any"):
            trials = _arguments.whole("trials", trials, otherwise="'any' or ")
        self._trials = trials
        _refuse_of_search(_chooser(builder and options.builder, strategy_file, plans),
                          trials=trials or None, budget=budget, search_seed=search_seed)
        if library and not _autodist.has_gloo():
            raise MachineError(
                "library=True: this Python's torch has no Gloo for all-reduces by a library; leave "
                "it out"
            )
        search_seed = 0 if search_seed is None else _arguments.whole("search_seed", search_seed, bits=64)
        budget = "10s" if budget is None else _arguments.text(
            "budget", budget, "a time ('10s', '2m') or a number of simulations ('40')")
        options.set_search(budget, search_seed, trials,
                           _arguments.flag("counted_trials", counted_trials),
                           _arguments.flag("library", library),
                           _arguments.flag("history", history))
        if _arguments.flag("progress", progress) and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            options.set_progress(_show, sys.stderr.write)
        options.snapshots = _arguments.flag("snapshots", snapshots)
        if on_nonfinite is not None:
            _arguments.text("on_nonfinite", on_nonfinite, "'stop' or 'ignore'")
            if on_nonfinite != "stop" or loss_scaling is None:  # 'stop' is where nothing is said
                options.set_on_nonfinite(on_nonfinite)
        options.loss_scaling = "" if loss_scaling is None else str(loss_scaling)
        self._scales_loss = loss_scaling is not None
        for rule, given in _arguments.mapping("update_rules", update_rules, "(states, function)"):
            options.add_rule(rule, *_rule(rule, given))
        options.set_encryption(_arguments.text("encrypt", encrypt, "'auto', 'on' or 'off'"))
        self._files = Files.of(log, tensorboard, report)
        trace = _arguments.flag("trace", trace, " Session.write_trace(path) writes it.")
        self._keeps_trace = trace  # for the user; a report's own is not to be taken away from it
        options.trace = trace or report is not None
        steps = _TRACED_STEPS if trace_steps is None else _arguments.whole("trace_steps", trace_steps)
        if trace_steps is not None and not options.trace:
            raise UsageError(
                f"trace_steps={steps}: of a trace, and this job keeps none. Add trace=True, or "
                "leave it out."
            )
        options.trace_steps = steps if trace else min(steps, _REPORTED_STEPS)
        options.trace_at_end = report is not None
        options.initial_weights = _arguments.path("initial_weights", initial_weights, b"")
        options.measure = _arguments.flag("measure", measure)
        options.set_limits(_arguments.seconds("join_limit", join_limit), _arguments.seconds("stall_limit", stall_limit),
                           _arguments.seconds("silence_limit", silence_limit))
        if _autodist.becomes_chief(specification, cpu_only):
            self._files.check()
            supervised.begin(specification, options.cpu_only, _own_command())
        options.command = _command_for(specification)
        self._calls_python = bool(update_rules)
        _signals.watch(self)
        try:
            self._job = _autodist.Job(specification, options)
        except BaseException:
            _signals.forget(self)
            raise

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
        self,
        model,
        loss_fn,
        optimizer,
        example_batch,
        *,
        name=None,
        batched=None,
        reduction="mean",
        clip=None,
    ):
        """Capture the step, choose a strategy, agree with the other ranks.

        All ranks start from the chief's parameters and buffers. Called once.

        Parameters
        ----------
        model : torch.nn.Module
            Its parameters are trained in place.
        loss_fn : callable or None
            ``loss_fn(model, *batch)``, a scalar tensor, or a tuple, dictionary or dataclass that
            holds it (first, as ``'loss'``, as ``.loss``) beside what a step shall return, too; None:
            ``model(*batch)``.
        optimizer : str, torch.optim.Optimizer, callable or list
            ``'adam:lr=1e-3'`` (docs/formats/optimizer.md); an optimizer over the model's parameters,
            of torch.optim or any other of its interface; what makes one of a list of them; or several
            optimizers, which share the parameters out. For a new optimizer that AutoDist has as a
            rule of its own the session does what its ``step`` would, and reads what its groups say
            (rates, momentum, weight decay, betas) in every step. Of any other the session calls
            ``step`` itself, when the averaged gradients are there, at every rank.
        example_batch : tuple
            What one replica gets in a step: tensors, or structures of them; ``()`` where the step
            draws its data itself, or has it. Shapes and types count.
        name, batched, reduction
            As for :func:`capture`.
        clip : float, optional
            The largest joint 2-norm of the gradients, averaged over the job's samples; what
            ``torch.nn.utils.clip_grad_norm_`` does between ``backward`` and ``step``.

        Returns
        -------
        Session

        Raises
        ------
        UsageError
            For a step that cannot be captured, with its op and module (:func:`capture`); for an
            optimizer, a builder or an option that there is not; the second time.
        InfeasibleError
            For a strategy that cannot be carried out.
        PeersLostError, TimeoutError
            Where a rank is lost, or does not come.
        """
        step = Step(model, loss_fn, example_batch, name=name, batched=batched, reduction=reduction)
        optimizer = _optimizers.made(optimizer, step.parameters)
        text = _optimizers.clipped_text_of(optimizer, step.parameters, clip)
        handle = self._job.distribute(step, text)
        session = Session(self, handle, step, optimizer, self._files)
        _signals.watch_session(self, session)
        try:
            _optimizers.check_sparse(optimizer, session.graph)
            session._begin_updates("the optimizer")
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
            By name, which messages, files and :class:`Steps` have. One at least.

        Returns
        -------
        Steps
            The sessions, in the order of the arguments.

        Raises
        ------
        UsageError
            As :meth:`distribute`; for what is no TrainingStep, and beside `trials`.
        InfeasibleError
            For a strategy that cannot be carried out, as where two steps train a variable that one
            of them has asynchronous.
        PeersLostError, TimeoutError
            Where a rank is lost, or does not come.
        """
        if self._trials:
            raise UsageError(
                f"distribute_steps: trials={self._trials!r}: of a job of one step, which "
                "distribute() makes. Leave trials out."
            )
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
        settler = Settler()
        sessions = {
            name: Session(self, handle, each._step, each._optimizer, self._files.of_step(name),
                          settler)
            for (name, each), handle in zip(steps.items(), handles)
        }
        for session in sessions.values():
            _signals.watch_session(self, session)
        result = Steps(sessions)
        try:
            for name, each in steps.items():
                _optimizers.check_sparse(each._optimizer, sessions[name].graph)
                sessions[name]._begin_updates(f"the optimizer of {name}")
        except Error:
            result.close()
            raise
        return result

    def _records(self, handle, step, files):
        return Records(handle, f"{step.name} on {self.size} ranks", files) if self.is_chief else None

    def __repr__(self):
        return f"<autodist.AutoDist rank {self.rank} of {self.size}>"


def _rule(name, given):
    """How many states it keeps, and the function."""
    try:
        states, function = given
    except (TypeError, ValueError):
        function = None
    if not callable(function):
        raise UsageError(
            f"update_rules: '{name}': a pair expected, how many states it keeps and the function, "
            f"got {given!r}."
        )
    return _arguments.whole(f"update_rules: '{name}': states", states), function


def _specification(cluster):
    if isinstance(cluster, _autodist.Cluster):
        if not cluster.source:
            raise UsageError("cluster: it is from a text; write that to a file, and name the file")
        return os.fsencode(cluster.source)
    return _arguments.path("cluster", cluster)


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
