"""Genotypes in two bits each, lazily from files; imports NumPy, CuPy, Dask, Zarr and linalg, and no higher layer.

>>> from workbench import genotypes
>>> g = genotypes.open_genotypes("study.bed")  # or VCF Zarr, or an array of counts
>>> g = genotypes.pack_to_zarr(g, "study.zarr")
>>> genotypes.pca(g, 10).scores
"""

from __future__ import annotations

from workbench.genotypes.arrays import read_vcf_zarr as read_vcf_zarr
from workbench.genotypes.packing import (
    MISSING as MISSING,
    MISSING_CODES as MISSING_CODES,
    pack as pack,
    unpack as unpack,
)
from workbench.genotypes.pca import GenotypePCA as GenotypePCA, pca as pca
from workbench.genotypes.plink import read_plink as read_plink
from workbench.genotypes.projection import Projection as Projection, Reference as Reference, project as project
from workbench.genotypes.prune import ld_prune as ld_prune
from workbench.genotypes.qc import Quality as Quality, qc as qc
from workbench.genotypes.reading import open_genotypes as open_genotypes
from workbench.genotypes.relatives import Relatedness as Relatedness, kinship as kinship
from workbench.genotypes.simulated import simulate as simulate
from workbench.genotypes.store import pack_to_zarr as pack_to_zarr
from workbench.genotypes.values import Genotypes as Genotypes, Variants as Variants
