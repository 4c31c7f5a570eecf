"""Which variants are on autosomes, by the names of their contigs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from workbench.errors import BadInputError
from workbench.genotypes.values import Genotypes

_X = re.compile(r"(?:chr)?(?:X|23)|NC_000023\.\d+", re.IGNORECASE)
# 1 to 22, chr1 to chr22, and the human reference's own names. PLINK writes X, Y, XY and MT as 23 to 26.
_AUTOSOME = re.compile(r"(?:chr)?0?([1-9]|1\d|2[0-2])|NC_0000(0[1-9]|1\d|2[0-2])\.\d+", re.IGNORECASE)


def some_on_x(genotypes: Genotypes) -> bool:
    """Whether some of the variants are on the human X."""
    contigs = genotypes.variants.contig
    return contigs is not None and any(_X.fullmatch(str(name)) for name in set(contigs.tolist()))


def on_autosomes(genotypes: Genotypes) -> np.ndarray[Any, Any]:
    """A mask of the variants that are on one of the 22 human autosomes.

    Raises BadInputError where the variants have no contigs, or none of them is an autosome.
    """
    contigs = genotypes.variants.contig
    if contigs is None:
        raise BadInputError("autosomes_only needs the contig of each variant, which these lack: leave it out.")
    names, number = np.unique(contigs, return_inverse=True)
    autosomes = np.array([bool(_AUTOSOME.fullmatch(str(name))) for name in names], bool)
    if not autosomes.any():
        shown = ", ".join(map(str, names[:5])) or "there are none"
        raise BadInputError(
            f"autosomes_only leaves nothing: no contig is one of 1 to 22 or chr1 to chr22. There are: {shown}."
        )
    mask: np.ndarray[Any, Any] = autosomes[number]
    return mask
