"""Location of a run's blocks, on GPUs or not, from their types when the workers stored them.

A plugin counts on each worker; nothing is read from a device, and of a block only its type and its size are read.
Counts belong to a task's name, its step. Steps that Dask fused into one task count as one: the result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from distributed.protocol.pickle import dumps
from distributed.utils import key_split

from workbench import remote
from workbench.errors import FailedError
from workbench.runs import block_counts
from workbench.sent_code import Travelling

if TYPE_CHECKING:
    from distributed import Client

# Names of steps in which a result leaves the GPU because it is read: those of workbench.linalg.backend and of Dask.
# A step's name begins with one of them, or ends with it if Dask fused the step with an earlier one.
_READING = ("to-host", "finalize")

Tally = dict[str, Any]
"""blocks, on_gpu, bytes, bytes_on_gpu, fell, first (seconds since the epoch), fell_at (the same, or None)."""


@contextlib.contextmanager
def counted(client: Client, name: str, *is_device: Callable[[type], bool]) -> Iterator[None]:
    """Count on all workers, also on later ones, until the block ends. Raises FailedError if one refuses."""
    plugin = Travelling(block_counts.Places, (name, *is_device))
    try:
        client.run_on_scheduler(Travelling(remote.add_to_workers), dumps(plugin), name, client.id)
    except RuntimeError as err:
        raise FailedError(str(err)) from err
    try:
        yield
    finally:
        # Without a scheduler there are no workers that could go on counting.
        with contextlib.suppress(OSError, TimeoutError, CancelledError):
            client.run_on_scheduler(Travelling(remote.remove_from_workers), name)


def collected(client: Client, name: str, own: Container[str] | None = None) -> dict[str, Any]:
    """Return fields of `OnGpu` for what was computed since counting began under this name, in `own` groups of tasks."""
    return summary(client.run(Travelling(block_counts.read_tallies), name, on_error="ignore").values(), own)


def summary(answers: Iterable[Mapping[str, Any] | None], own: Container[str] | None = None) -> dict[str, Any]:
    """Return fields of `OnGpu`, from the workers' counts for `own` groups of tasks, or for all."""
    steps: dict[str, Tally] = {}
    devices: dict[str, int] = {}
    for answer in filter(None, answers):
        for group, tally in answer["tallies"].items():
            step = key_split(group)
            if (own is not None and group not in own) or step.startswith(_READING) or step.endswith(_READING):
                continue
            steps[step] = _added(steps.get(step), tally)
            if tally["on_gpu"]:
                devices[answer["device"]] = devices.get(answer["device"], 0) + tally["on_gpu"]
    ordered = dict(sorted(steps.items(), key=lambda item: item[1]["first"]))
    counts = {name: sum(tally[name] for tally in ordered.values()) for name in _COUNTS}
    share, share_of_bytes = _part(counts["on_gpu"], counts["blocks"]), _part(counts["bytes_on_gpu"], counts["bytes"])
    return {
        **counts,
        "share": share,
        "share_of_bytes": share_of_bytes,
        "steps": [{"name": name, **{count: tally[count] for count in _COUNTS}} for name, tally in ordered.items()],
        "devices": devices,
        "sentence": _sentence(counts, share, share_of_bytes),
        "warning": _warning(ordered),
    }


_COUNTS = ("blocks", "on_gpu", "bytes", "bytes_on_gpu")


def _added(before: Tally | None, tally: Tally) -> Tally:
    if before is None:
        return dict(tally)
    fell = [at for at in (before["fell_at"], tally["fell_at"]) if at is not None]
    sums = {name: before[name] + tally[name] for name in (*_COUNTS, "fell")}
    return sums | {"first": min(before["first"], tally["first"]), "fell_at": min(fell, default=None)}


def _part(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _sentence(counts: Mapping[str, int], share: float | None, share_of_bytes: float | None) -> str:
    if share is None:
        return "There was no block, on a GPU or elsewhere."
    if counts["on_gpu"] == counts["blocks"]:
        return f"All {counts['blocks']} blocks were on a GPU."
    if not counts["on_gpu"]:
        return f"None of {counts['blocks']} blocks was on a GPU."
    of_bytes = "" if share_of_bytes is None else f", {_percent(share_of_bytes)} of their bytes"
    return f"{counts['on_gpu']} of {counts['blocks']} blocks were on a GPU{of_bytes}."


def _percent(part: float) -> str:
    # Rounded down, so that 99.96 % isn't shown as 100 %.
    return f"{int(part * 1000) / 10:g} %"


def _warning(steps: Mapping[str, Tally]) -> str | None:
    fallen = {name: tally for name, tally in steps.items() if tally["fell"]}
    if fallen:
        name, tally = min(fallen.items(), key=lambda item: item[1]["fell_at"])
        more = f" So it did in later steps: {', '.join(sorted(set(fallen) - {name}))}." if len(fallen) > 1 else ""
        return (
            f"Data fell back to NumPy in the step {name!r}, where {tally['fell']} of {tally['blocks']} blocks were "
            f"made on the CPU from blocks on the GPU.{more} Look there for np.asarray, .get() or what CuPy lacks."
        )
    if steps and not any(tally["on_gpu"] for tally in steps.values()):
        return (
            f"No block was on a GPU, from the first step {next(iter(steps))!r} on: the workers computed with NumPy. "
            "CuPy makes the blocks where array.backend is 'cupy'."
        )
    return None
