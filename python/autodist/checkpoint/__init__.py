"""Saver at the place where AutoDist has it."""

from .saver import Saver

__all__ = ["Saver"]
