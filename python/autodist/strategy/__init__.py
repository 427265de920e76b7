"""Strategy at the place where AutoDist has it, for scripts that read its data sets."""

from .base import Strategy

__all__ = ["Strategy"]
