"""Opening of genotypes in any format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from workbench import formats
from workbench.errors import BadInputError
from workbench.genotypes.arrays import (
    ORIENTATIONS,
    Counts,
    Multiallelic,
    Rows,
    genotypes_of_array,
    genotypes_of_counts,
    in_zarr,
    of_whole_arrays,
    read_vcf_zarr,
    read_zarr,
    refuse_words,
)
from workbench.genotypes.choosing import Names, of_chosen_samples
from workbench.genotypes.layout import is_store, read_store
from workbench.genotypes.packing import MISSING_CODES, missing_codes
from workbench.genotypes.plink import is_plink, read_plink
from workbench.genotypes.values import Genotypes, Variants
from workbench.labels import as_text
from workbench.linalg import arguments
from workbench.sent_code import reach_cluster
from workbench.storage import conventions, places
from workbench.storage.decoders import check_decoders
from workbench.storage.formats import hdf5, npy
from workbench.storage.formats.base import Format
from workbench.storage.places import Place
from workbench.storage.reading import reader_of
from workbench.storage.written_chunks import of_zarr, remark
from workbench.storage.zarrs import MARKS, is_marked, outdated, outdated_remark, safe, store_at

_EXPECTED = (
    "a PLINK .bed file with its .bim and .fam, VCF Zarr, a store that pack_to_zarr wrote, "
    "or counts in Zarr, .npy or HDF5"
)
_TABLE = "a text table: a header, then a line for each sample, separated by tabs, commas or spaces"
_NEVER_EMPTY = ("call_genotype", "sample_id", "variant_position")
"""Arrays of VCF Zarr whose chunks never hold only the fill value, so that writers leave none out."""
OF_COUNTS = (npy.NPY, hdf5.HDF5)
"""Formats, besides Zarr, that can read any block."""
# Other formats by ending, and how to convert them to a readable one.
_REMEDIES = (
    ((".vcf", ".vcf.gz", ".vcf.bgz", ".bcf"), "a VCF", "plink2 --vcf NAME --make-bed, or bio2zarr's vcf2zarr convert"),
    ((".pgen", ".pvar", ".psam"), "PLINK 2's own format", "plink2 --pfile NAME --make-bed"),
    ((".ped", ".map"), "PLINK's text format", "plink1.9 --file NAME --make-bed"),
    ((".bgen",), "BGEN", "plink2 --bgen NAME ref-first --make-bed"),
    ((".npz",), "an archive of arrays", "numpy.save for each array, which makes a .npy file"),
)


def open_genotypes(
    source: Any,
    *,
    array: str | None = None,
    orientation: str | None = None,
    missing: float | Iterable[float] | None = None,
    samples: Sequence[str] | None = None,
    variants: Variants | None = None,
    labels: str | Path | Mapping[str, Sequence[Any]] | None = None,
    keep_samples: Names | None = None,
    remove: Names | None = None,
    multiallelic: Multiallelic = "any",
    rows: Rows = "auto",
    storage_options: places.Options | None = None,
) -> Genotypes:
    """Return the genotypes of variants × samples, lazily, from a path, URL or array; the format is detected.

    Parameters
    ----------
    source
        Path or URL of a PLINK .bed file (or of its .bim, .fam, or what their names share), of VCF Zarr, of a store that
        `pack_to_zarr` wrote, or of counts 0, 1 and 2 in a Zarr array, a .npy or an HDF5 file; or an array of counts:
        NumPy, CuPy, Dask, Zarr.
    array
        Array of an HDF5 file or a Zarr group that holds the counts, if there are several.
    orientation
        Layout of an array of counts: "variants×samples" or "samples×variants" (x works like ×). If omitted, names
        of samples or of dimensions decide, else it is variants × samples; a matrix wider than high is refused.
    missing
        The value, or values, for missing counts in an array. Default: -127, -9, -2, -1, 3, 255, NaN.
    samples, variants
        Names of the samples, and facts about the variants, for an array without them.
    labels
        Further columns on the samples, such as their population: a mapping of columns in the samples' order, or a text
        table with a header and one column of sample names.
    keep_samples, remove
        Samples to keep (None: all), and to leave out: names, or a file with a name, or a family and a name, on each
        line.
    multiallelic
        Treatment of VCF Zarr's sites with several alternate alleles: count copies of "any", "drop" or "refuse".
    rows
        Variants in a block; "auto" makes blocks of about 8 MiB.
    storage_options
        Options for fsspec about the server of URLs, such as {"anon": True, "endpoint_url": "https://s3.example.org"}.

    Raises
    ------
    BadInputError
        It can't be read; the message says what it is and what was expected.
    """
    missing = tuple(missing) if isinstance(missing, Iterable) else missing
    _check_options(orientation, missing, samples, variants)
    options = {"array": array, "orientation": orientation, "missing": missing, "samples": samples, "variants": variants}
    if isinstance(source, Genotypes):
        genotypes = _self_describing(source, options, "Genotypes")
    elif isinstance(source, (str, Path)):
        genotypes = _at(places.full(source, storage_options), options, multiallelic, rows)
    else:
        genotypes = _of_array(source, options, rows)
    if labels is not None:
        at_url = isinstance(labels, str) and Place(labels).is_url
        genotypes = with_labels(genotypes, labels, storage_options if at_url else None)
    return of_chosen_samples(genotypes, keep_samples, remove, storage_options)


def as_genotypes(source: Any) -> Genotypes:
    """Return `source` as `Genotypes`, which it may be, or as `open_genotypes` reads it."""
    reach_cluster()
    return source if isinstance(source, Genotypes) else open_genotypes(source)


def _check_options(orientation: Any, missing: Any, samples: Any, variants: Any) -> None:
    if orientation is not None and not isinstance(orientation, str):
        raise BadInputError(f"Unknown orientation {orientation!r}. Choose one of: {', '.join(ORIENTATIONS)}.")
    codes = missing if isinstance(missing, tuple) else (missing,)
    if missing is not None and not all(isinstance(code, arguments.REAL) for code in codes):
        raise BadInputError(f"missing is a number, or several, that stand for a value not known; not {missing!r}.")
    if samples is not None and (isinstance(samples, str) or np.ndim(samples) != 1):
        raise BadInputError(f"samples are names, one for each sample, not {samples!r}.")
    if variants is not None and not isinstance(variants, Variants):
        raise BadInputError(f"variants must be workbench.genotypes.Variants, not {type(variants).__name__}.")


def _self_describing(genotypes: Genotypes, options: Mapping[str, Any], source: str) -> Genotypes:
    needless = [name for name, value in options.items() if value is not None]
    if needless:
        raise BadInputError(f"{source} says itself what is in it: leave out {', '.join(needless)}.")
    return genotypes


def _of_array(source: Any, options: Mapping[str, Any], rows: Rows) -> Genotypes:
    layout = {name: value for name, value in options.items() if name != "array"}
    if options["array"] is not None:
        raise BadInputError("An array has no arrays in it: leave out array.")
    if type(source).__module__.startswith("zarr."):
        return _opened_zarr(source, Place(str(source.store_path)), options, "any", rows, counted=_is_in_folder(source))
    if isinstance(source, (list, tuple)):
        try:
            source = np.asarray(source)
        except ValueError as err:
            raise BadInputError(
                f"These lists are no array of variants × samples: their lengths differ ({err})."
            ) from err
    if not hasattr(source, "shape") or not hasattr(source, "dtype"):
        raise BadInputError(f"Genotypes can't be read from {type(source).__name__}. Expected {_EXPECTED}; or an array.")
    if any(length != length for length in source.shape):  # NaN is how Dask says that it doesn't know
        raise BadInputError("The array doesn't know how long its blocks are: call its compute_chunk_sizes() first.")
    return genotypes_of_array(source, rows=rows, **layout)


def _at(place: Place, options: Mapping[str, Any], multiallelic: Multiallelic, rows: Rows) -> Genotypes:
    with places.sentences_about(place, _EXPECTED):
        bed = is_plink(place.path)
        if not bed and place.is_url and is_marked(place):
            return _zarr(place, options, multiallelic, rows)
        kind = None if bed else place.kind()
        if bed or (kind is None and (place + ".bed").kind() == "file"):
            genotypes = read_plink(place.path, rows=rows, storage_options=place.options)
            return _self_describing(genotypes, options, place.path)
        if kind == "file":
            return _file(place, options, multiallelic, rows)
        if kind is None:
            raise BadInputError(f"{place} isn't there. Expected {_EXPECTED}.")
        return _zarr(place, options, multiallelic, rows)


def _file(place: Place, options: Mapping[str, Any], multiallelic: Multiallelic, rows: Rows) -> Genotypes:
    for endings, content, remedy in _REMEDIES:
        if place.path.endswith(endings):
            raise BadInputError(f"{place} is {content}, which is not read here. Make a file that is: {remedy}.")
    start = place.read(0, 8)
    for format in OF_COUNTS:
        if format.starts(start, place):
            return _array(place, format, options, rows)
    if start.startswith(b"PK") and not place.is_url:
        return _zarr(place, options, multiallelic, rows)
    if place.name in MARKS:
        raise BadInputError(f"{place} belongs to a Zarr array. Give the folder that it is in.")
    content = f"starts with {start.hex(' ')}" if start else "is empty"
    raise BadInputError(f"{place} {content}, which is no format that is read here. Expected {_EXPECTED}.")


def _array(place: Place, format: Format, options: Mapping[str, Any], rows: Rows) -> Genotypes:
    """Return counts in a file of a format that can read any block."""
    assert format.find is not None
    arrays, _ = format.look(place)
    name = options["array"]
    if [each.name for each in arrays] == [""] and name is not None:
        raise BadInputError(f"{place} holds one array, which has no name: leave out array.")
    if arrays and arrays[0].name:
        matrices = [each.name for each in arrays if len(each.shape) == 2]
        name = _chosen(place.path, name, matrices, f"a file of several arrays ({format.title})")
    found = format.find(place, name)
    check_decoders(place, found.format, name)
    options = _as_said(options, str(found), found.dtype, found.attributes)
    stored = found.chunks if found.chunks and len(found.chunks) == 2 else None
    counts = Counts(reader_of(found), found.shape, found.dtype.itemsize, stored)
    return _of_counts(counts, found.dtype, options, rows, place.path)


def _zarr(place: Place, options: Mapping[str, Any], multiallelic: Multiallelic, rows: Rows) -> Genotypes:
    import zarr

    with places.sentences_about(place, "a Zarr group or array"):
        zipped = not place.is_url and place.kind() == "file"
        try:
            path = zarr.storage.ZipStore(place.path, mode="r") if zipped else place.path
            how = {"use_consolidated": False} if outdated(place) else {}
            opened = zarr.open(store_at(place) if place.is_url else path, mode="r", **how)
        except FileNotFoundError as err:
            raise BadInputError(_no_zarr(place, zipped=zipped)) from err
        genotypes = _opened_zarr(opened, place, options, multiallelic, rows)
        return replace(genotypes, remarks=(*outdated_remark(place), *genotypes.remarks))


def _no_zarr(place: Place, *, zipped: bool) -> str:
    if zipped:
        return f"{place} is an archive without a Zarr group or array. Expected {_EXPECTED}."
    beds = sorted(name for name in place.names() if name.lower().endswith(".bed"))
    remedy = f"It holds {formats.shortened(beds, 10)}: give one of them" if beds else f"Expected {_EXPECTED}"
    return f"{place} is a folder that is no Zarr group or array. {remedy}."


def _is_in_folder(array: Any) -> bool:
    from zarr.storage import LocalStore

    return isinstance(array.store, LocalStore)


def _opened_zarr(
    opened: Any,
    place: Place,
    options: Mapping[str, Any],
    multiallelic: Multiallelic,
    rows: Rows,
    *,
    counted: bool = True,
) -> Genotypes:
    if hasattr(opened, "shape"):
        if options["array"] is not None:
            raise BadInputError(f"{place} is one array: leave out array.")
        return _zarr_array(opened, place, "", options, rows, counted)
    if options["array"] is None:
        if is_store(opened):
            return _self_describing(read_store(opened, place), options, place.path)
        if "call_genotype" in opened:
            genotypes = read_vcf_zarr(opened, place.path, multiallelic=multiallelic, rows=rows)
            remarks = of_whole_arrays(opened, place, _NEVER_EMPTY) if counted else ()
            genotypes = replace(genotypes, remarks=(*remarks, *genotypes.remarks))
            return _self_describing(genotypes, options, place.path)
    matrices = sorted(name for name, array in opened.arrays() if array.ndim == 2)
    if options["array"] is not None and options["array"] in opened:  # also one further down
        matrices.append(options["array"])
    name = _chosen(place.path, options["array"], matrices, "a Zarr group without call_genotype, as VCF Zarr has it")
    return _zarr_array(opened[name], place, name, options, rows, counted)


def _zarr_array(
    array: Any, whole: Place, name: str, options: Mapping[str, Any], rows: Rows, counted: bool
) -> Genotypes:
    place = f"{whole}/{name}" if name else whole.path
    declared = _declared(safe(array, place))
    orientation = options["orientation"]
    if declared and orientation and orientation.replace(" ", "").replace("x", "×") != declared:
        raise BadInputError(
            f"{place} says that it is {declared}, which contradicts orientation={orientation!r}: leave it out."
        )
    options = _as_said(options, place, np.dtype(array.dtype), array.attrs.asdict()) | {
        "orientation": declared or orientation
    }
    remarks: tuple[str, ...] = ()
    if counted:
        codes = missing_codes(options["missing"])
        note = remark(place, of_zarr(array, whole, name), missing=codes, remedy="write empty chunks, too")
        remarks = (note,) if note else ()
    genotypes = _of_counts(in_zarr(array, read_zarr, place), np.dtype(array.dtype), options, rows, place)
    return replace(genotypes, remarks=(*remarks, *genotypes.remarks))


def _as_said(options: Mapping[str, Any], whose: str, dtype: np.dtype[Any], attributes: Any) -> dict[str, Any]:
    """Return the options for counts, with the values that their attributes call missing."""
    refuse_words(dtype, whose)
    recipe = conventions.stored(
        whose, dtype, {name: attributes[name] for name in conventions.ATTRIBUTES if name in attributes}
    )
    if recipe.is_packed or recipe.dtype != dtype:
        raise BadInputError(f"{whose} holds no counts: {recipe.remarks[0]} Write the counts 0, 1 and 2 themselves.")
    missing = options["missing"]
    return {**options, "missing": (*MISSING_CODES, *recipe.missing) if missing is None and recipe.missing else missing}


def _declared(array: Any) -> str | None:
    """Return the orientation by the names of an array's dimensions, which sgkit and xarray write."""
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.asdict().get("_ARRAY_DIMENSIONS") or ()
    declared = "×".join(str(name) for name in names)
    return declared if declared in ORIENTATIONS else None


