"""How many threads BLAS uses beside Dask's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS of this process with one thread: Dask's threads already fill the cores, and small matrices need no more.

    Two threads by two cost 1.4 times the time on an idle machine, and many times that on a busy one, where BLAS's
    threads wait for each other. Workers of a cluster are other processes; Dask sets theirs to one as they start.
    """
    with _libraries().limit(limits=1, user_api="blas"):
        yield


@cache
def _libraries() -> Any:
    """Those of this process, looked for once, which takes some milliseconds: NumPy has loaded what multiplies here."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
