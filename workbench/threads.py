"""Work that may never finish, such as access to a disk that hangs, in threads that block only their caller.

asyncio's own threads are few and shared with all of Jupyter, and a process that ends waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import importlib
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from importlib.metadata import EntryPoint
from typing import Any, ParamSpec, TypeVar

from workbench.errors import FailedError, reason_of
from workbench.formats import duration

P = ParamSpec("P")
T = TypeVar("T")

MOST = 64
"""Limit of threads that wait at a time."""

PATIENCE = 60.0
"""Seconds after which an answer is given up."""

_importing = threading.RLock()
_room = threading.BoundedSemaphore(MOST)


def load(*modules: str) -> None:
    """Import modules that import parts of Dask, in one thread at a time.

    RAPIDS' finder (rapids-dask-dependency, which dask-cuda needs) waits for a package while it holds the lock of all
    imports: if two threads import parts of Dask at once, the whole process deadlocks.
    """
    with _importing:
        for module in modules:
            importlib.import_module(module)


def load_entry_point(point: EntryPoint, *, call: bool = False) -> Any:
    """Return the object of an entry point, or its result if `call`. Raises FailedError for any exception there."""
    try:
        load(point.module)
        value = point.load()
        return value() if call else value
    except (Exception, SystemExit) as err:
        raise FailedError("it ends Python" if isinstance(err, SystemExit) else reason_of(err)) from err


def load_before_threads(*modules: str) -> None:
    """Import modules now if a later import in a thread could collide with one of a notebook's cell: see `load`."""
    if "rapids_dask_dependency" in sys.modules:
        load(*modules)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `function` in a new thread and return its result.

    Raises FailedError if there is no answer within `PATIENCE`, or if too many calls are waiting.
    """
    if not _room.acquire(blocking=False):
        raise FailedError(f"{MOST} requests to disks and devices of this machine wait for an answer. Try again later.")
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            outcome = context.run(function, *args, **kwargs)
        except BaseException as err:  # noqa: BLE001  Raised where it is awaited.
            _tell(loop, answer, answer.set_exception, err)
        else:
            _tell(loop, answer, answer.set_result, outcome)
        finally:
            _room.release()

    # A daemon: the process doesn't wait for it when it ends.
    threading.Thread(target=work, name=f"workbench {function!r:.80}", daemon=True).start()
    try:
        # Not wait_for: in Python 3.11 it loses a cancellation that comes together with the answer.
        async with asyncio.timeout(PATIENCE):
            return await answer
    except TimeoutError as err:
        if not answer.cancelled():
            raise
        raise FailedError(f"No answer within {duration(PATIENCE)}: a disk or a device of this machine hangs.") from err


@contextlib.contextmanager
def ended_after(seconds: float, sentence: str) -> Iterator[None]:
    """Raise FailedError in the main thread after `seconds`, whatever it waits for, as Ctrl-C would.

    Does nothing in other threads, which get no signals, or if another alarm is set.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def late(*_: object) -> None:
        raise FailedError(sentence)

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine to its end, in a thread if an event loop already runs here, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(contextvars.copy_context().run, asyncio.run, coroutine).result()


def synchronous(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make a coroutine function synchronous, even if an event loop runs here."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        return finish(function(*args, **kwargs))

    return wrapper


def _tell(loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T], tell: Callable[..., None], what: object) -> None:
    def settle() -> None:
        if not answer.done():
            tell(what)

    # The event loop may be closed.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(settle)
