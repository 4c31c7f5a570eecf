"""All workloads by group, in the order in which they are shown; each family is a file of its own."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.workloads import array, frames, reduce_file, svd, svd_of_file
from workbench.workloads.extensions import extensions
from workbench.workloads.registry import Template

GROUPS: Mapping[str, tuple[Template, ...]] = {
    "Arrays": (*array.TEMPLATES, frames.TEMPLATE),
    "SVD": svd.TEMPLATES,
    "Your data": (svd_of_file.OF_FILE, reduce_file.TEMPLATE),
    **{each.title: each.workloads for each in extensions() if each.workloads},
}
TEMPLATES: tuple[Template, ...] = tuple(workload for group in GROUPS.values() for workload in group)
