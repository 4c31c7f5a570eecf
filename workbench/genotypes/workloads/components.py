"""Principal components of genotypes: the workload, what it needs, its answer and its check."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import dask
import numpy as np
import xarray as xr
from pydantic import Field

from workbench import formats
from workbench.genotypes.workloads import studies
from workbench.labels import as_text, grouped
from workbench.storage.variables import dataset
from workbench.workloads import fields
from workbench.workloads.declaring import workload
from workbench.workloads.estimates import expected_passes, times_gone_through
from workbench.workloads.fields import Words
from workbench.workloads.forms import refuse_more
from workbench.workloads.registry import Resolution
from workbench.workloads.svd import certificate_json
from workbench.workloads.values import BadParameterError, Check, Needs, Surroundings

if TYPE_CHECKING:
    from distributed import Client

    from workbench.genotypes import GenotypePCA

Count = Annotated[
    int,
    Field(ge=1, le=10**9),
    Words("Number to simulate if no path is given.", allowed="a whole number, at least 1", only="!path"),
]
Drift = Annotated[
    float,
    Field(gt=0, lt=1, allow_inf_nan=False),
    Words(
        "F_ST of the simulated populations, their genetic distance. Between continents it is about 0.1.",
        examples=(0.1,),
        only="!path",
        title="F_ST",
    ),
]
Share = Annotated[
    float,
    Field(ge=0, lt=1, allow_inf_nan=False),
    Words("Fraction of the simulated genotypes that are missing.", only="!path", title="Missing rate"),
]
Window = Annotated[
    int,
    Field(ge=2, le=100_000),
    Words(
        "Prune linked variants first, within windows of this many variants. Without pruning, a PCA can show "
        "linkage instead of ancestry.",
        unit="variants",
        examples=(200, 1000),
        title="LD window",
    ),
]
Linkage = Annotated[
    float,
    Field(gt=0, lt=1, allow_inf_nan=False),
    Words(
        "r² above which two variants count as linked. For ld_window.",
        examples=(0.2,),
        only="ld_window",
        title="LD r² threshold",
    ),
]
Kernel = Annotated[
    Literal["auto", "numpy"],
    Words("Products on processors: by numba where the genotypes are many (auto), or by NumPy. GPUs have their own."),
]
Step = Annotated[
    int,
    Field(ge=1, le=100_000),
    Words(
        "Distance from the start of one window to the next. By default windows don't overlap.",
        unit="variants",
        only="ld_window",
        title="LD window step",
    ),
]


_SHOWN = 500
"""Samples of a scatter plot that are stored with a run: a list of runs is sent whole."""
_COMPONENTS_SHOWN = 4
_LABELS = 20

_BLOCK_BYTES = 8 * 2**20
_TILES = 12_000_000
"""Bytes of tiles and narrow factors in floating point that a thread needs in addition to its block, as measured."""
_COMPILED = 200_000_000
"""Bytes that numba needs in a worker that compiles; about 50 MB less if an earlier process did."""

_TELLING = 20.0
"""Factor by which F_ST exceeds Patterson's threshold, so that populations must show."""


def genotype_pca(
    path: studies.GenotypePath | None = None,
    labels: studies.Labels | None = None,
    array: fields.ArrayName | None = None,
    orientation: studies.Orientation | None = None,
    missing: studies.MissingCode | None = None,
    n_variants: Count = 100_000,
    n_samples: Count = 1000,
    n_populations: Count = 12,
    fst: Drift = 0.1,
    missing_rate: Share = 0.01,
    n_components: fields.Components = 10,
    scaler: studies.Scaler = "patterson",
    maf: studies.Rarest = 0.0,
    max_missing: studies.Unknown = 1.0,
    hwe: studies.Equilibrium = 0.0,
    keep_samples: studies.SamplesKept | None = None,
    remove: studies.SamplesRemoved | None = None,
    leave_out: studies.RegionsOut | None = None,
    autosomes_only: studies.Autosomes = False,
    ld_window: Window | None = None,
    ld_r2: Linkage = 0.2,
    ld_step: Step | None = None,
    tol: fields.Accuracy = 1e-3,
    seed: fields.Seed = 0,
    compute: fields.Recompute = False,
    kernel: Kernel = "auto",
    anon: fields.Anonymous = False,
    endpoint_url: fields.Endpoint | None = None,
    token_variable: fields.TokenVariable | None = None,
) -> Any:
    """Compute principal components of samples from their genotypes, read from a file or simulated.

    Reads PLINK .bed, VCF Zarr, packed stores and arrays of counts in blocks of two bits per genotype, and converts only
    a small tile at a time to floating point. A missing genotype counts as the mean of its site; sites without variation
    or without known genotypes are excluded and counted. Passes continue until error bounds meet tol. Without a path,
    populations are simulated by the model of Balding and Nichols (1995). The default scaling is that of Patterson et
    al. (2006); the result states how other scalings differ.
    """
    from workbench.genotypes import pca, simulate

    on_device = dask.config.get("array.backend", "numpy") == "cupy"
    if path is not None:
        genotypes = studies.opened("genotype_pca", locals())
    else:
        genotypes = simulate(
            n_variants,
            n_samples,
            n_populations=n_populations,
            fst=fst,
            missing=missing_rate,
            seed=seed,
            on_device=on_device,
        )
    ld_prune = {"window": ld_window, "r2": ld_r2, "step": ld_step}
    return pca(
        genotypes,
        n_components,
        scaler=scaler,
        maf=maf,
        max_missing=max_missing,
        hwe=hwe,
        leave_out=leave_out,
        ld_prune=None if ld_window is None else ld_prune,
        autosomes_only=autosomes_only,
        tol=tol,
        seed=seed,
        keep=not compute,
        kernel="device" if on_device else kernel,
    )


