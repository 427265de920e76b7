"""Graphs and strategies without a job: capture here, plan anywhere."""

import inspect

from . import _arguments, _autodist
from ._errors import UsageError
from ._model import Step
from .strategy.base import NamedBuilder, StrategyBuilder

# As the options of AutoDist's own builders are written.
_TRUE = ("true", "True", "1")
_FALSE = ("false", "False", "0")

_SEARCH = "auto"  # no builder: what a job searches with


def capture(
    model,
    loss_fn,
    example_batch,
    *,
    name=None,
    batched=None,
    reduction="mean",
    symbolic_batch=True,
    measure=True,
    seed=0,
):
    """Capture one training step as a graph.

    The step is run a few times on rows of the example; parameters, gradients, buffers and the
    random generator are afterwards as they were.

    Parameters
    ----------
    model : torch.nn.Module
        Captured in the modes (train, eval) that its modules have.
    loss_fn : callable or None
        ``loss_fn(model, *batch)``, a scalar tensor; None: ``model(*batch)`` is the loss.
    example_batch : tuple
        What one replica gets in a step: tensors, or structures of them. Shapes and types count, and
        values must be such as the step takes.
    name : str, optional
        Of the graph; by default the model's class.
    batched : sequence of bool, optional
        Which inputs have the batch as their first dimension; by default those with as many rows
        as the first input.
    reduction : {'mean', 'sum'}
        How the samples make the loss.
    symbolic_batch : bool
        One graph for every batch size, where the step allows it.
    measure : bool
        Measure how long every op takes; a strategy's priorities follow from it.
    seed : int
        Of the random numbers that the step draws.

    Returns
    -------
    Graph

    Raises
    ------
    UsageError
        Naming op and module of what a replay would get wrong: numbers and shapes that the step
        reads from data, parameters that it writes.
    """
    step = Step(
        model, loss_fn, example_batch, name=name, batched=batched, reduction=reduction
    )
    return _autodist.capture(step, symbolic_batch, 3 if measure else 0, seed)


def builder_tuple(name, function):
    """A user's function as the extension takes it.

    What it has beyond (graph, cluster) are options, which a specification "NAME:option=value" sets;
    their defaults say of which type they are.
    """
    if not callable(function):
        raise UsageError(
            f"builder '{name}': a function (graph, cluster) -> Strategy expected, got "
            f"{type(function).__name__}"
        )
    parameters = list(inspect.signature(function).parameters.values())
    options = {}
    for parameter in parameters[2:]:
        if parameter.default is inspect.Parameter.empty:
            raise UsageError(
                f"builder '{name}': its option '{parameter.name}' has no default. Give it one."
            )
        options[parameter.name] = parameter.default

    def converted(key, text):
        default = options[key]
        if isinstance(default, bool):
            if text not in _TRUE + _FALSE:
                raise UsageError(f"builder '{name}': {key}='{text}', true or false expected. Write {key}=true.")
            return text in _TRUE
        try:
            return text if default is None else type(default)(text)
        except ValueError as error:
            raise UsageError(f"builder '{name}': {key}='{text}': {error}") from None

    def build(graph, cluster, chosen):
        keywords = {key: converted(key, text) for key, text in chosen.items()}
        strategy = function(graph, cluster, **keywords)
        if not isinstance(strategy, _autodist.Strategy):
            raise UsageError(
                f"builder '{name}': a Strategy expected, got {type(strategy).__name__}. Return one."
            )
        return strategy

    description = (inspect.getdoc(function) or name).splitlines()[0]
    return name, description, {key: str(value) for key, value in options.items()}, build


def chosen_builder(builder, builders):
    """(specification, list of builder tuples) from what a user gave."""
    by_name = dict(_arguments.mapping("builders", builders, "functions"))
    if _SEARCH in by_name:
        raise UsageError("builders: 'auto' is the name of the search. Give yours another one.")
    own = [builder_tuple(name, function) for name, function in by_name.items()]
    if builder is None or isinstance(builder, str):
        return builder or "", own
    if isinstance(builder, type) and issubclass(builder, StrategyBuilder):
        builder = builder()
    # A class of one's own that changes what one of ours builds is no longer ours.
    if isinstance(builder, NamedBuilder) and type(builder).build is NamedBuilder.build:
        return builder.specification, own
    if not callable(builder):
        raise UsageError(
            f"builder: a name or a function (graph, cluster) -> Strategy expected, got "
            f"{type(builder).__name__}"
        )
    name = getattr(builder, "__name__", type(builder).__name__)
    name = "own" if name == "<lambda>" else name
    if name == _SEARCH:
        raise UsageError(
            "builder: a function that is called 'auto', which is the name of the search. Rename it."
        )
    if name in by_name:
        raise UsageError(
            f"builder: a function that goes by the name '{name}', and builders= has one of that "
            "name. Rename one of them, or leave one out."
        )
    return name, own + [builder_tuple(name, builder)]


def build_strategy(builder, graph, cluster, *, builders=None):
    """A strategy for a graph on a cluster.

    Parameters
    ----------
    builder : str, StrategyBuilder or callable
        A name, with options if wanted: ``'PartitionedPS'``, ``'AllReduce:chunk_size=64'``; one of
        ``autodist.strategy``; or a function ``(graph, cluster) -> Strategy``.
    graph : Graph
        Of :func:`capture`, or from a file.
    cluster : Cluster
        What the strategy is for; its machines need not be there.
    builders : dict of str to callable, optional
        Your own builders by name, which is not ``'auto'``. What a function takes beyond graph and
        cluster, with defaults, are its options.

    Returns
    -------
    Strategy
        A node for every variable, in the graph's order.

    Raises
    ------
    UsageError
        For a builder or an option that there is not, with the nearest that there is; for a name
        that is given twice; for what a function of yours raises, or returns in a strategy's place.
    """
    name, own = chosen_builder(builder, builders)
    return _autodist.build_strategy(name, graph, cluster, own)


def builders():
    """The builders that AutoDist has.

    Returns
    -------
    dict of str to tuple of (str, dict)
        By name, a line that describes it and its options with their defaults.
    """
    return {name: (description, options) for name, description, options in _autodist.builders()}
