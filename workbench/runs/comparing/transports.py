"""Which of TCP, TLS and UCX between workers is faster: rows of a comparison that differ in nothing else."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.runs.comparing.comparisons import Row
from workbench.runs.statistics import Ratio, compared


def told(row: Row) -> list[Mapping[str, Any]]:
    """What the runs of a row told of the data that travelled between workers; none where nothing large did."""
    found = ((sample.result or {}).get("bandwidth") for sample in row.samples if sample.seconds is not None)
    return [each for each in found if each and each["overall"]]


def sentence(rows: Sequence[Row]) -> str | None:
    """Say which transport is the fastest, over all that was swept; None where the rows differ in something else."""
    found = _relative(rows)
    if len(found) < 2:
        return None
    names = {protocol: _name(protocol, rows) for protocol in found}
    fastest, *others = sorted(found, key=lambda protocol: statistics.median(found[protocol]))
    ratios = {protocol: compared(found[protocol], found[fastest]) for protocol in others}
    beside = ", ".join(f"{names[each]} {_beside(ratio)}" for each, ratio in ratios.items())
    if any(ratio.difference != "slower" for ratio in ratios.values()):
        return f"Transports between the workers, beside {names[fastest]}: {beside}."
    return f"The best transport between the workers is {names[fastest]}: {beside}."


def _relative(rows: Sequence[Row]) -> dict[str, tuple[float, ...]]:
    """Times over each protocol, beside the median of all protocols at the same work on as many workers."""
    works: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row.seconds and row.spec is not None and not row.spec.alone and row.spec.n_workers > 1:
            spec = row.spec
            same = (row.workload, row.resolved, spec.n_workers, spec.threads_per_worker, spec.devices)
            works.setdefault(json.dumps(same, sort_keys=True, default=str), {}).setdefault(spec.protocol, row)
    protocols = {protocol for work in works.values() for protocol in work}
    times: dict[str, tuple[float, ...]] = {}
    for work in works.values():
        # One that is missing would shift the median of the others.
        if set(work) == protocols:
            middle = statistics.median(seconds for row in work.values() for seconds in row.seconds)
            for protocol, row in work.items():
                times[protocol] = (*times.get(protocol, ()), *(seconds / middle for seconds in row.seconds))
    return times


def _name(protocol: str, rows: Sequence[Row]) -> str:
    """What carried the data in truth, such as 'ucx (tcp on lo)'."""
    of_it = (row for row in rows if row.spec is not None and row.spec.protocol == protocol)
    return next((str(each["transport"]) for row in of_it for each in told(row)), protocol)


def _beside(ratio: Ratio) -> str:
    words = {"equal": "is equal within 5 % ({})", "undecided": "is undecided ({})"}
    return words.get(ratio.difference, "takes {}").format(f"{_times(ratio)} as long")


def _times(ratio: Ratio) -> str:
    between = "" if ratio.low is None or ratio.high is None else f" ({ratio.low:.2f} to {ratio.high:.2f})"
    return f"{ratio.ratio:.2f}{between} times"