def _of_counts(counts: Counts, dtype: np.dtype[Any], options: Mapping[str, Any], rows: Rows, place: str) -> Genotypes:
    refuse_words(dtype, place)
    layout = {name: value for name, value in options.items() if name != "array"}
    return genotypes_of_counts(counts, rows=rows, source=place, **layout)


def _chosen(place: str, array: str | None, names: Sequence[str], content: str) -> str:
    choices = formats.shortened(names, 10)
    if not names:
        raise BadInputError(f"{place} is {content}, and has no matrix of counts either. Expected {_EXPECTED}.")
    if array is None and len(names) == 1:
        return names[0]
    if array is None:
        raise BadInputError(f"{place} is {content}, with {len(names)} matrices: name one of them as array: {choices}.")
    if array not in names:
        raise BadInputError(f"{place} has no matrix {array!r}. Choose one of: {choices}.")
    return array


def with_labels(
    genotypes: Genotypes,
    labels: str | Path | Mapping[str, Sequence[Any]],
    storage_options: places.Options | None = None,
) -> Genotypes:
    """Return genotypes with further columns in their `sample_table`.

    `labels` is a mapping of columns in the order of the samples, or the path of a text table with a header, whose
    column with most of the samples' names identifies them; lines may be in any order, and for other samples too.
    Where it is a URL, `storage_options` are fsspec's options for the server. Raises BadInputError if the table
    knows none of the samples, or a column has another length.
    """
    if isinstance(labels, Mapping):
        columns = {name: _column(values) for name, values in labels.items()}
    else:
        columns = _read(places.full(labels, storage_options), genotypes.samples)
    return replace(genotypes, sample_table={**genotypes.sample_table, **columns})


