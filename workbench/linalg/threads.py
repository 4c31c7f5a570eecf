"""BLAS with one thread, while Dask's threads fill the cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any


class _OneThread:
    """Setting of this process's BLAS: one thread while any caller needs it."""

    def __init__(self) -> None:
        self._lock, self._calls = Lock(), 0
        self._limit: Any = None

    def begin(self) -> None:
        with self._lock:
            if not self._calls:
                self._limit = _libraries().limit(limits=1, user_api="blas")
            self._calls += 1

    def end(self) -> None:
        with self._lock:
            self._calls -= 1
            if not self._calls:
                self._limit.restore_original_limits()


_ONE_THREAD = _OneThread()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit this process's BLAS to one thread: Dask's threads already fill the cores, and small matrices need no more.

    Two threads by two cost 1.4 times the time on an idle machine, and many times that on a busy one, where BLAS's
    threads wait for each other. Workers of a cluster are other processes; Dask sets theirs to one as they start.

    The number applies to the process: of overlapping calls the first sets it, and the last restores it.
    """
    _ONE_THREAD.begin()
    try:
        yield
    finally:
        _ONE_THREAD.end()


@cache
def _libraries() -> Any:
    """Return this process's BLAS libraries, searched once because it takes some milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
