"""A stand-in for cuda.core: contexts and their synchronisation, which Dask-CUDA and UCX ask for before they begin."""

from __future__ import annotations


class Device:
    """A device that isn't there, on which nothing is ever under way."""

    def __init__(self, device_id: int = 0) -> None:
        self.device_id = device_id

    def set_current(self) -> None:
        """Do nothing: there is no context."""

    def sync(self) -> None:
        """Return at once."""
