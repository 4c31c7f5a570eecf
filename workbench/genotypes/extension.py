"""Extension of this package."""

from __future__ import annotations

from workbench.genotypes import eigenvec, plink
from workbench.genotypes.workloads import listing, pictures
from workbench.genotypes.workloads.components import COMPONENTS
from workbench.genotypes.workloads.files import PACKING, QUALITY, RELATIVES
from workbench.genotypes.workloads.projection import PROJECTION
from workbench.workloads.extensions import Extension, Format, Pictures

EXTENSION = Extension(
    "Genotypes",
    workloads=(COMPONENTS, PACKING, QUALITY, RELATIVES, PROJECTION),
    formats=(Format("PLINK .bed, .bim and .fam", listing.look, endings=listing.ENDINGS, files=plink.three_files),),
    writers={"eigenvec": eigenvec.lines},
    pictures=Pictures(pictures.draws, pictures.draw),
)
