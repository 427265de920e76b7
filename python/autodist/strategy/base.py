"""Strategy at the place where AutoDist has it, for scripts that read its data sets."""

from .._autodist import Strategy

__all__ = ["Strategy"]
