"""Calls that open a user's paths, each in a process that is killed on a timeout or on cancellation.

Reading a path may hang, such as on a network disk or a silent server. `python -m workbench.views.path_process` does the
imports for such calls and receives requests for processes over its standard input. It forks one for each, in a few
hundredths of a second, which answers over its own socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
import warnings
from typing import Any

from workbench.credentials import by_command, is_commanded
from workbench.errors import FailedError, WorkbenchError, quoted
from workbench.formats import duration

PATIENCE = 20.0
"""Time limit of a call in seconds."""

STARTING = 60.0
"""Additional seconds for the start of the process, whose imports the first call waits for."""

MOST = 16
"""Limit of simultaneous calls; others wait."""

_NEEDED = (
    "workbench.session",
    "workbench.runs.submit",
    "workbench.runs.comparing.compare",
    "workbench.workloads.catalogue",
)


class Looking:
    """Caller of a session's methods in processes that can be killed."""

    def __init__(self) -> None:
        self._parent: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None
        self._room = asyncio.Semaphore(MOST)

    async def ask(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Return the result of a session's method; cancellation kills its process.

        Raises the method's errors, and FailedError on a timeout.
        """
        import dask.config

        around = dict(os.environ), _folder(), dask.config.config, is_commanded()
        question = pickle.dumps((method, args, kwargs, *around))
        try:
            async with asyncio.timeout(PATIENCE + STARTING) as limit, self._room:
                return await self._answer(question, limit)
        except TimeoutError as err:
            where = next((f" of {quoted(place)}" for place in _places((args, kwargs))), "")
            raise FailedError(
                f"No answer within {duration(PATIENCE)}: the disk or server{where} does not respond. Try again later, "
                "or copy the data to this machine."
            ) from err

    async def _answer(self, question: bytes, limit: asyncio.Timeout) -> Any:
        ours, theirs = socket.socketpair()
        with theirs:
            self._order(theirs)
        reader, writer = await asyncio.open_connection(sock=ours)
        pid = 0
        try:
            pid = int(await reader.readline() or 0)
            limit.reschedule(asyncio.get_running_loop().time() + PATIENCE)
            writer.write(question)
            writer.write_eof()
            answer = await reader.read()
            pid = 0
        finally:
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            writer.close()
        if not answer:
            raise FailedError("The process that was to look ended without an answer. Try again.")
        return _opened(answer)

    def _order(self, connection: socket.socket) -> None:
        """Request a process at the other end of `connection`."""
        socket.send_fds(self.begin(), [b"."], [connection.fileno()])

    def begin(self) -> socket.socket:
        """Start the process that forks the others, unless it runs: its imports take seconds."""
        if self._parent is None or self._parent.poll() is not None or self._orders is None:
            self.close()
            self._orders, theirs = socket.socketpair()
            with theirs:
                # In its own session, so that Ctrl-C in Jupyter's terminal doesn't reach it.
                self._parent = subprocess.Popen(
                    [sys.executable, "-P", "-m", __name__],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
        return self._orders

    def close(self) -> None:
        """Kill the process that forks the others; those still running end by their alarm."""
        if self._orders is not None:
            self._orders.close()
        if self._parent is not None:
            self._parent.kill()
            self._parent.wait()
        self._parent = self._orders = None


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return "/"


def _places(argument: Any) -> list[str]:
    """Return the texts in the arguments that may be paths."""
    if isinstance(argument, dict | list | tuple):
        values = argument.values() if isinstance(argument, dict) else argument
        return [place for value in values for place in _places(value)]
    return [argument] if isinstance(argument, str) and "/" in argument else []


def _opened(answer: bytes) -> Any:
    kind, *parts = pickle.loads(answer)
    if kind == "returned":
        return parts[0]
    if kind == "failed":
        raise RuntimeError(parts[0])
    error_class, args, fields = parts
    # Not by calling the class: each takes different arguments.
    error = error_class.__new__(error_class)
    error.args = args
    error.__dict__.update(fields)
    raise error


def _serve() -> None:
    """Start a process for each connection received over the standard input, until that is closed."""
    # Python 3.12 and later warn at each fork, in Jupyter's log. The threads are pools of OpenBLAS and Arrow.
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
    for module in _NEEDED:
        importlib.import_module(module)
    from workbench.workloads.builtin import templates

    templates()
    with socket.socket(fileno=os.dup(0)) as orders:
        while True:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            order, descriptors, *_ = socket.recv_fds(orders, 1, 1)
            if not order:
                return
            for descriptor in descriptors:
                _begin(descriptor)


def _begin(descriptor: int) -> None:
    # Forking is unsafe elsewhere, so a new process does its own imports.
    if sys.platform != "linux":
        subprocess.Popen([sys.executable, "-P", "-m", __spec__.name, str(descriptor)], pass_fds=[descriptor])
    elif os.fork() == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        _look(descriptor)
    os.close(descriptor)


def _look(descriptor: int) -> None:
    """Answer the call of a connection, and end this process."""
    import dask.config

    connection = socket.socket(fileno=descriptor)
    # The kernel ends the process, even in the middle of a system call.
    signal.setitimer(signal.ITIMER_REAL, PATIENCE + 1)
    try:
        connection.sendall(b"%d\n" % os.getpid())
        with connection.makefile("rb") as file:
            method, args, kwargs, environment, folder, settings, commanded = pickle.load(file)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        dask.config.set(settings)
        with by_command(commanded):
            connection.sendall(_call(method, args, kwargs))
    finally:
        os._exit(0)


def _call(method: str, args: Any, kwargs: Any) -> bytes:
    from workbench.session import Session

    try:
        return pickle.dumps(("returned", getattr(Session(), method)(*args, **kwargs)))
    except WorkbenchError as err:
        return pickle.dumps(("raised", type(err), err.args, err.__dict__))
    except Exception:  # noqa: BLE001  The server logs it as an unexpected error.
        return pickle.dumps(("failed", traceback.format_exc()))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _look(int(sys.argv[1]))
    _serve()
