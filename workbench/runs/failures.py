"""Messages about failed runs, with a remedy."""

from __future__ import annotations

import ast
import linecache
import os
import re
import traceback
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dask.utils import key_split

from workbench import formats
from workbench.errors import MODULES, FailedError, WorkbenchError, named, said
from workbench.runs.run import Run
from workbench.sent_code import check_readable
from workbench.storage.places import of_server, sentences_about
from workbench.workloads.importing import is_next_to

if TYPE_CHECKING:
    from distributed import Client

_DATA_GONE = ("already forgotten", "scattered data")
"""Dask's messages about tasks whose data a client had sent to a worker that was lost."""

_LESS_MEMORY = "Use smaller chunks or a smaller size, or a cluster with more memory for each worker."


def sentence(error: BaseException, run: Run, cluster_end: str | None) -> str:
    """Return a message for users; if the cluster or its jobs ended, that is the message, whatever was raised."""
    if cluster_end is not None:
        return cluster_end
    if isinstance(error, WorkbenchError):
        return said(error)
    if _killed_worker(error):
        return _killed(error, run)
    if isinstance(error, MemoryError):
        return f"A task needed more memory than there was ({named(error)}.). {_LESS_MEMORY}"
    if isinstance(error, CancelledError) and any(why in str(error) for why in _DATA_GONE):
        return (
            f"Workers of {run.cluster} were lost, with data that only the client could make again. Run it again. "
            f"For the reason see the log: workbench logs {run.cluster}"
        )
    if lost_connection(error):
        return f"The connection to the cluster {run.cluster} was lost. See its log: workbench logs {run.cluster}"
    path = run.resolved.get("path")
    if isinstance(path, str) and "://" in path and of_server(error):
        try:
            with sentences_about(path, "it to be there while tasks read it"):
                raise error
        except WorkbenchError as err:
            return said(err)
    text = said(error).strip()
    # A workload that rejects its data has its own message, which needs no name of an exception class.
    if isinstance(error, ValueError) and text.endswith(".") and "\n" not in text:
        return text
    why = _lacking(error, run) or _unpicklable(error, run) or f"{_line(error, run)}{named(error)}."
    return f"{why} The traceback is in the log: workbench show {run.id} --log"


def out_of_reach(error: OSError, run: Run, client: Client) -> str | None:
    """Return a message about a file that exists for this process, but not for a task; None otherwise."""
    # HDF5's library names the file in its text only.
    inside = re.search(r"'([^']+)'", said(error))
    path = error.filename or (inside and inside[1])
    if not isinstance(path, str) or not os.path.exists(path):  # noqa: PTH110  which no text makes raise
        return None
    if not Path(path).is_absolute():
        if not isinstance(error, FileNotFoundError):
            return None
        return (
            f"{_line(error, run)}{path} is in {Path.cwd()}, where the function is called, and its tasks work in other "
            f"folders. Give them the whole path: Path({path!r}).absolute()"
        )
    try:
        check_readable(client, path)
    except FailedError as err:
        before = "" if run.function is None else " Or read it in the function, before its tasks."
        return f"{_line(error, run)}{err}{before}"
    return None


def _killed(error: Any, run: Run) -> str:
    limit = f" ({formats.size(run.spec.memory_limit)} each)" if run.spec and run.spec.memory_limit else ""
    ended = error.allowed_failures + 1
    workers = f"{ended} workers one after another" if ended > 1 else "its worker"
    return (
        f"A task of kind '{key_split(error.task)}' ended {workers}, most "
        f"likely because it needs more memory than a worker has{limit}. {_LESS_MEMORY}"
    )


def may_be_the_clusters_end(error: BaseException) -> bool:
    """Return whether the error may mean the end of a cluster: no scheduler any more, or, just before, no workers."""
    return lost_connection(error) or _killed_worker(error)


def _killed_worker(error: BaseException) -> bool:
    return type(error).__name__ == "KilledWorker"


def lost_connection(error: BaseException) -> bool:
    """Return whether the error says that the scheduler is unreachable."""
    # Dask cancels tasks for other reasons, too, and names them in its error.
    cancelled = isinstance(error, CancelledError) and "lost dependencies" not in str(error)
    return cancelled or isinstance(error, (ConnectionError, TimeoutError)) or "Comm" in type(error).__name__


def _line(error: BaseException, run: Run) -> str:
    """Return the innermost line of the user's own file in which it was raised; nothing if there is none."""
    file = "" if run.function is None else run.function.reference.rpartition(":")[0]
    frames = traceback.extract_tb(error.__traceback__) if file else ()
    lines = [each.lineno for each in frames if each.filename == file or _was_sent(each, file)]
    return f"{Path(file).name}, line {lines[-1]}: " if lines else ""


def _was_sent(frame: traceback.FrameSummary, file: str) -> bool:
    """Return whether a frame is in a function of `file` that cloudpickle sent: since 3.1.3 it drops the file's name."""
    if frame.filename != "<dynamic-code>" or frame.lineno is None:
        return False
    nodes = ast.walk(ast.parse("".join(linecache.getlines(file))))
    functions = (each for each in nodes if isinstance(each, (ast.FunctionDef, ast.Lambda)))
    return any(
        getattr(each, "name", "<lambda>") == frame.name and each.lineno <= frame.lineno <= (each.end_lineno or 0)
        for each in functions
    )


def _cause(error: BaseException | None, is_relevant: Callable[[BaseException], bool]) -> BaseException | None:
    """Return the first relevant error in a chain of causes; None if there is none."""
    while error is not None and not is_relevant(error):
        error = error.__cause__
    return error


def _unpicklable(error: BaseException | None, run: Run) -> str | None:
    """Return a message about a value that can't be sent to tasks; None for other errors."""
    error = _cause(error, lambda each: bool(re.match(r"(cannot|can't) pickle", said(each), re.IGNORECASE)))
    if error is None or run.function is None:
        return None
    file = Path(run.function.reference.rpartition(":")[0]).name
    return (
        f"{said(error).rstrip('.')}: tasks need such a value of {file} or of a module next to it. Make the value in "
        "the function that uses it."
    )


def _lacking(error: BaseException | None, run: Run) -> str | None:
    """Return a message about a module that is missing where the tasks run; None for other errors."""
    error = _cause(error, lambda each: isinstance(each, ModuleNotFoundError))
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    module = error.name.partition(".")[0]
    where = "" if run.function is None else run.function.reference.rpartition(":")[0]
    if where.endswith(".py") and is_next_to(where, module):
        file = Path(where).name
        return (
            f"Tasks can't import {module}, which is next to {file} on this machine only. Import it at the top of "
            f"{file}, or send it to the workers with client.upload_file(…)."
        )
    # Anyone may own a package of an unknown module's name.
    what, it = (f"package {MODULES[module]}", "it") if module in MODULES else (f"module {module}", "what brings it")
    return (
        f"The {what} isn't installed where it was needed. Install {it} in the environment of scheduler and workers, "
        "and in the one in which workbench runs."
    )
