"""Amount and speed of data sent between workers, from the workers' own logs of what they fetch.

The benchmark is that of the post "Experiments in high performance networking with UCX and DGX" (2019), which Dask-CUDA
has as well: of messages above 1 MB, the quartiles of bandwidth for each pair of workers. A worker logs a block when
it first fetches it, and none that it has already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench import remote
from workbench.formats import count
from workbench.sent_code import Travelling

if TYPE_CHECKING:
    from distributed import Client

LEAST_BYTES = 1_000_000
"""Least size of messages: smaller ones show latency more than bandwidth."""

QUANTILES = (0.25, 0.5, 0.75)
_FROM_GPUS = " Blocks on GPUs are sent when the kernels that make them have ended: with persist that isn't timed."
_MOST_IN_TEXT = 8
_FEW = 5
"""Number of messages of a pair below which quartiles say little."""


class Transfers(NamedTuple):
    """Blocks that one worker fetched since some moment."""

    large: list[tuple[str, int, float]]
    """Sender, bytes and bytes per second of each message above `LEAST_BYTES`."""
    n_messages: int
    cut: bool
    """True if the log was too short to hold all."""


def clock(client: Client) -> float:
    """Return the scheduler's time, by which the workers' logs are aligned."""
    now: float = client.run_on_scheduler(Travelling(remote.now))
    return now


def bandwidth(client: Client, since: float, *, gpus: bool = False) -> dict[str, Any]:
    """Return the bandwidth between workers of what they fetched after `since` on the scheduler's clock.

    It is JSON. `matrix` has a row for each receiving worker, with an entry for each sending one: None, or `count`
    messages and `bandwidth`, the `quantiles` of their bytes per second. `transport` names the transport.
    """
    fetched = client.run(Travelling(remote.fetched), since, LEAST_BYTES, on_error="ignore")
    result = summary({worker: Transfers(*of_worker) for worker, of_worker in fetched.items()})
    if gpus and result["n_messages"]:
        result["sentence"] += _FROM_GPUS
    return {**result, "transport": transport(client, fetched)}


def summary(transfers: Mapping[str, Transfers]) -> dict[str, Any]:
    """Return a matrix of workers with the quartiles of bandwidth, and a message about its basis."""
    workers = sorted(transfers, key=_by_host_and_port)
    matrix = [_row(transfers[worker].large, workers) for worker in workers]
    large = [speed for fetched in transfers.values() for _, _, speed in fetched.large]
    return {
        "workers": workers,
        "quantiles": list(QUANTILES),
        "matrix": matrix,
        "n_messages": len(large),
        "bytes": sum(size for fetched in transfers.values() for _, size, _ in fetched.large),
        "overall": _quantiles(large) if large else None,
        "sentence": _sentence(matrix, transfers),
    }


def transport(client: Client, workers: Iterable[str]) -> str:
    """Return the transport between the workers: 'tcp', 'tls', or 'ucx (tcp on lo)' as UCX itself reports."""
    schemes = sorted({worker.partition("://")[0] for worker in workers})
    if "ucx" not in schemes and "ucxx" not in schemes:
        return " and ".join(schemes) or "none"
    lanes = sorted(
        {lane for answer in client.run(Travelling(remote.ucx_lanes), on_error="ignore").values() for lane in answer}
    )
    return f"ucx ({', '.join(lanes)})" if lanes else "ucx (transport not reported)"


def text(result: Mapping[str, Any]) -> str:
    """Return the result of `bandwidth` as a table for a terminal, in MiB/s: a row for each receiving worker."""
    heading = f"Over {result['transport']}. {result['sentence']}"
    names, matrix = labels(result["workers"]), result["matrix"]
    if not result["n_messages"]:
        return heading
    if len(names) > _MOST_IN_TEXT:
        return f"{heading}\nAll together {speeds(result['overall'])} MiB/s; the matrix is in the report."
    rows = [("MiB/s", *(f"from {name}" for name in names))]
    rows += [
        (f"to {name}", *("–" if cell is None else f"{speeds(cell['bandwidth'])} ({cell['count']})" for cell in row))
        for name, row in zip(names, matrix, strict=True)
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join((heading, "25 % | 50 % | 75 % of the messages were slower than this (messages):", *lines))


def labels(workers: Sequence[str]) -> list[str]:
    """Return short names of workers: their port if all are on one host, else host and port."""
    places = [worker.partition("://")[2] or worker for worker in workers]
    hosts = {place.rpartition(":")[0] for place in places}
    return [f":{place.rpartition(':')[2]}" for place in places] if len(hosts) == 1 else places


def speeds(quantiles: Sequence[float]) -> str:
    """Return bandwidths in MiB/s: '70 | 85 | 102'."""
    numbers = [value / 2**20 for value in quantiles]
    return " | ".join(count(round(number)) if number >= 10 else f"{number:.2g}" for number in numbers)


def _row(messages: Sequence[tuple[str, int, float]], senders: Sequence[str]) -> list[dict[str, Any] | None]:
    speeds: dict[str, list[float]] = defaultdict(list)
    for sender, _, speed in messages:
        speeds[sender].append(speed)
    return [
        {"count": len(speeds[each]), "bandwidth": _quantiles(speeds[each])} if each in speeds else None
        for each in senders
    ]


def _quantiles(speeds: Sequence[float]) -> list[float]:
    import numpy as np

    return [float(value) for value in np.quantile(speeds, QUANTILES)]


def _sentence(matrix: Sequence[Sequence[dict[str, Any] | None]], transfers: Mapping[str, Transfers]) -> str:
    if len(transfers) < 2:
        return "There is one worker, which has no partner: take two or more to measure bandwidth."
    counts = [cell["count"] for row in matrix for cell in row if cell is not None]
    small = sum(each.n_messages for each in transfers.values()) - sum(counts)
    if not counts:
        what = f"no message above 1 MB, and {small} smaller ones" if small else "no message at all"
        return f"Between the workers went {what}: take a larger array, or larger blocks, to measure bandwidth."
    words = [f"{count(sum(counts), 'message')} above 1 MB between {len(transfers)} workers."]
    if min(counts) < _FEW:
        words.append(f"Some pairs had fewer than {_FEW}: their quartiles say little; take a larger array.")
    if any(each.cut for each in transfers.values()):
        words.append("A worker's log holds the last 1000 messages, and there were more.")
    return " ".join(words)


def _by_host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port) if port.isdecimal() else 0
