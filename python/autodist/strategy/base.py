"""Strategy and StrategyBuilder at the place where AutoDist has them."""

from __future__ import annotations

import typing

from .._autodist import Strategy, build_strategy

if typing.TYPE_CHECKING:  # the extension's types stand in the package's stub
    from .. import Cluster, Graph, Strategy


class StrategyBuilder:
    """What makes a strategy. A builder of your own is a class with ``build``."""

    def build(self, graph_item: Graph, resource_spec: Cluster) -> Strategy:
        """The strategy for a graph on a cluster.

        Parameters
        ----------
        graph_item : Graph
        resource_spec : Cluster

        Returns
        -------
        Strategy
        """
        raise NotImplementedError("StrategyBuilder: write build(self, graph_item, resource_spec) -> Strategy")

    def __call__(self, graph: Graph, cluster: Cluster) -> Strategy:
        return self.build(graph, cluster)


def _text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


class NamedBuilder(StrategyBuilder):
    """One of AutoDist's own.

    Attributes
    ----------
    name : str
    specification : str
        It and its options as text: ``'PS:staleness=3'``.
    """

    name = ""

    def __init__(self, **options):
        items = ",".join(f"{key}={_text(value)}" for key, value in options.items())
        self.specification = f"{self.name}:{items}"

    def build(self, graph_item: Graph, resource_spec: Cluster) -> Strategy:
        """The strategy for a graph on a cluster, see :class:`StrategyBuilder`."""
        return build_strategy(self.specification, graph_item, resource_spec, [])

    def __repr__(self):
        return f"<autodist.strategy.{self.specification}>"


__all__ = ["Strategy", "StrategyBuilder"]
