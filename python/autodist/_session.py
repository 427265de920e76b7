"""A session trains a step together with those of the other ranks."""

import collections.abc
import math
import os
import time
import warnings

from . import _arguments, _autodist, _kept, _signals
from ._ends import live, words_of
from ._errors import CheckpointError, PeersLostError, UsageError
from ._guards import Guard
from ._loss import Loss
from ._optimizers import of_names, updates_of
from ._parameters import Settler


def _is_far(step):
    """Whether it is 1000, 2000, 4000, …: ever more seldom, and at all ranks at once, steps are compared
    whatever the host has, for what no look at it finds."""
    times, rest = divmod(step, 1000)
    return rest == 0 and times > 0 and times & (times - 1) == 0


class Session:
    """Trains. Made by :meth:`AutoDist.distribute`.

    A context manager: it ends the job in order, or, after an exception, leaves it, and the other
    ranks are told. Without one, call :meth:`finish`; else the end of the process does, by its exit
    code: in order after 0, at once after ``sys.exit(1)``. One thread at a time.
    """

    def __init__(self, job, handle, step, optimizer, files, settler=None):
        self._handle = handle
        self._records = job._records(handle, step, files)
        self._step = step
        trained = of_names(step.parameters, step.trains)
        self._optimizer = updates_of(optimizer, trained, job._scales_loss)
        self._looks = job._looks  # whether the host still has what was captured
        # What the step trains, or does not, of what it could.
        self._required = [] if optimizer is None else [
            (name, tensor, tensor.requires_grad) for name, tensor in trained]
        self._compares = False  # the step that runs, with what the model does now
        self._rate = None  # of the last step, where the optimizer says it
        self._guard = Guard(trained, has_state=self._optimizer.kept is None)
        self._settler = Settler() if settler is None else settler
        self._settler.watch(handle.settle, step.model, trained)
        self._ended = False
        # In ending, too: update rules, or files of steps.
        self._calls_python = job._calls_python or (
            self._records is not None and self._records.wanted)
        self._seed = job._seed
        self._keeps_trace = job._keeps_trace
        self._of_job = [self]  # with the sessions of the job's other steps
        self._process = os.getpid()  # a fork has a copy that is not its own to end
        self._first_loss = None
        self._told_stop = False
        live.add(self)

    def __call__(self, *batch):
        """Run one step; see :meth:`run`."""
        return self.run(*batch)

    def run(self, *batch):
        """One step on the whole job's batch, which every rank passes.

        Each replica takes its rows (:meth:`rows_of`); what is not batched goes whole to each. New
        shapes are captured when they first come.

        Parameters
        ----------
        *batch : torch.Tensor

        Returns
        -------
        Loss or object
            The loss over all rows of all replicas, once it is read (:class:`Loss`);
            :attr:`local_loss` is that of this replica's rows. Where loss_fn returns a structure that
            holds the loss: that, with the job's mean of the loss and of other single numbers, and
            this replica's rows of what has the batch as its first dimension, without gradients.

        Raises
        ------
        PeersLostError
            Naming the rank that was lost.
        UsageError
            For a batch that the step cannot take; for parameters, or options of the optimizer, that
            were not changed alike at all ranks; for a rank that makes another call than the others,
            which the message names.
        JobEnded
            When the chief has finished, and at the chief, before it has, when SIGTERM or SIGHUP came
            to a rank; exit code 0 where it is not caught.
        """
        return self._stepped(self._handle.run, batch, "batch")

    def _begin_step(self):
        _signals.heed(self)
        self._look()
        self._optimizer.tell(self._handle)
        self._rate = self._optimizer.lr

    def _look(self):
        """What a replay would not notice: a step that may have become another one is compared."""
        for name, tensor, required in self._required:
            if tensor.requires_grad != required:
                was, what = ("trained", "frozen") if required else ("frozen", "trained")
                raise UsageError(
                    f"'{name}' was {was} when the step was captured, and is to be {what} now: the step "
                    "goes on as it was. Distribute the model as it shall be, or set its group's lr to 0."
                )
        self._step.take_buffers()
        with self._settler.untouched():  # it reads which tensors there are, and no values
            self._compares = self._looks and self._first_loss is not None and (
                self._step.changed(self.step) or _is_far(self.step))
        if self._compares:
            self._handle.verify_next()

    def _stepped(self, run, batch, what):
        tensors = self._step.fitting(batch, what)
        self._begin_step()
        self._run(run, tensors)
        self._end_step()
        return self._step.result(Loss(self._handle.job_loss()), self._others())

    def _run(self, run, *arguments):
        begun = time.perf_counter()
        try:
            with self._settler.step(), self._optimizer.updating(self._handle, self._seed):
                result = run(*arguments)
            if self._compares:
                self._step.pause(time.perf_counter() - begun)
            return result
        except PeersLostError:
            _signals.heed_early()
            raise

    def _end_step(self):
        if self._first_loss is None:
            self._first_loss = self._handle.job_loss()
        _signals.stepped()
        self._optimizer.count()
        if self._records is not None:
            self._records.add(self.lr)

    def _others(self):
        """What the step just done returned beside its loss."""
        if not self._step.returns_more:
            return []
        others, numbers = [], 0
        for each in self._handle.outputs():
            if each.dim() == 0 and not each.is_complex():
                numbers += 1
                others.append(Loss(self._handle.job_number(numbers)))
            else:
                others.append(each)
        return others

    def run_local(self, *rows):
        """One step on rows that only this rank has.

        Parameters
        ----------
        *rows : torch.Tensor
            As for :meth:`run`. Their number and shapes may differ between ranks and from step to
            step; a rank may have 0 rows.

        Returns
        -------
        Loss or object
            As :meth:`run`: the loss is that over the rows of all ranks.

        Raises
        ------
        PeersLostError, UsageError, JobEnded
            As :meth:`run`.
        """
        return self._stepped(self._handle.run_local, rows, "rows")

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
        if isinstance(names, str):
            raise UsageError(f"run_and_fetch: names={names!r}: a list of names expected.")
        tensors = self._step.fitting(batch, "batch")
        self._begin_step()
        fetched = self._run(self._handle.run_and_fetch, list(names), tensors)
        self._optimizer.put_newest(fetched)
        self._end_step()
        return fetched

    def sum_over_ranks(self, values):
        """Sum what each rank passes; every rank calls it, at most six times between two steps.

        Parameters
        ----------
        values : iterable of float
            Of any length; where ranks pass different numbers of them, missing ones count as 0.

        Returns
        -------
        list of float
            As many as the longest has, added in the order of ranks: the same bits at every rank.

        Raises
        ------
        PeersLostError, TimeoutError
            Where a rank is lost, or does not come.
        UsageError
            Where a rank makes another call, which the message names.
        """
        return self._handle.sum_over_ranks([float(value) for value in values])

    def evaluate(self, *arguments, statistics="chief", **keywords):
        """Call the model in evaluation mode on the newest variables; without gradients.

        Plain Python on this rank, and the same figure at every rank. Where the step writes buffers
        (batch norm's statistics, each rank its own) every rank calls it, after the same step; so
        too where variables are asynchronous or the graph is placed. Elsewhere one rank may call it
        alone.

        Parameters
        ----------
        *arguments, **keywords
            ``evaluate(function, …)`` calls ``function(model, …)``; without a function,
            ``model(…)``.
        statistics : {'chief', 'mean'}
            The buffers that all ranks use meanwhile: the chief's, or their mean over all replicas
            (the chief's of those that count). Each rank has its own again afterwards.

        Returns
        -------
        object
            What that returns.

        Raises
        ------
        PeersLostError
            Where the other ranks take part, and one is lost.
        UsageError
            For another word as `statistics`, and inside of an evaluation.
        Exception
            What the function raises, as it is; the session goes on.
        """
        function = None
        if arguments and callable(arguments[0]):
            function, *arguments = arguments
        with self._settler.newest():
            self._handle.begin_evaluation(statistics)
            try:
                return self._step.evaluate(function, tuple(arguments), keywords)
            finally:
                self._handle.end_evaluation()

    def synchronize(self):
        """Make this rank's variables the newest; between steps they may be of any version.

        What is reached through the model (``model.fc.weight``, ``model.parameters()``,
        ``model.state_dict()``) is made the newest by itself; a tensor that was kept from before,
        asynchronous variables and those of a placed graph need this call, before they are read or
        written. What every rank writes alike before the next step becomes the new value. Of
        asynchronous variables and of a placed graph every rank makes it.
        """
        self._handle.synchronize()

    def change_plan(self, plan):
        """Go on under another plan from the next step on; every rank calls it, after the same step.

        State moves between ranks as it must. Losses and parameters are those of a job without the
        change, where both plans are lossless and synchronous and sum in the same order.

        Parameters
        ----------
        plan : str or Strategy
            A builder (``'AllReduce:algorithm=ring'``) or a strategy; the chief's is taken.

        Returns
        -------
        PlanChange

        Raises
        ------
        UsageError
            For a plan that there is not; where ranks have written other values into parameters
            since the last step; at all ranks, and the session goes on under the plan that it has.
        InfeasibleError
            For a plan that cannot be carried out, and graphs that are placed in stages;
            at all ranks, and the session goes on under the plan that it has.
        """
        if not isinstance(plan, (str, _autodist.Strategy)):
            raise UsageError(f"change_plan: plan={plan!r}: a builder's name or a Strategy expected.")
        before = self.strategy
        if isinstance(plan, _autodist.Strategy):
            self._optimizer.check_strategy(plan)
        change = self._handle.change_plan(plan)
        try:
            self._optimizer.check_plan(self._handle)
        except UsageError:
            self._handle.change_plan(before)
            raise
        return change

    def save(self, directory, wait=True):
        """Write a checkpoint ``step-N`` below the directory, at the chief.

        Every rank calls it, or the chief alone. Then it is written at once where the owners hold
        all of it. Where the other ranks have a part (batch norm's statistics, what compression
        owes, stages), all ranks write it two steps later (and as many as staleness allows), or in
        :meth:`finish`, and it is named by that step; asynchronous variables: in :meth:`finish`.

        Parameters
        ----------
        directory : str or path
            Where ``step-N`` is written.
        wait : bool
            With ``False`` it returns when nothing that changes from then on has a part in it, and
            threads copy and write it while the steps go on. The next one waits for it. One that
            cannot be written is said on standard error, and unless a later one was written it is
            tried again in :meth:`finish`: with the state of the end, where its own did not come
            from the other owners and these have all of it.

        Raises
        ------
        CheckpointError
            Where it could not be written; the session goes on, and it may be called again.
        UsageError
            The second time with the same directory between two steps, and where some ranks beside
            the chief call it.
        """
        with self._settler.untouched():
            self._handle.save(_arguments.path("directory", directory), _arguments.flag("wait", wait))

    def load(self, directory):
        """Load the newest sound checkpoint before the first step; every rank calls it.

        Parameters
        ----------
        directory : str or path
            That :meth:`save` was given. A checkpoint of any strategy and number of ranks fits.

        Returns
        -------
        int
            Its step, with which the training goes on.

        Raises
        ------
        CheckpointError
            Where there is none, none is sound, or the model is another one.
        UsageError
            After the first step.
        """
        return self._loaded(self._handle.load, _arguments.path("directory", directory))

    def resume(self, directory=None):
        """Load the newest checkpoint if there is one, else begin; every rank calls it.

        For a program that is started again after a loss (``autodist run --restarts 3``). Whether
        there is one is up to what the chief finds. The newest :meth:`snapshot` comes before an
        older checkpoint.

        Parameters
        ----------
        directory : path, optional
            Of checkpoints; without one there are snapshots alone.

        Returns
        -------
        int
            The step with which the training goes on; 0 where it begins.

        Raises
        ------
        CheckpointError
            Where there are some and none is sound, or the model is another one.
        UsageError
            After the first step.
        """
        return self._loaded(self._handle.resume, _arguments.path("directory", directory, b""))

    def _loaded(self, load, directory):
        with self._settler.untouched():
            step = load(directory)
        for each in self._of_job:
            each._optimizer.note_loaded(each.step)
        return step

    def snapshot(self):
        """Let the job's state be copied into memory, here, between two steps.

        A place from which the loop can go on: :attr:`step`, and what is kept, say all that it
        needs. Every rank calls it at every such place; loops over :meth:`epochs` need not, which
        do so when they ask for the next batch. Most calls do nothing: a copy is made so often that
        it takes a hundredth of the time. There is none where nobody starts the program again after
        a loss, before :meth:`resume` was called, and for asynchronous variables.

        It lies in the memory of the process that starts the program again (``autodist run
        --restarts 3``), on the chief's machine, where :meth:`resume` finds it. Where memory is
        short a line says so, and it lies as a ``step-N`` in the folder that :meth:`resume` was
        given, until the next one there or the end of the job; the newest one in memory is written
        there, too, when the job is given up. A program in C++ names another folder by
        ``JobOptions::snapshot_folder``.
        """
        with self._settler.untouched():
            self._handle.snapshot()

    def keep(self, name, what):
        """Keep the state of something beside the model in checkpoints, and restore it with them.

        An average of weights, a scheduler, the best loss so far: what is not of the session and
        must not begin anew when the training is resumed. Every rank calls it, before
        :meth:`resume` or after it; all ranks get the chief's state.

        Parameters
        ----------
        name : str
            The same in the run that resumes.
        what : object
            With ``state_dict()``, of tensors, numbers, strings, and lists, tuples and dicts of
            those, and ``load_state_dict(state)``.

        Raises
        ------
        UsageError
            For what has no such state, and for a name that is kept already.
        """
        _kept.check(name, what)
        with self._settler.untouched():
            self._handle.keep(name, lambda: _kept.state_of(what),
                              lambda state: _kept.restore(what, state))
        for each in self._of_job:
            each._calls_python = True

    def _begin_updates(self, name):
        """The optimizer's state, where it is not the session's, is kept under that name.

        Raises UsageError for a strategy under which it cannot update.
        """
        self._optimizer.check_plan(self._handle)
        if self._optimizer.kept is None:
            return
        try:
            self.keep(name, self._optimizer.kept)
        except Exception as error:
            warnings.warn(f"checkpoints of the session are without its optimizer's state, as {error}",
                          stacklevel=4)

    def epochs(self, loader, epochs=None, name="epochs"):
        """The passes over a loader, from where the training is.

        ``for epoch in session.epochs(loader, 10): for batch in epoch: …``. Checkpoints keep the
        epoch and the batch, and a run that resumes goes on with the next one: with the data in the
        same order. For that every epoch begins by seeding torch, :mod:`random` and numpy (if it is
        imported) with the job's seed and its number, and calls ``set_epoch`` of the loader's
        sampler. Batches that were had before are loaded and passed over.

        An epoch is over when its batches are, or when the next one is asked for: iterate over each
        once, in turn. Call it after :meth:`resume`, or before.

        Parameters
        ----------
        loader : iterable
            A ``DataLoader``, or anything that can be iterated over again; for one epoch an iterator,
            too.
        epochs : int, optional
            Without end by default.
        name : str
            Of the place in checkpoints, for a program with several loops.

        Returns
        -------
        iterable of Epoch
            Each with its ``number``, its batches, and of the one handed out last ``batch``, its number.
        """
        if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
            raise UsageError(f"epochs: loader={loader!r}: a DataLoader, or another iterable expected.")
        if isinstance(epochs, float) and (epochs.is_integer() or epochs == math.inf):
            epochs = None if epochs == math.inf else int(epochs)
        if epochs is not None:
            epochs = _arguments.whole("epochs", epochs)
        several = epochs is None or epochs > 1
        once = isinstance(loader, collections.abc.Iterator) and iter(loader) is loader
        if several and once and not hasattr(loader, "reset"):  # some begin anew by themselves
            raise UsageError(
                f"epochs: loader={loader!r}: an iterator, which the first epoch uses up. Give what "
                "can be iterated over again, a DataLoader or a list; or epochs=1."
            )
        loop = _kept.Epochs(self, loader, epochs, self._seed)
        self.keep(name, loop)
        return loop

    @property
    def _steps_of_job(self):
        """How many were done, of all that the job has."""
        return sum(each.step for each in self._of_job)

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
        with self._settler.newest():
            self._handle.export_torchscript(_arguments.path("path", path))

    def write_trace(self, path):
        """Write what this rank's steps did since the last call, for Chrome or Perfetto.

        Parameters
        ----------
        path : str or path
            Of the file, JSON; one that is there is replaced. It has at most the last `trace_steps`
            steps. What is written here, the timeline of a ``report=`` lacks.

        Raises
        ------
        UsageError
            Where the job was made without ``trace=True``.
        MachineError
            Where it cannot be written.
        """
        if not self._keeps_trace:
            raise UsageError(
                "write_trace: this job keeps no trace. Make it with AutoDist(trace=True)."
            )
        self._handle.write_trace(_arguments.path("path", path))

    @property
    def last(self):
        """What the last step of this rank was.

        Returns
        -------
        StepReport
        """
        return self._handle.last

    @property
    def local_loss(self):
        """The loss of the last step on this replica's rows; nan where it had none."""
        return self._handle.last.loss

    @property
    def lr(self):
        """The learning rate of the last step, with its schedule; that of the first parameter group,
        or of the first parameter."""
        rate = self._rate if self.step else self._optimizer.lr
        return self._handle.rate(max(self.step - 1, 0)) if rate is None else rate

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

    def rows_of(self, batch):
        """Which rows of a batch :meth:`run` gives this rank.

        Parameters
        ----------
        batch : int
            Number of rows of the whole batch.

        Returns
        -------
        range
            Equal parts, as ``numpy.array_split``, unless the strategy has ``batch_shares``, or a
            part would have one row and the step needs several (a batch norm).
        """
        return range(*self._handle.rows_of(_arguments.whole("batch", batch)))

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

        A chief that comes here before the others ends the job for them, too: a further step of
        theirs raises :class:`JobEnded`. What the script does afterwards the chief does last: it
        waits for the ranks that it started to end.

        Raises
        ------
        CheckpointError
            At the chief, when the job has ended: for all of a checkpoint that was due, rows of a
            log and a report that could not be written.
        """
        if not self._ended and self._process == os.getpid():
            if self._records is not None:
                self._records.come_to_end()
            missing = []
            try:
                with self._settler.untouched():
                    self._handle.finish()
            except CheckpointError as error:  # the job has ended all the same
                missing.append(str(error))
            self._ended = True
            _signals.forget(self)
            self._guard.end()
            self._settler.end()
            if self._records is not None:
                missing += self._records.end()
            if missing:
                raise CheckpointError("; ".join(missing))

    def close(self, reason=""):
        """Leave the job, also when it is under way: the other ranks are told, and why."""
        if self._records is not None and not self._ended and self._process == os.getpid():
            self._records.leave()
        self._ended = True
        _signals.forget(self)
        self._guard.end()
        self._settler.end()
        live.discard(self)
        self._handle.close(reason.encode(errors="replace"))

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        orderly = kind is None or (issubclass(kind, SystemExit) and error.code in (None, 0))
        if orderly and not _signals.stopped_early():
            self.finish()
        else:
            self.close(words_of(error))

    def __repr__(self):
        return f"<autodist.Session of '{self._step.name}'>"
