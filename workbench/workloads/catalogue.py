"""The workloads there are, in the order in which they are shown; each family is a file of its own."""

from __future__ import annotations

from workbench.workloads import (
    array,
    eofs,
    frames,
    genotype_pca,
    genotype_project,
    genotype_qc,
    genotype_relatedness,
    pack_genotypes,
    reduce_file,
    svd,
    svd_of_file,
)
from workbench.workloads.registry import Template

TEMPLATES: tuple[Template, ...] = (
    *array.TEMPLATES,
    frames.TEMPLATE,
    *svd.TEMPLATES,
    svd_of_file.TEMPLATE,
    reduce_file.TEMPLATE,
    eofs.TEMPLATE,
    genotype_pca.TEMPLATE,
    pack_genotypes.TEMPLATE,
    genotype_qc.TEMPLATE,
    genotype_relatedness.TEMPLATE,
    genotype_project.TEMPLATE,
)
