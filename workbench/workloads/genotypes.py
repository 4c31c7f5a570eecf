"""Genotypes: their principal components, and packing them into two bits each."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from workbench.workloads.fields import (
    Accuracy,
    ArrayName,
    Codec,
    Components,
    GenotypePath,
    Labels,
    MissingCode,
    NewPath,
    Orientation,
    Resolved,
    Scaler,
    Seed,
    Words,
)

Count = Annotated[
    int,
    Field(ge=1, le=10**9),
    Words(
        allowed="a whole number, at least 1", description="How many are simulated where no path is given.", only="!path"
    ),
]
Drift = Annotated[
    float,
    Field(gt=0, lt=1, allow_inf_nan=False),
    Words(
        allowed="a number between 0 and 1, such as 0.1",
        description="F_ST of simulated populations: how far they have drifted apart. 0.1 is that between continents.",
        only="!path",
    ),
]
Share = Annotated[
    float,
    Field(ge=0, lt=1, allow_inf_nan=False),
    Words(
        allowed="a number from 0 to below 1",
        description="Share of simulated genotypes that are not known.",
        only="!path",
    ),
]
Window = Annotated[
    int,
    Field(ge=2, le=100_000),
    Words(
        allowed="a whole number from 2 to 100000",
        description="Thin out linked variants first, comparing those in windows of so many: else a PCA shows linkage.",
        unit="variants",
        examples=(200, 1000),
    ),
]
Linkage = Annotated[
    float,
    Field(gt=0, lt=1, allow_inf_nan=False),
    Words(
        allowed="a number between 0 and 1, such as 0.2",
        description="r² above which two variants are linked. Of ld_window only.",
        only="ld_window",
    ),
]
Autosomes = Annotated[
    bool,
    Words(
        allowed="true or false",
        description="Leave out X, Y, mitochondria and what isn't placed; PLINK leaves out X, Y and mitochondria, too.",
    ),
]
Overwrite = Annotated[
    bool, Words(allowed="true or false", description="Replace what is there, rather than going on with it.")
]


def genotype_pca(
    path: GenotypePath | None = None,
    labels: Labels | None = None,
    array: ArrayName | None = None,
    orientation: Orientation | None = None,
    missing: MissingCode | None = None,
    n_variants: Count = 100_000,
    n_samples: Count = 1000,
    n_populations: Count = 12,
    fst: Drift = 0.1,
    missing_rate: Share = 0.01,
    n_components: Components = 10,
    scaler: Scaler = "patterson",
    autosomes_only: Autosomes = False,
    ld_window: Window | None = None,
    ld_r2: Linkage = 0.2,
    tol: Accuracy = 1e-3,
    seed: Seed = 0,
    keep: Annotated[bool, Resolved()] = True,
    kernel: Annotated[Literal["auto", "device"], Resolved()] = "auto",
    options: Annotated[dict[str, Any] | None, Resolved()] = None,
) -> Any:
    """Principal components of samples from their genotypes, in a file of yours or simulated.

    Reads PLINK .bed, VCF Zarr, packed stores and arrays of counts in blocks of two bits each, and never makes floating
    point of more than a tile. A missing genotype counts as its site's mean; sites without variation, or where nothing
    is known, are left out and counted. Passes are made until bounds on the error meet tol. Without a path, Balding and
    Nichols' (1995) populations are simulated. The scaling of Patterson et al. (2006) and how that of others differs is
    told with the result.
    """
    from workbench.genotypes import open_genotypes, pca, simulate

    if path is None:
        genotypes = simulate(
            n_variants,
            n_samples,
            n_populations=n_populations,
            fst=fst,
            missing=missing_rate,
            seed=seed,
            on_device=kernel == "device",
        )
    else:
        genotypes = open_genotypes(
            path, array=array, orientation=orientation, missing=missing, labels=labels, storage_options=options
        )
    ld_prune = None if ld_window is None else (ld_window, ld_r2)
    return pca(
        genotypes,
        n_components,
        scaler=scaler,
        ld_prune=ld_prune,
        autosomes_only=autosomes_only,
        tol=tol,
        seed=seed,
        keep=keep,
        kernel=kernel,
    )


def pack_genotypes(
    path: GenotypePath,
    to: NewPath,
    codec: Codec = "2-bit",
    array: ArrayName | None = None,
    orientation: Orientation | None = None,
    missing: MissingCode | None = None,
    labels: Labels | None = None,
    overwrite: Overwrite = False,
    bytes_before: Annotated[int, Resolved()] = 0,
    options: Annotated[dict[str, Any] | None, Resolved()] = None,
    to_options: Annotated[dict[str, Any] | None, Resolved()] = None,
) -> tuple[Any, int, int]:
    """Write genotypes as a Zarr store of two bits each, or compressed by Blosc.

    Each block is read, packed and written by one task. Stopped or killed, it goes on where it was when it is run again.
    Two bits are what is read quickest; Blosc (lz4 after a bit shuffle) keeps a byte for each genotype, which other
    programs can read.
    """
    from workbench.genotypes import pack_to_zarr
    from workbench.storage.places import full

    packed = pack_to_zarr(
        path,
        to,
        codec=codec,
        overwrite=overwrite,
        array=array,
        orientation=orientation,
        missing=missing,
        labels=labels,
        storage_options=options,
        to_storage_options=to_options,
    )
    return packed, bytes_before, full(to, to_options).size()
