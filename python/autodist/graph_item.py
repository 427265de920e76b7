"""GraphItem at the place where AutoDist has it, for scripts that read its data sets."""

from ._autodist import GraphItem, ItemVariable

__all__ = ["GraphItem", "ItemVariable"]
