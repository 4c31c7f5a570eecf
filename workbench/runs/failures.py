"""What went wrong in a run, in one sentence with a remedy."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import Any

from dask.utils import format_bytes, key_split

from workbench.errors import WorkbenchError
from workbench.runs.store import Run

_LESS_MEMORY = "Use smaller chunks or a smaller size, or a cluster with more memory for each worker."


def sentence(error: BaseException, run: Run, cluster_end: str | None) -> str:
    """Sentence for a person.

    Parameters
    ----------
    cluster_end
        How the cluster ended, where it did: then that is the cause, whatever the exception says.
    """
    if cluster_end is not None:
        return f"The cluster {run.cluster} ended while the run was going on. {cluster_end}"
    if isinstance(error, WorkbenchError):
        return str(error)
    if type(error).__name__ == "KilledWorker":
        return _killed(error, run)
    if isinstance(error, MemoryError):
        return f"A task needed more memory than there was ({_first_line(error)}). {_LESS_MEMORY}"
    if lost_connection(error):
        return f"The connection to the cluster {run.cluster} was lost. See its log: workbench logs {run.cluster}"
    return f"{_first_line(error)} The traceback is in the log: workbench show {run.id} --log"


def _killed(error: Any, run: Run) -> str:
    limit = f" ({format_bytes(run.spec.memory_limit)} each)" if run.spec else ""
    return (
        f"A task of kind '{key_split(error.task)}' ended {error.allowed_failures + 1} workers one after another, most "
        f"likely because it needs more memory than a worker has{limit}. {_LESS_MEMORY}"
    )


def lost_connection(error: BaseException) -> bool:
    """Whether it says that the scheduler can't be reached any more."""
    return isinstance(error, (CancelledError, ConnectionError, TimeoutError)) or "Comm" in type(error).__name__


def _first_line(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0].strip()
    return f"{type(error).__name__}: {text}".rstrip(". ") + "." if text else f"{type(error).__name__}."
