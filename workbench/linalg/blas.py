"""How many threads BLAS uses beside Dask's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS of this process with one thread: Dask's threads already fill the cores, and small matrices need no more.

    Two threads by two cost 1.4 times the time on an idle machine, and many times that on a busy one, where BLAS's
    threads wait for each other. Workers of a cluster are other processes; Dask sets theirs to one as they start.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield
