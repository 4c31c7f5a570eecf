"""Conduct protocol_sweep: a cluster for each protocol, the rounds over all of them, and a sentence on what came out."""

from __future__ import annotations

import asyncio
import contextlib
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.clusters import control, records
from workbench.clusters.connect import security
from workbench.clusters.launch import launch
from workbench.clusters.plan import consent as consent_to_cluster
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import FailedError, WorkbenchError
from workbench.runs import places, store, transfers
from workbench.runs.statistics import Ratio, ratio, spread
from workbench.runs.store import Count, Progress, Run
from workbench.workloads.sweep import PROTOCOLS

if TYPE_CHECKING:
    from distributed import Client

    from workbench.hardware import Inventory

_IDLE_TIMEOUT = 180.0
"""Seconds after which the clusters end by themselves, should this process be killed."""

_PATIENCE = 10.0  # seconds for a connection to a scheduler


def consent(resolved: Mapping[str, Any], running: ClusterSpec | None, inventory: Inventory) -> str | None:
    """Return what a person has to agree to before a sweep with these parameters starts; None where it is harmless.

    Whoever has a cluster `running` over UCX has agreed already, and where UCX isn't installed it is left out.
    """
    if "ucx" not in resolved.get("protocols", ()) or not inventory.ucx.installed:
        return None
    if running is not None and running.protocol == "ucx":
        return None
    lent = running or ClusterSpec(n_workers=1, threads_per_worker=1, memory_limit=1)
    return consent_to_cluster(spec_for(lent, "ucx"))


class Conducted(NamedTuple):
    """A row for each measurement, why a protocol was left out, and where the blocks lay if there are GPUs."""

    rows: list[dict[str, Any]]
    left_out: dict[str, str]
    on_gpu: dict[str, Any] | None


def conduct(run: Run, resolved: Mapping[str, Any]) -> Conducted:
    """Measure all that a sweep asks for.

    Raises FailedError where not one of the protocols can be had.
    """
    from workbench.workloads.network import rounds

    assert run.spec is not None
    with contextlib.ExitStack() as opened:
        clusters, left_out = opened.enter_context(_clusters(run, resolved["protocols"]))
        clients = opened.enter_context(_clients(clusters))
        if run.spec.devices:
            for client in clients.values():
                opened.enter_context(places.counted(client, run.id))
        progress = _Progress(run, clusters, resolved)
        shape, chunks = tuple(resolved["shape"]), [tuple(block) for block in resolved["chunks"]]
        measured = rounds(clients, shape, chunks, resolved["repetitions"], resolved["dtype"], resolved["seed"])
        rows = []
        since = {protocol: transfers.clock(client) for protocol, client in clients.items()}
        for row in measured:
            client = clients[row["protocol"]]
            told = transfers.bandwidth(client, since[row["protocol"]])
            since[row["protocol"]] = transfers.clock(client)
            middle = told["overall"][1] if told["overall"] else None
            rows.append({**row, "bandwidth": middle, "n_messages": told["n_messages"], "transport": told["transport"]})
            progress.add(row["protocol"])
        on_gpu = places.collected_over(clients.values(), run.id) if run.spec.devices else None
        return Conducted(rows, left_out, on_gpu)


def outcome(rows: Sequence[Mapping[str, Any]], left_out: Mapping[str, str]) -> dict[str, Any]:
    """Result of a sweep as JSON: the sentence, a summary line for each protocol and size of blocks, all rows."""
    return {"sentence": sentence(rows, left_out), "summary": summary(rows), "left_out": dict(left_out), "rows": rows}


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Median and quartiles of the seconds, and the median bandwidth, for each size of blocks and protocol."""
    lines = []
    for block in _blocks(rows):
        for protocol in _protocols(rows):
            mine = [row for row in rows if row["protocol"] == protocol and tuple(row["chunks"]) == block]
            if not mine:
                continue
            told = spread([row["seconds"] for row in mine])
            speeds = [row["bandwidth"] for row in mine if row["bandwidth"] is not None]
            lines.append(
                {
                    "protocol": protocol,
                    "chunks": list(block),
                    "seconds": told.median,
                    "quartiles": [told.q1, told.q3],
                    "bandwidth": statistics.median(speeds) if speeds else None,
                    "n_messages": sum(row["n_messages"] for row in mine),
                    "transport": mine[-1]["transport"],
                }
            )
    return lines


def ratios(rows: Sequence[Mapping[str, Any]]) -> dict[str, Ratio]:
    """How many times as long each protocol takes as the fastest one, over all sizes of blocks, the fastest first.

    Times are taken relative to the median of all protocols at the same size of blocks, so that each size counts alike.
    """
    relative = _relative(rows)
    order = sorted(relative, key=lambda protocol: statistics.median(relative[protocol]))
    return {protocol: ratio(relative[protocol], relative[order[0]]) for protocol in order}


def sentence(rows: Sequence[Mapping[str, Any]], left_out: Mapping[str, str]) -> str:
    """Say which protocol is faster here and by how much."""
    found = ratios(rows)
    fastest, *others = found
    count = len({row["repetition"] for row in rows})
    over = f"{count} round{'s' if count > 1 else ''} of {_sizes(rows)}"
    words = [_among(fastest, others, found, over)] if others else [f"Only {fastest} was measured ({over})."]
    words += [f"{protocol} was left out: {why}" for protocol, why in left_out.items()]
    return " ".join(words)


def _among(fastest: str, others: Sequence[str], found: Mapping[str, Ratio], over: str) -> str:
    alike = [name for name in others if found[name].difference in ("none", "unsure")]
    slower = [name for name in others if name not in alike]
    words = [f"{name} takes {_times(found[name])} as long" for name in slower]
    if not alike:
        return f"{fastest} is the fastest here: {' and '.join(words)} ({over})."
    unsure = any(found[name].difference == "unsure" for name in alike)
    verdict = "there were too few rounds to tell a difference" if unsure else "no difference shows"
    same = ", ".join(f"{name} takes {_times(found[name])} as long" for name in alike)
    between = f"Between {', '.join((fastest, *alike[:-1]))} and {alike[-1]} {verdict}: {same}"
    rest = f"; {' and '.join(words)} as {fastest}" if words else ""
    return f"{between}{rest} ({over})."


def _times(told: Ratio) -> str:
    between = "" if told.low is None or told.high is None else f" ({told.low:.2f} to {told.high:.2f})"
    return f"{told.ratio:.2f}{between} times"


def _sizes(rows: Sequence[Mapping[str, Any]]) -> str:
    blocks = [f"{rows_} × {columns}" for rows_, columns in _blocks(rows)]
    return f"blocks of {', '.join(blocks)}"


def _relative(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    middles = {
        block: statistics.median(row["seconds"] for row in rows if tuple(row["chunks"]) == block)
        for block in _blocks(rows)
    }
    return {
        protocol: [row["seconds"] / middles[tuple(row["chunks"])] for row in rows if row["protocol"] == protocol]
        for protocol in _protocols(rows)
    }


def text(told: Mapping[str, Any]) -> str:
    """Return the summary of a sweep as a table for a terminal: medians, with quartiles behind the seconds."""
    lines = [("BLOCKS", "PROTOCOL", "SECONDS", "MB/s")]
    for each in told["summary"]:
        low, high = each["quartiles"]
        speed = transfers.speeds([each["bandwidth"]]) if each["bandwidth"] else "–"
        block = " × ".join(map(str, each["chunks"]))
        lines.append((block, each["protocol"], f"{each['seconds']:.3g} ({low:.3g} – {high:.3g})", speed))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    really = dict.fromkeys(f"{each['protocol']}: {each['transport']}" for each in told["summary"])
    return "\n".join((*(line.rstrip() for line in padded), f"Transports really used: {'; '.join(really)}."))


def ucx_measured(inventory: Inventory) -> str | None:
    """Say how UCX between CPU workers compared with TCP in the latest sweep on this machine; None without one."""
    for run in store.select(limit=50, workload="protocol_sweep", status="done"):
        if run.spec is None or run.spec.devices or not _same_machine(run, inventory):
            continue
        rows = (run.result or {}).get("rows", ())
        relative = _relative(rows)
        if not {"tcp", "ucx"} <= set(relative):
            continue
        told = ratio(relative["ucx"], relative["tcp"])
        day = datetime.fromtimestamp(run.created).astimezone().strftime("%Y-%m-%d")
        words = {"slower": "slower than", "faster": "faster than", "unsure": "not to be told from"}
        word = words.get(told.difference, "no different from")
        return (
            f"UCX was {word} TCP between {run.spec.n_workers} workers without GPUs, measured here on {day} "
            f"({run.id}): (x + x.T).sum() took {_times(told)} as long, over {_transport_of(rows)}."
        )
    return None


def _same_machine(run: Run, inventory: Inventory) -> bool:
    then, now = (run.inventory or {}).get("cpu", {}), inventory.cpu.model_dump(mode="json")
    return all(then.get(name) == now.get(name) for name in ("model", "usable"))


def _transport_of(rows: Sequence[Mapping[str, Any]]) -> str:
    return next(str(row["transport"]) for row in reversed(rows) if row["protocol"] == "ucx")


def _protocols(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    there = {row["protocol"] for row in rows}
    return [protocol for protocol in PROTOCOLS if protocol in there]


def _blocks(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, ...]]:
    return sorted({tuple(row["chunks"]) for row in rows}, key=math.prod)


class _Progress:
    """Counts the measurements of each protocol, for whoever watches the run."""

    def __init__(self, run: Run, protocols: Mapping[str, Any], resolved: Mapping[str, Any]) -> None:
        self._run = run
        each = len(resolved["chunks"]) * resolved["repetitions"]
        self._counts = {protocol: Count(done=0, total=each) for protocol in protocols}
        self._write()

    def add(self, protocol: str) -> None:
        """One more is done."""
        count = self._counts[protocol]
        self._counts[protocol] = count.model_copy(update={"done": count.done + 1})
        self._write()

    def _write(self) -> None:
        counts = self._counts.values()
        done, total = sum(each.done for each in counts), sum(each.total for each in counts)
        told = Progress(done=done, total=total, unit="measurements", by_name=dict(self._counts), stage="computing")
        store.write_progress(self._run, told)


def spec_for(spec: ClusterSpec, protocol: str) -> ClusterSpec:
    """Spec of a cluster of the same size that speaks `protocol`."""
    plain = "cpu" if not spec.devices else "gpu" if len(spec.devices) == 1 else "gpus"
    changes = {
        "profile": "ucx" if protocol == "ucx" else plain,
        "protocol": protocol,
        "idle_timeout": _IDLE_TIMEOUT,
        "why": (f"Started by a sweep of protocols, and gone when it ends; it speaks {protocol}.",),
    }
    return ClusterSpec.model_validate({**spec.model_dump(), **changes})


@contextlib.contextmanager
def _clusters(run: Run, protocols: Sequence[str]) -> Iterator[tuple[dict[str, ClusterRecord], dict[str, str]]]:
    """Clusters by protocol, and why the others can't be had. All end with the block."""
    started: list[ClusterRecord] = []
    try:
        yield _started(run, protocols, started)
    finally:
        asyncio.run(_stop(started))


def _started(
    run: Run, protocols: Sequence[str], started: list[ClusterRecord]
) -> tuple[dict[str, ClusterRecord], dict[str, str]]:
    assert run.spec is not None
    left_out: dict[str, str] = {}
    ready = {}
    for protocol in protocols:
        try:
            # What they promise is what the cluster promised that stays idle meanwhile: one of them works at a time.
            name = f"sweep-{protocol}-{run.id.rpartition('-')[2]}"
            started.append(launch(spec_for(run.spec, protocol), name=name, force=True, agreed=True))
        except WorkbenchError as err:
            left_out[protocol] = str(err)
    for record in started:
        try:
            ready[record.spec.protocol] = asyncio.run(control.wait(record.name))
        except WorkbenchError as err:
            left_out[record.spec.protocol] = str(err).splitlines()[0]
    if not ready:
        raise FailedError(f"Not one of the clusters could be started. {' '.join(left_out.values())}")
    return {protocol: ready[protocol] for protocol in protocols if protocol in ready}, left_out


async def _stop(started: Sequence[ClusterRecord]) -> None:
    async def stop(record: ClusterRecord) -> None:
        with contextlib.suppress(WorkbenchError):
            await control.stop(records.read(record.name))

    await asyncio.gather(*map(stop, started))


@contextlib.contextmanager
def _clients(clusters: Mapping[str, ClusterRecord]) -> Iterator[dict[str, Client]]:
    """Clients over the schedulers' TCP entrance: what is measured travels between workers, which speak the protocol."""
    from distributed import Client

    with contextlib.ExitStack() as opened:
        yield {
            protocol: opened.enter_context(
                Client(record.contact, security=security(record), set_as_default=False, timeout=_PATIENCE)
            )
            for protocol, record in clusters.items()
        }
