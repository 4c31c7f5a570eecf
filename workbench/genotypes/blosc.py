"""Blosc's own threads, which get in the way of Dask's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin


class OneBloscThread(WorkerPlugin):
    """Lets Blosc use one thread in each task of a worker: Dask's threads already fill the cores.

    Source: "Large SVDs" (May 2020), which sets `numcodecs.blosc.use_threads` on every worker.

    >>> client.register_plugin(OneBloscThread())
    """

    name = "one-blosc-thread"
    idempotent = True

    def setup(self, worker: Any) -> None:
        """Tell the Blosc of this worker's process."""
        from numcodecs import blosc

        blosc.use_threads = False

    def teardown(self, worker: Any) -> None:
        """Leave the choice to Blosc again."""
        from numcodecs import blosc

        blosc.use_threads = None


@contextmanager
def one_blosc_thread() -> Iterator[None]:
    """Within, Blosc uses one thread in each of this process's threads."""
    from numcodecs import blosc

    before = blosc.use_threads
    blosc.use_threads = False
    try:
        yield
    finally:
        blosc.use_threads = before