def _column(values: Any) -> np.ndarray[Any, Any]:
    words = isinstance(values, (list, tuple)) and all(isinstance(each, str) for each in values)
    return as_text(values) if words else np.atleast_1d(np.asarray(values))


def _read(place: places.Place, samples: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    with places.sentences_about(place, _TABLE):
        lines = [line for line in place.read().decode().splitlines() if line.strip()]
    if len(lines) < 2:
        raise BadInputError(f"{place} has no line below a header. Expected {_TABLE}.")
    separator = next((mark for mark in "\t," if mark in lines[0]), None)
    cells = [[cell.strip() for cell in line.split(separator)] for line in lines]
    header = [name.lstrip("#") for name in cells[0]]
    for number, line in enumerate(cells[1:], 2):
        if len(line) < len(header):
            raise BadInputError(f"{place}, line {number} has {len(line)} columns, expected {len(header)}.")
    names = samples.tolist()
    columns = [[line[i] for line in cells[1:]] for i in range(len(header))]
    n_known = [len(set(names).intersection(column)) for column in columns]
    key = int(np.argmax(n_known))
    if names and not n_known[key]:
        raise BadInputError(
            f"{place} knows none of the samples, the first of which is {names[0]!r}. Expected {_TABLE}."
        )
    line_of = {name: i for i, name in enumerate(columns[key])}
    return {
        header[i]: as_text([column[line_of[name]] if name in line_of else "" for name in names])
        for i, column in enumerate(columns)
        if i != key
    }
