"""Work that may never answer, such as a look at a disk that hangs: in threads that hold up nobody but who asked.

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
"""Threads that may be waiting at a time."""

PATIENCE = 60.0
"""Seconds after which nobody waits for an answer any more."""

_importing = threading.RLock()
_room = threading.BoundedSemaphore(MOST)


def load(*modules: str) -> None:
    """Import modules that import parts of Dask, in one thread at a time.

    RAPIDS' finder (rapids-dask-dependency, which dask-cuda brings) waits for a package while it holds the lock of all
    imports: where two threads import parts of Dask at once, the whole process would stand still for ever.
    """
    with _importing:
        for module in modules:
            importlib.import_module(module)


def load_entry_point(point: EntryPoint, *, call: bool = False) -> Any:
    """Return what an entry point names, or what that returns. Raises FailedError whatever its package does."""
    try:
        load(point.module)
        found = point.load()
        return found() if call else found
    except (Exception, SystemExit) as err:
        raise FailedError("it ends Python" if isinstance(err, SystemExit) else reason_of(err)) from err


def load_before_threads(*modules: str) -> None:
    """Import them now where a later import in a thread could meet one of a notebook's cell: see `load`."""
    if "rapids_dask_dependency" in sys.modules:
        load(*modules)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `function` returns, called in a thread of its own.

    Raises FailedError when there is no answer within `PATIENCE`, or when too many have none yet.
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

    # A daemon: the end of the process doesn't wait for it.
    threading.Thread(target=work, name=f"workbench {function!r:.80}", daemon=True).start()
    try:
        # Not wait_for: in Python 3.11 it forgets a cancellation that comes together with the answer.
        async with asyncio.timeout(PATIENCE):
            return await answer
    except TimeoutError as err:
        if not answer.cancelled():
            raise
        raise FailedError(f"No answer within {duration(PATIENCE)}: a disk or a device of this machine hangs.") from err


@contextlib.contextmanager
def ended_after(seconds: float, sentence: str) -> Iterator[None]:
    """Raise FailedError in the main thread when it is late, whatever it waits for, as Ctrl-C would.

    Does nothing in other threads, which get no signals, nor where somebody else has set an alarm.
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
    """Run the coroutine to its end, in a thread where an event loop runs here already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(contextvars.copy_context().run, asyncio.run, coroutine).result()


def synchronous(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a coroutine function as one that returns when it has ended, also where an event loop runs."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        return finish(function(*args, **kwargs))

    return wrapper


def _tell(loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T], tell: Callable[..., None], what: object) -> None:
    def settle() -> None:
        if not answer.done():
            tell(what)

    # Nobody may be there any more.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(settle)