_SIMULATED = ("n_variants", "n_samples", "n_populations", "fst", "missing_rate")
_OF_WINDOWS = ("ld_r2", "ld_step")


def _resolved(given: Mapping[str, Any], cluster: Surroundings, **values: Any) -> Resolution:
    """Inspect the file or the simulation, and decide whether packed blocks stay in memory between passes."""
    where: dict[str, Any] = {}
    notes: tuple[str, ...]
    if values["path"] is None:
        shape = (values["n_variants"], values["n_samples"])
        n_populations = values["n_populations"]
        refuse_more("genotype_pca", "n_populations", n_populations, shape[1], ", the number of samples")
        for name in studies.OF_FILES:
            if values[name]:
                raise BadParameterError(
                    f"{name} of genotype_pca is for files: what is simulated has no names or contigs.", name
                )
        where, notes = {"path": None}, ("Without a path, populations are simulated.",)
    else:
        where, (shape, remarks, _) = studies.looked_at("genotype_pca", values)
        notes = (
            *_without_effect(given, _SIMULATED, "of simulated populations, without effect on a file"),
            *remarks,
        )
    if shape[1] < 2:
        parameter = "n_samples" if values.get("path") is None else "path"
        count = f"{shape[1]} sample{'s' * (shape[1] != 1)}"
        raise BadParameterError(
            f"{parameter} of genotype_pca: there is {count}, and PCA needs two samples or more.", parameter
        )
    sizes = f": there are {shape[0]} variants of {shape[1]} samples"
    refuse_more("genotype_pca", "n_components", values["n_components"], min(shape), sizes)
    if values["ld_window"] is None:
        notes = (*notes, *_without_effect(given, _OF_WINDOWS, "of ld_window only, without effect while none is given"))
    packed = shape[0] * -(-shape[1] // 4)
    compute = values["compute"] or not cluster.keeps(packed)
    if compute and not values["compute"]:
        notes = (*notes, f"{formats.size(packed)} are more than {cluster.too_much}: read again at each pass.")
    if cluster.on_gpu:
        notes = (*notes, "Packed genotypes are decoded and multiplied by the GPUs of the workers.")
        if values.get("path") is None:
            notes = (*notes, "GPUs draw other genotypes than processors, from the same frequencies.")
    kernel, on_device = values["kernel"], cluster.on_gpu
    if kernel == "auto" and not on_device and _is_large(shape) and "numba" in (cluster.missing or ()):
        kernel, notes = "numpy", (*notes, "numba isn't installed on all workers, so NumPy multiplies, which is slower.")
    return values | where | {"shape": shape, "compute": compute, "kernel": kernel, "on_device": on_device}, notes


def _is_large(shape: Sequence[int]) -> bool:
    """Return whether numba's kernel is used where it can be."""
    from workbench.genotypes.pca import LARGE

    return math.prod(shape) >= LARGE


def _without_effect(given: Mapping[str, Any], parameters: Sequence[str], why: str) -> tuple[str, ...]:
    names = ", ".join(name for name in parameters if name in given)
    return (f"{names}: {why}.",) if names else ()


def _needs(threads_per_worker: int, **resolved: Any) -> Needs:
    """Estimate passes over packed blocks, until the accuracy is reached."""
    from workbench.genotypes import device
    from workbench.genotypes.kernels import ROWS_IN_SINGLE

    (n_variants, n_samples), k = resolved["shape"], resolved["n_components"]
    on_device = resolved["on_device"]
    packed = n_variants * -(-n_samples // 4)
    passes = max(5, expected_passes(resolved["tol"]) // 2)
    width = min(max(16, k + 10), n_samples)
    compiled = _COMPILED if resolved["kernel"] == "auto" and not on_device and _is_large((n_variants, n_samples)) else 0
    block = min(device.LARGEST_BLOCK if on_device else _BLOCK_BYTES, packed)
    drawing = n_samples * 256 * 12 if resolved["path"] is None else 0
    read = (2 * min(_BLOCK_BYTES, packed) + 6 * width * n_samples * 8 + drawing) * threads_per_worker
    held = (2 * block + _TILES + 6 * width * n_samples * 8 + drawing) * threads_per_worker + compiled
    if on_device:
        # The block, and its rows that take part; the tile in both precisions, and narrow factors of all its rows.
        tile = device.tile_bytes(n_variants, n_samples) + device.tile_bytes(n_variants, n_samples, 8)
        narrow = width * (4 * -(-block // -(-n_samples // 4)) * 8 + 6 * n_samples * 8)
        held = (2 * block + tile + tile * width // ROWS_IN_SINGLE + narrow) * threads_per_worker
    stays = 0 if resolved["compute"] else packed
    hold = "read again each time" if resolved["compute"] else "held in memory"
    return Needs.of(
        input_bytes=packed,
        passes=passes,
        held=held,
        kept=stays,
        received=block,
        n_rounds=passes + 1,
        on_device=on_device,
        on_host=read if on_device else 0,
        sentence=f"Goes through {formats.size(packed)} of packed genotypes {times_gone_through(passes)}, {hold}: "
        f"{formats.size(held)} in one worker at a time.",
    )


def _summary(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return singular values, variances, sites kept, and the scores of some samples for a plot."""
    found: GenotypePCA = results["components"]
    return {
        "singular_values": [float(each) for each in found.singular_values],
        "explained_variance": [float(each) for each in found.explained_variance],
        "explained_variance_ratio": [float(each) for each in found.explained_variance_ratio],
        "kept": int(found.kept.sum()),
        "dropped": {reason: int(count) for reason, count in found.dropped.items()},
        **studies.without_genotypes(found),
        "convention": found.convention,
        "certificate": certificate_json(found.certificate),
        "scatter": _scatter(found),
    }


def _arrays(results: Mapping[str, Any]) -> xr.Dataset:
    """Return scores of samples, loadings of the variants that took part, and the components' values, with labels."""
    found: GenotypePCA = results["components"]
    components = {"component": [f"PC{i + 1}" for i in range(len(found.singular_values))]}
    samples = {"sample": found.samples} | {
        name: ("sample", column) for name, column in found.sample_table.items() if name not in _NAMES_OF_ARRAYS
    }
    named = {name: getattr(found.variants, name) for name in ("contig", "position")}
    named["variant"], named["row"] = found.variants.id, np.flatnonzero(found.kept)
    if found.variants.alleles is not None:
        named["other_allele"], named["counted_allele"] = found.variants.alleles.T
    named["copies"], named["known"] = found.counted.T
    variants = {name: ("variant", values) for name, values in named.items() if values is not None}
    attributes = {"scaler": found.scaler, "convention": found.convention, "variants": len(found.kept)}
    arrays = {
        "scores": (("sample", "component"), found.scores, attributes),
        "loadings": (("variant", "component"), found.loadings),
        **{
            name: ("component", getattr(found, name), attributes)
            for name in ("singular_values", "explained_variance", "explained_variance_ratio")
        },
    }
    return dataset(arrays, samples | variants | components)


_NAMES_OF_ARRAYS = {
    *("sample", "scores", "component", "variant", "loadings", "contig", "position", "other_allele", "counted_allele"),
    *("row", "copies", "known", "singular_values", "explained_variance", "explained_variance_ratio"),
}
"""Names of columns that are left out of a table of samples: a dataset has each name once."""


def _scatter(found: GenotypePCA) -> dict[str, Any]:
    """Return scores of samples spread evenly over all, with the label that distinguishes groups."""
    known = np.flatnonzero(np.isfinite(found.scores[:, 0]))
    n_samples = len(found.samples)
    chosen = known[np.unique(np.linspace(0, len(known) - 1, min(_SHOWN, len(known))).round().astype(int))]
    name = _label_column(found.sample_table, n_samples)
    labels = None if name is None else grouped(as_text(found.sample_table[name]), _LABELS)
    scores = found.scores[chosen, :_COMPONENTS_SHOWN]
    return {
        "n_samples": n_samples,
        "samples": [str(each) for each in np.asarray(found.samples)[chosen]],
        "scores": [[float(f"{each:.4g}") for each in column] for column in scores.T],
        "label": name,
        "labels": None if labels is None else labels[chosen].tolist(),
    }


def _label_column(table: Mapping[str, Any], n_samples: int) -> str | None:
    """Return the column that distinguishes samples: one called population if there is one, else one of few values."""
    distinct = {name: len(np.unique(as_text(column))) for name, column in table.items()}
    useful = [name for name, count in distinct.items() if 1 < count < max(2, min(n_samples, 200))]
    named = [name for name in useful if "pop" in name.lower()]
    return next(iter([*named, *(name for name in useful if name not in ("sex", "father", "mother")), *useful]), None)


def _check(results: Mapping[str, Any], client: Client | None, **resolved: Any) -> Check:
    """Check the certificate, one more pass, and the separation of simulated populations."""
    found: GenotypePCA = results["components"]
    if found.certificate.status == "not reached":
        return Check(passed=False, what=found.certificate.sentence)
    scores = np.asarray(found.scores, dtype="float64")[~np.isin(found.samples, found.unknown_samples)]
    lengths = np.linalg.norm(scores, axis=0)
    gram = (scores.T @ scores) / np.outer(lengths, lengths)
    skew = float(np.abs(gram - np.eye(len(gram))).max())
    if not skew <= 1e-6:
        return Check(passed=False, what=f"The components are not orthogonal to each other: off by {skew:.1e}.")
    values, off_by = found.anew()
    off = np.abs(values - found.singular_values) / (found.singular_values[0] or 1.0)
    products = float(np.finfo(found.certificate.dtype.partition(",")[0]).eps)
    # The pass adds numbers of all variants: rounding grows with the root of their number (Higham, Mary, SISC 41, 2019).
    summing = 4 * float(np.finfo(float).eps) * math.sqrt(max(1, len(found.kept)))
    expected = 1.5 * found.certificate.residuals + 16 * products + summing
    detail = (
        f"AᵀA v and s² v differ by {off_by.max():.1e} of the largest value's square ({expected.max():.1e} expected), "
        f"singular values by {off.max():.1e} of the largest."
    )
    if not ((off <= found.certificate.of_largest + 1e-12).all() and (off_by <= expected).all()):
        message = "Read once more, the genotypes don't agree with the components as closely as their error bounds say."
        return Check(passed=False, what=message, detail=detail)
    message = "Read once more, the genotypes agree with the components as closely as their error bounds say."
    agreed = Check(passed=True, what=message, detail=detail)
    return agreed if resolved["path"] is not None else _populations_are_separate(resolved, found, agreed)


def _populations_are_separate(resolved: Mapping[str, Any], found: GenotypePCA, agreed: Check) -> Check:
    # Patterson, Price, Reich (2006): structure shows from F_ST of 1 / sqrt(variants × samples) on.
    threshold = 1 / math.sqrt(max(1, int(found.kept.sum())) * len(found.samples))
    n_populations = resolved["n_populations"]
    if n_populations < 2 or resolved["fst"] < _TELLING * threshold or len(found.samples) < 3 * n_populations:
        message = f"{agreed.what} Populations are too near to each other, or too few, to be separated."
        return agreed.model_copy(update={"what": message})
    labels, first = np.asarray(found.sample_table["population"]), np.asarray(found.scores[:, 0])
    between = sum(
        (labels == name).sum() * (first[labels == name].mean() - first.mean()) ** 2 for name in np.unique(labels)
    )
    share = float(between / ((first - first.mean()) ** 2).sum())
    passed = share > 0.5
    expected = "." if passed else ", more than half of which was expected of an F_ST so far above the threshold."
    message = f"{agreed.what} Populations make up {100 * share:.3g} % of the first component's variance{expected}"
    return agreed.model_copy(update={"passed": bool(passed), "what": message})


def _code(on_gpu: bool, **resolved: Any) -> str:
    """Return the notebook cell of a PCA of genotypes in a file or of simulated ones."""
    names = ("scaler", "maf", "max_missing", "hwe", "leave_out", "autosomes_only", "tol", "seed")
    options = {name: resolved[name] for name in names}
    options |= {"n_components": resolved["n_components"], "kernel": "device" if on_gpu else resolved["kernel"]}
    if resolved["ld_window"] is not None:
        options["ld_prune"] = {name: resolved[f"ld_{name}"] for name in ("window", "r2", "step")}
    if resolved["path"] is not None:
        return studies.code("genotype_pca", resolved, "pca", **options)
    options = {name: each or None for name, each in options.items()}
    shape = [str(resolved[name]) for name in ("n_variants", "n_samples")]
    populations = {name: resolved[name] for name in ("n_populations", "fst", "seed")}
    populations |= {"missing": resolved["missing_rate"], "on_device": on_gpu or None}
    simulating = studies.calling("genotypes", "simulate", *shape, **populations)
    calling = studies.calling("found", "pca", "genotypes", **options)
    return f"from workbench.genotypes import pca, simulate\n\n{simulating}{calling}found\n"


COMPONENTS = studies.template(
    workload(title="Principal components of genotypes", prepare=_resolved, needs=_needs, check=_check, code=_code)(
        genotype_pca
    ),
    "components",
    by_processors=False,
    summary_of=_summary,
    arrays_of=_arrays,
)
