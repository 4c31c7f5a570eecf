"""What is known of genotype_pca and pack_genotypes beside their code: parameters, needs, answers, checks."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workbench import formats
from workbench.errors import BadInputError
from workbench.storage import places
from workbench.workloads.estimates import expected_passes, times_gone_through
from workbench.workloads.opening import options_of
from workbench.workloads.registry import Resolution
from workbench.workloads.values import BadParameterError, Check, Needs, Surroundings

if TYPE_CHECKING:
    from distributed import Client

    from workbench.genotypes import GenotypePCA, Genotypes
    from workbench.linalg import Certificate

SHOWN = 500
"""Samples of a scatter plot that are kept with a run: a list of runs is sent whole."""
_COMPONENTS_SHOWN = 4
_LABELS = 20

_BLOCK_BYTES = 8 * 2**20
_TILES = 12_000_000
"""Bytes of tiles and narrow factors in floating point that a thread has beside its block, as measured."""
_STORES = 30_000_000
"""Bytes of what reads and writes stores, which a worker loads once."""
_COMPILED = 215_000_000
"""Bytes that numba takes in a worker that has to compile; about 80 MB less where an earlier process has."""

_TELLING = 20.0
"""Times F_ST is above Patterson's threshold, so that populations must show."""


def certificate_json(found: Certificate) -> dict[str, Any]:
    """What a certificate says, as JSON."""
    return {
        "sentence": found.sentence,
        "status": found.status,
        # JSON has no infinity: None for what can't be told from zero.
        "bound": [float(each) if np.isfinite(each) else None for each in found.bound],
        "of_largest": [float(each) for each in found.of_largest],
        "tol": float(found.tol),
        "limit": found.limit,
        "angle": float(found.angle),
        "groups": [list(group) for group in found.groups],
        "passes": int(found.passes),
        "bytes_read": int(found.bytes_read),
        "dtype": found.dtype,
        "seed": found.seed,
    }


# --- parameters -------------------------------------------------------------------------------------------------------


_SIMULATED = ("n_variants", "n_samples", "n_populations", "fst", "missing_rate")


