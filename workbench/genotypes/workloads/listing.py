"""Listing of PLINK's files for `look`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from workbench import formats
from workbench.storage.formats.base import Listed, held_as
from workbench.storage.places import Place

# Some of these can't be read: an error says how to convert them to .bed.
ENDINGS = (".bed", ".bim", ".fam", ".vcf", ".vcf.gz", ".vcf.bgz", ".bcf", ".pgen", ".ped", ".bgen")
_SITES = 1000
"""Number of variants whose unknown share is reported."""


def look(place: Place) -> Listed:
    """Return the facts known without reading more than the first variants."""
    from workbench.genotypes import open_genotypes

    study = open_genotypes(place.path, storage_options=place.options or None)
    first = np.asarray(study[: min(_SITES, study.n_variants)].counts(3).compute())
    contigs = [str(each) for each in dict.fromkeys(np.asarray(study.variants.contig).tolist())]
    facts = [f"Contigs: {', '.join(contigs[:30])}."] if contigs else []
    facts.append(f"Of the first {formats.count(len(first), 'variant')} {100 * (first == 3).mean():.2g} % are unknown.")
    names = [str(each) for each in study.samples[:3]]
    facts.append(f"Samples: {', '.join(names)}{' …' if study.n_samples > len(names) else ''}.")
    n_bytes = study.n_variants * -(-study.n_samples // 4)
    genotypes = held_as("genotypes", study.shape, "uint8", dims=("variant", "sample"), compression="two bits each")
    return (replace(genotypes, n_bytes=n_bytes),), (*facts, *study.remarks)
