"""Will it fit? What a workload would need, against what a cluster has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dask.utils import format_bytes

from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec

if TYPE_CHECKING:
    from workbench.workloads.registry import Template
    from workbench.workloads.values import Parameters


def forecast(
    template: Template, parameters: Mapping[str, Any], cluster: ClusterRecord | ClusterSpec | None
) -> dict[str, Any]:
    """Fields of `session.Forecast`. Raises BadInputError where a parameter can't be used."""
    spec = actual_spec(cluster) if isinstance(cluster, ClusterRecord) else cluster
    checked = template.validate(parameters, **size_of(spec))
    needs = template.needs(checked)
    fits, sentence = (None, needs.sentence) if spec is None else _verdict(needs, spec)
    return {
        "parameters": dict(checked.resolved),
        "notes": tuple(checked.notes),
        "needs": needs.model_dump(mode="json"),
        "fits": fits,
        "sentence": sentence,
        "cell": _cell(template, checked, cluster) if isinstance(cluster, ClusterRecord) else None,
    }


def _cell(template: Template, checked: Parameters, cluster: ClusterRecord) -> str:
    return template.cell(checked, cluster.name, on_gpu=bool(cluster.spec.devices))


def actual_spec(record: ClusterRecord) -> ClusterSpec:
    """Spec of a cluster with the workers that it has now, which scaling may have changed."""
    return record.spec.model_copy(update={"n_workers": max(1, record.n_workers)})


def size_of(spec: ClusterSpec | None) -> dict[str, int]:
    """What a template's `validate` wants to know of a cluster."""
    if spec is None:
        return {}
    return {"memory": spec.memory, "threads": spec.threads, "threads_per_worker": spec.threads_per_worker}


def _verdict(needs: Any, spec: ClusterSpec) -> tuple[bool, str]:
    one, every = spec.memory_limit, spec.memory
    if needs.held_per_worker > one:
        return False, (
            f"Needs {format_bytes(needs.held_per_worker)} in one worker at once, and a worker has {format_bytes(one)}. "
            "Use smaller chunks, or fewer workers with more memory each."
        )
    if needs.held_total > every:
        return False, (
            f"Needs {format_bytes(needs.held_total)} in memory at once, and the workers have {format_bytes(every)} "
            "together: the rest would be spilled to disk. Use a smaller size, or a cluster with more memory."
        )
    return True, needs.sentence
