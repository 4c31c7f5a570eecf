"""Files of genotypes for all workloads on them: samples and variants to use, and facts before a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from workbench import formats
from workbench.errors import BadInputError
from workbench.formats import literal
from workbench.storage import places
from workbench.storage.servers import options_of
from workbench.workloads.fields import Text, Words
from workbench.workloads.registry import Template
from workbench.workloads.values import BadParameterError

if TYPE_CHECKING:
    from workbench.genotypes import GenotypePCA, Genotypes, Projection

GenotypePath = Annotated[
    Text,
    Words(
        "Genotypes: PLINK .bed (with .bim and .fam), VCF Zarr, a packed store, or an array of counts.",
        allowed="the path or URL of a PLINK .bed file, VCF Zarr, a packed store, or counts in Zarr, .npy or HDF5",
        examples=("study.bed", "study.vcz", "s3://bucket/study.zarr"),
        path=True,
    ),
]

Labels = Annotated[
    Text,
    Words(
        "Table with more columns about the samples, such as their population, which colors them in plots.",
        allowed="the path of a text table with a header and a column of sample names",
        examples=("populations.tsv",),
        only="path",
        path=True,
    ),
]

Orientation = Annotated[
    Literal["variants×samples", "samples×variants"],
    Words("Orientation of an array of counts, if the file doesn't state it.", only="path"),
]

MissingCode = Annotated[
    float,
    Words(
        "Value that marks missing genotypes in an array of counts. Common values are recognized.",
        only="path",
        examples=(-1,),
    ),
]

Scaler = Annotated[
    Literal["patterson", "hail", "plink", "standard", "center"],
    Words("Convention for centering and scaling. Eigenvalues differ by known factors, which the result states."),
]
Rarest = Annotated[
    float,
    Field(ge=0, le=0.5, allow_inf_nan=False),
    Words("Exclude sites whose minor allele is less frequent.", examples=(0.01, 0.05), title="Minimum frequency"),
]
Unknown = Annotated[
    float,
    Field(ge=0, le=1, allow_inf_nan=False),
    Words(
        "Exclude sites that are missing in a larger fraction of the samples.",
        examples=(0.02, 0.05),
        title="Maximum missing",
    ),
]
Equilibrium = Annotated[
    float,
    Field(ge=0, lt=1, allow_inf_nan=False),
    Words(
        "Exclude sites whose exact test of Hardy-Weinberg equilibrium has a smaller p-value.",
        examples=(1e-6, 1e-10),
        title="Minimum HWE p",
    ),
]
Autosomes = Annotated[
    bool, Words("Exclude X, Y, mitochondria and unplaced contigs. PLINK also excludes X, Y and mitochondria.")
]


def _names(what: str, example: str) -> Words:
    each = "a name or a family and a name on each line"
    return Words(
        f"File of the samples to {what}, {each}.",
        allowed=f"the path of a text file with {each}, or in Python a list of names",
        examples=(example,),
        only="path",
        path=True,
    )


_Names = Text | tuple[Text, ...]
SamplesKept = Annotated[_Names, _names("keep", "unrelated.txt")]
SamplesRemoved = Annotated[_Names, _names("leave out", "related.txt")]
RegionsOut = Annotated[
    Text,
    Words(
        "Regions to exclude, such as those of long-range linkage, or a BED file with them.",
        allowed="regions such as 6:25000000-35000000, separated by commas, or the path of a BED file",
        examples=("6:25000000-35000000", "long-range.bed"),
        only="path",
        path=True,
        title="Excluded regions",
    ),
]

_ON_X = "Some variants are on X: plink2 refuses to project with loadings of those. Choose autosomes_only for that."
_NOT_DIPLOID = "{} on X, Y or mitochondria, of which not everyone has two copies: {}."
_EFFECTS = {
    "genotype_qc": "they have no Hardy-Weinberg p-value, and their frequencies count the one copy of males twice",
    "genotype_pca": "hwe doesn't exclude them",
    "genotype_relatedness": "they are left out of kinship, as in PLINK",
}
OF_FILES = ("keep_samples", "remove", "leave_out", "autosomes_only")
"""Choices that don't apply to simulated genotypes, which have neither known names nor contigs."""


