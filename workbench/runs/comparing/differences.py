"""Differences between past runs in parameters, hardware, versions and machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel

from workbench import formats
from workbench.clusters.spec import EXPLANATIONS, SIZES
from workbench.runs.comparing.comparisons import Comparison, Row


class Differing(BaseModel, frozen=True):
    """A property in which past runs differ, with its value for each row."""

    kind: Literal["parameters", "spec", "versions", "machine"]
    name: str
    values: tuple[Any, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """Values as shown: sizes of memory with a unit, missing values as a dash."""
        return tuple(
            formats.size(each) if self.name in _SIZES and each else "–" if each is None else str(each)
            for each in self.values
        )


_SIZES = (*SIZES, "memory")


def differences(comparison: Comparison) -> tuple[Differing, ...]:
    """Return all properties in which at least two rows of a comparison differ."""
    facts = [_facts(row) for row in comparison.rows]
    names = dict.fromkeys(key for each in facts for key in each)
    found = ((kind, name, tuple(each.get((kind, name)) for each in facts)) for kind, name in names)
    return tuple(
        Differing(kind=kind, name=name, values=values)
        for kind, name, values in found
        if any(value != values[0] for value in values)
    )


def _facts(row: Row) -> dict[tuple[str, str], Any]:
    spec = row.spec.model_dump(mode="json", exclude=EXPLANATIONS) if row.spec else {}
    kinds: dict[str, Mapping[str, Any]] = {
        "parameters": {"workload": row.workload, **row.resolved},
        "spec": spec,
        "versions": row.versions | ({"code": row.sha[:12]} if row.sha else {}),
        "machine": _machine(row.inventory or {}),
    }
    return {(kind, name): value for kind, facts in kinds.items() for name, value in facts.items()}


def _machine(inventory: Mapping[str, Any]) -> dict[str, Any]:
    cpu, memory = inventory.get("cpu") or {}, inventory.get("memory") or {}
    gpus = [gpu.get("name") for gpu in inventory.get("gpus") or ()]
    driver = (inventory.get("cuda") or {}).get("driver_version")
    facts = {
        "processor": cpu.get("model"),
        "usable cores": cpu.get("usable"),
        "memory": memory.get("cgroup_limit") or memory.get("total"),
        "GPUs": gpus or None,
        "driver": driver,
    }
    return {name: value for name, value in facts.items() if value is not None}
