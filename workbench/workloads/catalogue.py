"""The workloads there are, in the order in which they are shown; each family is a file of its own."""

from __future__ import annotations

from workbench.workloads import (
    array,
    eofs,
    frames,
    genotype_files,
    genotype_pca,
    reduce_file,
    svd,
)
from workbench.workloads.registry import Template

TEMPLATES: tuple[Template, ...] = (
    *array.TEMPLATES,
    frames.TEMPLATE,
    *svd.TEMPLATES,
    svd.OF_FILE,
    reduce_file.TEMPLATE,
    eofs.TEMPLATE,
    genotype_pca.COMPONENTS,
    genotype_files.PACKING,
    genotype_files.QUALITY,
    genotype_files.RELATIVES,
    genotype_pca.PROJECTION,
)