_SHOWN = 500
"""Limit of names in a summary: a list of runs is sent whole."""


class Study(NamedTuple):
    """Facts about a file: variants, chosen samples, and remarks."""

    shape: tuple[int, int]
    remarks: tuple[str, ...]
    reader: tuple[str, ...]
    """Modules that read it."""


def looked_at(workload: str, values: Mapping[str, Any], at_least: int = 1) -> tuple[dict[str, Any], Study]:
    """Return absolute paths, and the variants and samples there. BadParameterError names what can't be used."""
    from workbench.genotypes.choosing import are_regions

    path = places.full(values["path"]).path
    options = options_of(workload, path, values)
    where: dict[str, Any] = {"path": path}
    for name in ("labels", "keep_samples", "remove"):
        if name in values:
            where[name] = places.full(values[name]).path if isinstance(values[name], str) else values[name]
    if "leave_out" in values:
        text = values["leave_out"]
        where["leave_out"] = text if not text or are_regions(text) else places.full(text).path
    layout = {name: values[name] for name in ("array", "orientation", "missing")}
    choices = {name: where.get(name, values.get(name)) for name in ("labels", *OF_FILES)}
    # A note depends on whether there is a limit. For each limit that is typed, the file would be opened again.
    choices["hwe"] = bool(values.get("hwe"))
    stamps = [_stamp(place) for place in (path, *choices.values()) if isinstance(place, str)]
    study = _opened(workload, path, *(tuple(each.items()) for each in (layout, options, choices)), *stamps)
    if min(study.shape) < at_least:
        raise BadParameterError(
            f"path of {workload}: {path} has {study.shape[0]} variants of {study.shape[1]} samples, expected some.",
            "path",
        )
    return where | {"reader": study.reader}, study


def imports_of(resolved: Mapping[str, Any]) -> dict[str, str]:
    """Return the modules that tasks import to read a file of genotypes, as `Template.imports`."""
    if resolved["path"] is None:
        return {}
    return dict.fromkeys((*resolved["reader"], *places.modules_of(resolved["path"])), "")


def opened(workload: str, given: Mapping[str, Any]) -> Genotypes:
    """Open the chosen samples of the file that a workload's parameters name."""
    from workbench.genotypes import open_genotypes

    names = ("array", "orientation", "missing", "labels", "keep_samples", "remove")
    options = {name: given[name] for name in names if name in given}
    return open_genotypes(given["path"], **options, storage_options=options_of(workload, given["path"], given))


def opened_for_check(workload: str, resolved: Mapping[str, Any]) -> Genotypes:
    """Open the chosen samples and variants again, without labels, which a check doesn't need."""
    from workbench.genotypes import choosing

    genotypes = opened(workload, {name: value for name, value in resolved.items() if name != "labels"})
    barred = {name: resolved[name] for name in ("leave_out", "autosomes_only") if name in resolved}
    return choosing.of_chosen_variants(genotypes, **barred) if barred else genotypes


def code(
    workload: str, resolved: Mapping[str, Any], function: str, *before: str, names: Sequence[str] = (), **options: Any
) -> str:
    """Return the notebook cell that opens genotypes and calls a function of `workbench.genotypes` on them.

    `before` is the code of the arguments before genotypes. The options are those `names` of `resolved`, and others;
    options that are None, 0 or False are left out.
    """
    options = {name: resolved[name] for name in names} | options
    of_file = ("array", "orientation", "missing", "labels", "keep_samples", "remove")
    opening = {name: resolved.get(name) for name in of_file}
    opening["storage_options"] = options_of(workload, resolved["path"], resolved) or None
    opened = calling("genotypes", "open_genotypes", literal(resolved["path"]), **opening)
    call = calling("found", function, *before, "genotypes", **{name: each or None for name, each in options.items()})
    return f"from workbench.genotypes import {function}, open_genotypes\n\n{opened}{call}found\n"


