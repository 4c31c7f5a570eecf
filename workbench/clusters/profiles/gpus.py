"""Several GPUs with a worker each."""

from workbench.clusters.profiles.gpu import Gpus

__all__ = ["Gpus"]
