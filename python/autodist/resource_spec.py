"""ResourceSpec at the place where AutoDist has it, for scripts that read its data sets."""

from ._autodist import Cluster as ResourceSpec

__all__ = ["ResourceSpec"]