def calling(result: str, function: str, *arguments: str, **options: Any) -> str:
    """Return the code that calls a function, without the options that are None."""
    lines = (f"    {name}={literal(value)},\n" for name, value in options.items() if value is not None)
    return f"{result} = {function}(\n{''.join(f'    {each},{chr(10)}' for each in arguments)}{''.join(lines)})\n"


def template(function: Callable[..., Any], *answers: str, **known: Any) -> Template:
    """Return a workload that computes its answers itself from genotype files, on processors by default."""
    settings: dict[str, Any] = {"by_processors": True, "imports": imports_of, **known}
    return Template(function, returns=answers, small=(), values=answers, **settings)


@lru_cache(maxsize=16)
def _opened(workload: str, path: str, layout: Any, options: Any, choices: Any, *_: Any) -> Study:
    """Return facts about a file. A form asks for it at each key, and a .bim file may have millions of lines."""
    from workbench.genotypes import choosing, open_genotypes
    from workbench.genotypes.choosing import some_on_x
    from workbench.genotypes.reading import with_labels

    chosen = {name: value for name, value in choices if value not in (None, False)}
    storage: dict[str, Any] = {"storage_options": dict(options)}
    parameter = "path"
    try:
        found = open_genotypes(path, **dict(layout), **storage)
        for parameter in ("labels", "keep_samples", "remove"):
            if parameter not in chosen:
                continue
            if parameter == "labels":
                found = with_labels(found, chosen[parameter], **(storage if "://" in chosen[parameter] else {}))
            else:
                found = choosing.of_chosen_samples(found, **{parameter: chosen[parameter]}, **storage)
        barred = np.zeros(found.n_variants, bool)
        if (parameter := "leave_out") in chosen:
            barred = choosing.in_regions(found, chosen[parameter])
            if not barred.any():
                found = replace(found, remarks=(*found.remarks, choosing.nowhere(found)))
        if (parameter := "autosomes_only") in chosen:
            barred = barred | ~choosing.on_autosomes(found)
    except BadInputError as err:
        raise BadParameterError(f"{parameter} of {workload}: {err}", parameter) from err
    if workload == "genotype_pca" and "autosomes_only" not in chosen and some_on_x(found):
        found = replace(found, remarks=(*found.remarks, _ON_X))
    effect = None if workload == "genotype_pca" and "hwe" not in chosen else _EFFECTS.get(workload)
    if effect and (n := int((choosing.not_diploid(found) & ~barred).sum())):
        found = replace(found, remarks=(*found.remarks, _NOT_DIPLOID.format(formats.count(n, "variant"), effect)))
    source = found.source or path
    return Study(found.shape, found.remarks, _reader(source, dict(options)))


def _reader(path: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    from workbench.genotypes.plink import is_plink
    from workbench.genotypes.reading import OF_COUNTS

    if is_plink(path):
        return ()
    place = places.full(path, options)
    start = place.read(0, 8) if place.kind() == "file" else b""
    return next((each.modules for each in OF_COUNTS if each.starts(start, place)), ("zarr",))


def _stamp(path: str) -> Any:
    """Return a value that changes when a local file is written; a new value each time where that is unknown."""
    from workbench.genotypes.plink import three_files

    files = [Path(name) for name in (path, *three_files(path))]
    try:
        stamps = tuple((each.stat().st_mtime_ns, each.stat().st_size) for each in files if each.is_file())
    except OSError:  # an unreadable folder or too long a name, which opening reports
        return time.monotonic()
    return stamps or time.monotonic()


def size_of(path: str, options: Mapping[str, Any]) -> int:
    """Return the bytes of a file, or of all files of a folder; of PLINK's three files together."""
    from workbench.genotypes.plink import is_plink, three_files

    if is_plink(path):
        return sum(places.full(each, options).size() for each in three_files(path))
    return places.full(path, options).size()


def without_genotypes(found: GenotypePCA | Projection) -> dict[str, list[str]]:
    """Return the names of samples without any genotype, for a summary; nothing where all have some."""
    names = [str(each) for each in found.unknown_samples[:_SHOWN]]
    return {"samples_without_genotypes": names} if names else {}