def resolved_pca(values: dict[str, Any], given: Mapping[str, Any], around: Surroundings) -> Resolution:
    """What is in the file, or is simulated, and whether its packed blocks are held between the passes."""
    where: dict[str, Any] = {}
    notes: tuple[str, ...]
    if values["path"] is None:
        shape = (values["n_variants"], values["n_samples"])
        if values["n_populations"] > shape[1]:
            raise BadParameterError(
                f"n_populations of genotype_pca is {values['n_populations']}. Give a whole number from 1 to "
                f"{shape[1]}, the number of samples.",
                "n_populations",
            )
        if values["autosomes_only"]:
            raise BadParameterError(
                "autosomes_only of genotype_pca is for files: simulated variants have no contigs.", "autosomes_only"
            )
        where, notes = {"path": None, "options": None}, ("Without a path, populations are simulated.",)
    else:
        where, (shape, _, remarks) = _found("genotype_pca", values)
        notes = (*_needless(given), *remarks)
        values = {name: value for name, value in values.items() if name not in _SIMULATED}
    if not min(shape):
        raise BadParameterError(
            f"path of genotype_pca: {where['path']} has {shape[0]} variants of {shape[1]} samples, expected some.",
            "path",
        )
    if values["n_components"] > min(shape):
        raise BadParameterError(
            f"n_components of genotype_pca is {values['n_components']}. Give a whole number from 1 to {min(shape)}: "
            f"there are {shape[0]} variants of {shape[1]} samples.",
            "n_components",
        )
    packed = shape[0] * -(-shape[1] // 4)
    keep = around.keeps(packed)
    if not keep:
        notes = (*notes, f"{formats.size(packed)} are more than {around.too_much}: read again at each pass.")
    if around.on_gpu:
        notes = (*notes, "Packed genotypes are decoded and multiplied by the GPUs of the workers.")
        if values.get("path") is None:
            notes = (*notes, "GPUs draw other genotypes than processors, from the same frequencies.")
    return values | where | {"shape": shape, "keep": keep, "kernel": "device" if around.on_gpu else "auto"}, notes


def resolved_packing(values: dict[str, Any], given: Mapping[str, Any], around: Surroundings) -> Resolution:
    """What is in the file, and an absolute path to write to."""
    where, (shape, n_bytes, remarks) = _found("pack_genotypes", values)
    to = places.full(values["to"]).path
    asked = {"anon": False, "endpoint_url": values["to_endpoint_url"], "names": ("anon", "to_endpoint_url")}
    to_options = options_of("pack_genotypes", to, **asked)
    if to == where["path"]:
        raise BadParameterError(f"to of pack_genotypes is {to}, what is read from. Give another path.", "to")
    return values | where | {"to": to, "to_options": to_options, "shape": shape, "bytes_before": n_bytes}, remarks


class _There(NamedTuple):
    """Variants and samples, bytes, and what the reader remarked."""

    shape: tuple[int, int]
    n_bytes: int
    remarks: tuple[str, ...]


def _found(workload: str, values: Mapping[str, Any]) -> tuple[dict[str, Any], _There]:
    """Absolute paths, and what is there."""
    path = places.full(values["path"]).path
    labels = None if values["labels"] is None else places.full(values["labels"]).path
    options = options_of(workload, path, anon=values["anon"], endpoint_url=values["endpoint_url"])
    told = (values["array"], values["orientation"], values["missing"], tuple(options.items()))
    autosomes = values.get("autosomes_only", False)
    for parameter, table in (("path", None), ("labels", labels)):
        try:
            there = _opened(path, table, told, autosomes, _stamp(path), _stamp(table))
        except BadInputError as err:
            raise BadParameterError(f"{parameter} of {workload}: {err}", parameter) from err
    return {"path": path, "labels": labels, "options": options}, there


@lru_cache(maxsize=16)
def _opened(path: str, labels: str | None, told: tuple[Any, ...], autosomes: bool, *_: Any) -> _There:
    """What is there. A form asks for it at each key, and a .bim file may have millions of lines."""
    from workbench.genotypes import open_genotypes
    from workbench.genotypes.contigs import on_autosomes

    names = ("array", "orientation", "missing", "storage_options")
    given = dict(zip(names, told, strict=True)) | {"storage_options": dict(told[-1])}
    found = open_genotypes(path, labels=labels, **given)
    if autosomes:
        on_autosomes(found)
    return _There(found.shape, size_of_genotypes(found.source or path, given["storage_options"]), found.remarks)


def _stamp(path: str | None) -> Any:
    """What changes when somebody writes to a file of this machine; something new each time where that can't be told."""
    if path is None:
        return None
    stem = path.removesuffix(".bed").removesuffix(".bim").removesuffix(".fam")
    there = [Path(name) for name in (path, *(f"{stem}{suffix}" for suffix in (".bed", ".bim", ".fam")))]
    try:
        stamps = tuple((each.stat().st_mtime_ns, each.stat().st_size) for each in there if each.is_file())
    except OSError:  # a folder that may not be looked into, or a name too long for a file: who opens it says so
        return time.monotonic()
    return stamps or time.monotonic()


def size_of_genotypes(path: str, options: Mapping[str, Any] | None = None) -> int:
    """Bytes of a file, or of all files of a folder; of PLINK's three files together."""
    if path.endswith(".bed"):
        stem = places.full(path.removesuffix(".bed"), options)
        return sum((stem + suffix).size() for suffix in (".bed", ".bim", ".fam"))
    return places.full(path, options).size()


def _needless(given: Mapping[str, Any]) -> tuple[str, ...]:
    names = ", ".join(name for name in _SIMULATED if name in given)
    return (f"{names}: of simulated populations only, without effect on a file.",) if names else ()


# --- needs ------------------------------------------------------------------------------------------------------------


def pca_needs(resolved: Mapping[str, Any], threads_per_worker: int) -> Needs:
    """Passes over packed blocks, until the accuracy is reached."""
    from workbench.genotypes import device, fast
    from workbench.genotypes.kernels import ROWS_IN_SINGLE
    from workbench.genotypes.pca import LARGE

    (n_variants, n_samples), k = resolved["shape"], resolved["n_components"]
    on_device = resolved["kernel"] == "device"
    packed = n_variants * -(-n_samples // 4)
    passes = max(5, expected_passes(resolved["tol"]) // 2)
    width = min(max(16, k + 10), n_samples)
    compiled = _COMPILED if n_variants * n_samples >= LARGE and fast.installed() else 0
    block = min(device.LARGEST_BLOCK if on_device else _BLOCK_BYTES, packed)
    made = n_samples * 256 * 12 if resolved["path"] is None else 0
    read = (2 * min(_BLOCK_BYTES, packed) + 6 * width * n_samples * 8 + made) * threads_per_worker
    held = (2 * block + _TILES + 6 * width * n_samples * 8 + made) * threads_per_worker + compiled
    if on_device:
        # The block, and it without what is left out; the tile in both precisions, and narrow factors of all its rows.
        tile = device.tile_bytes(n_variants, n_samples) + device.tile_bytes(n_variants, n_samples, 8)
        narrow = width * (4 * -(-block // -(-n_samples // 4)) * 8 + 6 * n_samples * 8)
        held = (2 * block + tile + tile * width // ROWS_IN_SINGLE + narrow) * threads_per_worker
    stays = packed if resolved["keep"] else 0
    n_blocks = max(16, -(-packed // (device.LARGEST_BLOCK if on_device else _BLOCK_BYTES)))
    times = 1 if resolved["keep"] else passes
    hold = "held in memory" if resolved["keep"] else "read again each time"
    return Needs(
        input_bytes=packed,
        output_bytes=8 * k * (n_samples + 2),
        bytes_processed=passes * packed,
        passes=passes,
        held_per_worker=held,
        held_total=held + stays,
        kept=stays,
        received=block,
        n_tasks=(passes + 2 * times) * n_blocks,
        n_rounds=passes + 1,
        n_blocks=n_blocks,
        work={"thin_f32": 4.0 * passes * n_variants * n_samples * width, "read": float(times * packed)}
        | ({"integers": float(times * n_variants * n_samples)} if resolved["path"] is None and not on_device else {}),
        moved=2 * passes * width * n_samples * 8,
        on_device=on_device,
        on_host=read if on_device else 0,
        sentence=f"Goes through {formats.size(packed)} of packed genotypes {times_gone_through(passes)}, {hold}: "
        f"{formats.size(held)} in the hands of one worker at a time.",
    )


def packing_needs(resolved: Mapping[str, Any], threads_per_worker: int) -> Needs:
    """One pass, in which a block is read, packed and written."""
    from workbench.genotypes.rows import block_rows

    n_variants, n_samples = resolved["shape"]
    packed = n_variants * -(-n_samples // 4)
    rows = block_rows(n_variants, n_samples)
    # The check has a block of the source and one of the store in a byte for each genotype, and where they differ.
    held = 13 * rows * -(-n_samples // 4) * threads_per_worker + _STORES
    n_blocks = -(-n_variants // rows)
    return Needs(
        input_bytes=packed,
        output_bytes=0,
        bytes_processed=packed,
        passes=1,
        held_per_worker=held,
        held_total=held,
        kept=0,
        n_tasks=n_blocks,
        n_blocks=n_blocks,
        work={"read": 4.0 * packed, "write": 4.0 * packed},
        on_device=False,
        sentence=f"Writes about {formats.size(packed)} of packed genotypes block by block: "
        f"{formats.size(held)} in a worker at a time is enough.",
    )


# --- answers ----------------------------------------------------------------------------------------------------------


def pca_summary(results: Mapping[str, Any]) -> dict[str, Any]:
    """Singular values, variances, what was kept, and the scores of some samples for a plot."""
    found: GenotypePCA = results["components"]
    return {
        "singular_values": [float(each) for each in found.singular_values],
        "explained_variance": [float(each) for each in found.explained_variance],
        "explained_variance_ratio": [float(each) for each in found.explained_variance_ratio],
        "kept": int(found.kept.sum()),
        "dropped": {reason: int(count) for reason, count in found.dropped.items()},
        "convention": found.convention,
        "certificate": certificate_json(found.certificate),
        "scatter": _scatter(found),
    }


def _scatter(found: GenotypePCA) -> dict[str, Any]:
    """Scores of samples spread evenly over all, with the label that tells groups apart."""
    from workbench.genotypes.values import as_text

    n_samples = len(found.samples)
    chosen = np.unique(np.linspace(0, n_samples - 1, min(SHOWN, n_samples)).round().astype(int))
    name = label_column(found.sample_table, n_samples)
    labels = None if name is None else as_text(found.sample_table[name])
    if labels is not None:
        names, counts = np.unique(labels, return_counts=True)
        largest = names[np.argsort(-counts, kind="stable")][: _LABELS - 1]
        labels = labels if len(names) <= _LABELS else np.where(np.isin(labels, largest), labels, "other")
    scores = found.scores[chosen, :_COMPONENTS_SHOWN]
    return {
        "n_samples": n_samples,
        "samples": [str(each) for each in np.asarray(found.samples)[chosen]],
        "scores": [[float(f"{each:.4g}") for each in column] for column in scores.T],
        "label": name,
        "labels": None if labels is None else labels[chosen].tolist(),
    }


def label_column(table: Mapping[str, Any], n_samples: int) -> str | None:
    """The column by which samples are told apart: one called population if there is one, else one of few values."""
    from workbench.genotypes.values import as_text

    distinct = {name: len(np.unique(as_text(column))) for name, column in table.items()}
    useful = [name for name, count in distinct.items() if 1 < count < max(2, min(n_samples, 200))]
    named = [name for name in useful if "pop" in name.lower()]
    return next(iter([*named, *(name for name in useful if name not in ("sex", "father", "mother")), *useful]), None)


def packing_summary(results: Mapping[str, Any]) -> dict[str, Any]:
    """Where the store is, and how large."""
    packed: Genotypes = results["packed"]
    assert packed.source is not None
    before, after = results["bytes_before"], results["bytes_after"]
    return {
        "store": packed.source,
        "variants": packed.n_variants,
        "samples": packed.n_samples,
        "bytes_before": before,
        "bytes_after": after,
        "ratio": before / after,
    }


# --- checks -----------------------------------------------------------------------------------------------------------


def components_are_right(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    """The certificate's word, what one more pass says of the vectors, and populations apart where simulated."""
    found: GenotypePCA = results["components"]
    if found.certificate.status == "not reached":
        return Check(passed=False, what=found.certificate.sentence)
    scores = np.asarray(found.scores, dtype="float64")
    lengths = np.linalg.norm(scores, axis=0)
    gram = (scores.T @ scores) / np.outer(lengths, lengths)
    skew = float(np.abs(gram - np.eye(len(gram))).max())
    if not skew <= 1e-6:
        return Check(passed=False, what=f"The components are not orthogonal to each other: off by {skew:.1e}.")
    values, apart = found.anew()
    off = np.abs(values - found.singular_values) / (found.singular_values[0] or 1.0)
    products = float(np.finfo(found.certificate.dtype.partition(",")[0]).eps)
    # The pass adds up numbers of all variants: rounding grows with the root of how many (Higham, Mary, SISC 41, 2019).
    summing = 4 * float(np.finfo(float).eps) * math.sqrt(max(1, len(found.kept)))
    expected = 1.5 * found.certificate.residuals + 16 * products + summing
    if not ((off <= found.certificate.of_largest + 1e-12).all() and (apart <= expected).all()):
        return Check(
            passed=False,
            what=f"One more pass gives singular values that differ by {off.max():.1e} of the largest, and AᵀA v and "
            f"s² v that differ by {apart.max():.1e} of its square ({expected.max():.1e} expected).",
        )
    told = (
        f"{found.certificate.sentence} One more pass finds AᵀA v and s² v to differ by {apart.max():.1e} of the "
        f"largest value's square, as expected ({expected.max():.1e})."
    )
    if resolved["path"] is not None:
        return Check(passed=True, what=told)
    return _populations_are_apart(resolved, found, told)


def _populations_are_apart(resolved: Mapping[str, Any], found: GenotypePCA, told: str) -> Check:
    # Patterson, Price, Reich (2006): structure shows from F_ST of 1 / sqrt(variants × samples) on.
    threshold = 1 / math.sqrt(max(1, int(found.kept.sum())) * len(found.samples))
    n_populations = resolved["n_populations"]
    if n_populations < 2 or resolved["fst"] < _TELLING * threshold or len(found.samples) < 3 * n_populations:
        return Check(passed=True, what=f"{told} Populations are too near to each other, or too few, to be told apart.")
    labels, first = np.asarray(found.sample_table["population"]), np.asarray(found.scores[:, 0])
    between = sum(
        (labels == name).sum() * (first[labels == name].mean() - first.mean()) ** 2 for name in np.unique(labels)
    )
    share = float(between / ((first - first.mean()) ** 2).sum())
    passed = share > 0.5
    return Check(
        passed=bool(passed),
        what=f"{told} Populations make up {100 * share:.3g} % of the first component's variance"
        + ("." if passed else ", more than half of which was expected of an F_ST so far above the threshold."),
    )


def packed_is_the_same(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    """Sampled blocks of the store, read again, against the source."""
    from workbench.genotypes import open_genotypes
    from workbench.workloads.checks import computed

    told = {name: resolved[name] for name in ("array", "orientation", "missing")}
    source = open_genotypes(resolved["path"], **told, storage_options=resolved["options"])
    packed = open_genotypes(resolved["to"], storage_options=resolved["to_options"])
    if source.shape != packed.shape:
        return Check(
            passed=False, what=f"The store has {packed.shape} variants and samples, the source {source.shape}."
        )
    if list(source.samples) != list(packed.samples):
        return Check(passed=False, what="The names of the samples in the store are not those of the source.")
    ends = np.cumsum((0, *packed.packed.chunks[0]))
    chosen = sorted({round(each) for each in np.linspace(0, len(ends) - 2, 4)}) if len(ends) > 1 else []
    rows = [slice(int(ends[i]), int(ends[i + 1])) for i in chosen]
    differences = [(source[part].counts() != packed[part].counts()).sum() for part in rows]
    wrong = sum(int(each) for each in computed(client, *differences))
    of = f"{len(rows)} of {len(ends) - 1} blocks"
    if wrong:
        return Check(passed=False, what=f"{wrong} genotypes in {of} of the store differ from the source.")
    return Check(passed=True, what=f"{of} of the store, read again, hold the genotypes of the source.")
