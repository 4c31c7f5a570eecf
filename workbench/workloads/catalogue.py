"""All workloads, in the order in which they are shown; each family is a file of its own."""

from __future__ import annotations

from workbench.workloads import array, frames, reduce_file, svd, svd_of_file
from workbench.workloads.extensions import extensions
from workbench.workloads.registry import Template

TEMPLATES: tuple[Template, ...] = (
    *array.TEMPLATES,
    frames.TEMPLATE,
    *svd.TEMPLATES,
    svd_of_file.OF_FILE,
    reduce_file.TEMPLATE,
    *(workload for each in extensions() for workload in each.workloads),
)
