"""Genotypes in two bits each, lazily from files; knows NumPy, CuPy, Dask, Zarr and linalg, and nothing above them.

>>> from workbench import genotypes
>>> g = genotypes.open_genotypes("study.bed")  # or VCF Zarr, or an array of counts
>>> g = genotypes.pack_to_zarr(g, "study.zarr")
>>> genotypes.pca(g, 10).plot("family")
"""

from __future__ import annotations

from typing import Any

from workbench.genotypes.arrays import read_vcf_zarr
from workbench.genotypes.packing import MISSING, MISSING_CODES, pack, unpack
from workbench.genotypes.pca import GenotypePCA, pca
from workbench.genotypes.plink import read_plink
from workbench.genotypes.projection import Projection, Reference, project
from workbench.genotypes.prune import ld_prune
from workbench.genotypes.qc import Quality, qc
from workbench.genotypes.reading import open_genotypes
from workbench.genotypes.relatives import Relatedness, kinship
from workbench.genotypes.simulated import simulate
from workbench.genotypes.store import pack_to_zarr
from workbench.genotypes.values import Genotypes, Variants

__all__ = [
    "MISSING",
    "MISSING_CODES",
    "GenotypePCA",
    "Genotypes",
    "OneBloscThread",
    "Projection",
    "Quality",
    "Reference",
    "Relatedness",
    "Variants",
    "kinship",
    "ld_prune",
    "open_genotypes",
    "pack",
    "pack_to_zarr",
    "pca",
    "project",
    "qc",
    "read_plink",
    "read_vcf_zarr",
    "simulate",
    "unpack",
]


def __getattr__(name: str) -> Any:
    if name == "OneBloscThread":  # loads distributed
        from workbench.genotypes.blosc import OneBloscThread

        return OneBloscThread
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
