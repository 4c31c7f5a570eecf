"""Results of a user's function: its Dask collections, the parts that come back, its numbers and its arrays."""

from __future__ import annotations

import itertools
import json
import math
import re
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from workbench import formats
from workbench.errors import FailedError, printable
from workbench.workloads.values import Needs

if TYPE_CHECKING:
    import xarray as xr

LARGEST = 2**30
"""Bytes beyond which one object of a process is not taken as an answer."""
_SMALL = 2**20  # bytes of a Dask array that comes back
_STORED = "biufcMmU"
_SHOWN = 20  # numbers of an array that are listed one by one
_LONGEST = 10_000  # characters of a value as JSON
_MOST = 100  # values in a list or dict whose arrays are stored by name
_OTHERS = frozenset({"bandwidth", "certificate", "scatter", "seconds_to_make", "seconds_to_read"})
"""Names with a meaning in the answers of our own workloads."""
_DRAWN = frozenset(
    {"singular_values", "explained_variance", "explained_variance_ratio", "variance_fraction", "separated"}
)
"""Names under which numbers are drawn, the user's as well as ours."""


_Making = Callable[[], "xr.DataArray"]


def named(result: Any, whose: str, variables: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the parts of a function's result by name: of a dict, of a tuple, or one called `value`."""
    if _is_of("xarray", "Dataset", result):
        result = dict(result.data_vars)
    if isinstance(result, tuple):
        names = getattr(result, "_fields", None) or (variables if len(variables) == len(result) else None)
        result = dict(zip(names or [f"value_{n}" for n in range(1, len(result) + 1)], result, strict=True))
    elif result is None:
        result = {}
    elif not isinstance(result, dict):
        result = {"value": result}
    parts = _unique((f"{name}_" if name in _OTHERS else printable(str(name)), each) for name, each in result.items())
    for name, each in parts.items():
        if isinstance(each, Iterator | AsyncIterator | Coroutine):
            raise FailedError(
                f"{name} of {whose} is a {type(each).__name__}, which holds no values yet. Return a list, an array or "
                "a Dask collection."
            )
    try:
        return {name: _lazy(each) for name, each in _spread(parts).items()}
    except RecursionError as err:
        raise FailedError(
            f"The answer of {whose} holds itself, or is a list or dict nested too deeply. Return its parts by name."
        ) from err


def _lazy(value: Any) -> Any:
    """Wrap a list or dict with collections, or futures, in one collection."""
    import dask
    from distributed import Future, futures_of

    if isinstance(value, list | dict | tuple | Future) and (
        dask.base.unpack_collections(value)[0] or futures_of(value)
    ):
        return dask.delayed(value)
    return value


def _spread(results: Mapping[str, Any]) -> dict[str, Any]:
    """Yield the parts of an answer; lists and dicts with arrays give names such as `pair_1` and `fit.w`."""
    return _unique(pair for part in results.items() for pair in _parts(*part))


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as a dict; a repeated name gets a _ behind it: 1 and "1" are two keys of a dict."""
    by_name: dict[str, Any] = {}
    for name, each in pairs:
        stored = name
        while stored in by_name:
            stored += "_"
        by_name[stored] = each
    return by_name


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if _is_of("scipy", "spmatrix", value) or _is_of("scipy", "sparray", value):
        csr = value.tocsr()  # under the names that scipy.sparse.save_npz gives
        value = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr, "shape": csr.shape, "format": "csr"}
    elif _is_of("pyarrow", "Table", value) or _is_of("polars", "DataFrame", value):
        value = value.to_pandas()
    inside = _inside(value) if isinstance(value, list | tuple | dict) and len(value) <= _MOST else ()
    parts = [pair for key, each in inside for pair in _parts(f"{name}{key}", each)]
    yield from parts if any(_is_array(each) for _, each in parts) else [(name, value)]


def _inside(value: Any) -> list[tuple[str, Any]]:
    """Yield the parts of a list or dict, with the suffix of each name: `_1` or `.w`."""
    if hasattr(value, "_fields"):
        value = value._asdict()
    if isinstance(value, dict):
        return [(f".{key}", each) for key, each in value.items()]
    return [(f"_{number}", each) for number, each in enumerate(value, 1)]


def _is_array(value: Any) -> bool:
    """Return whether it needs a name of its own: an array, or a table or dataset with some."""
    if _is_of("dask", "Scalar", value):  # of a table, which Dask can't delay in a list
        return True
    if _is_one_piece(value) or isinstance(value, type) or getattr(value, "ndim", 1) == 0:
        return False
    table = hasattr(value, "index") and (hasattr(value, "columns") or hasattr(value, "to_frame"))
    return table or _is_of("xarray", "Dataset", value) or (hasattr(value, "dtype") and bool(getattr(value, "ndim", 0)))


def whole(results: Mapping[str, Any]) -> Any:
    """Return the parts as a check gets them: a single one, or all by name."""
    return results["value"] if results.keys() == {"value"} else dict(results)


def collections(built: Mapping[str, Any]) -> dict[str, Any]:
    """Return those parts that are Dask's, grouped by kind, or else `Client.persist` confuses them."""
    import dask

    lazy = {name: each for name, each in built.items() if dask.is_dask_collection(each)}
    kinds = list(dict.fromkeys(dask.base.optimization_function(each) for each in lazy.values()))
    return dict(sorted(lazy.items(), key=lambda each: kinds.index(dask.base.optimization_function(each[1]))))


def gathered(persisted: Mapping[str, Any]) -> tuple[str, ...]:
    """Return names of persisted parts that come back: all but large ones, which stay on the cluster."""
    return tuple(name for name, each in persisted.items() if _comes_back(each))


def _comes_back(persisted: Any) -> bool:
    n_bytes = _bytes(persisted)
    if not math.isnan(n_bytes):
        return n_bytes <= _SMALL
    from distributed import default_client, futures_of

    keys = {future.key for future in futures_of(persisted)}
    if not keys:  # without a cluster
        return True
    sizes = default_client().nbytes(list(keys), summary=False)
    most = LARGEST if _is_one_piece(persisted) else _SMALL
    return sum(sizes.get(key, 0) for key in keys) <= most


def values(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return numbers, texts and other small values, as JSON."""
    pairs = ((name, value) for name, each in _spread(results).items() if (value := _plain(each)) is not _NONE)
    return _unique((f"{name}_" if name in _DRAWN and not _are_numbers(value) else name, value) for name, value in pairs)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, int | float) for each in value)


_NONE = object()


def _plain(value: Any) -> Any:
    """Summarize a value in one line; return None for arrays saved separately."""
    if _is_one_piece(value):
        return _NONE
    # Tables, xarray and Dask; a date of pandas has no shape.
    if (hasattr(value, "to_numpy") and hasattr(value, "shape")) or hasattr(value, "chunks"):
        if getattr(value, "ndim", 1) != 0:
            return _NONE
        value = value.to_numpy() if hasattr(value, "to_numpy") else value
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        value = _without_gaps(value)
        if value.dtype.kind not in "biuf":
            return printable(value.item() if value.ndim == 0 and value.dtype.kind == "U" else repr(value)[:200])
        return _spelled(value.tolist()) if value.size <= _SHOWN and value.ndim <= 1 else _NONE
    try:
        text = json.dumps(value, default=_number)
    except (TypeError, ValueError, RecursionError):
        return printable(repr(value)[:200])
    return (
        _spelled(json.loads(text, object_pairs_hook=_unique)) if len(text) <= _LONGEST else f"{printable(text[:200])}…"
    )


def _spelled(value: Any) -> Any:
    """Return numbers that JSON lacks as text: 'nan', 'inf' and '-inf'; and text that can be written."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return _unique((printable(name), _spelled(each)) for name, each in value.items())
    if isinstance(value, list):
        return [_spelled(each) for each in value]
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def _number(value: Any) -> Any:
    if hasattr(value, "tolist") and value.ndim <= 1 and value.size <= _SHOWN:
        return value.tolist()
    raise TypeError


def arrays(results: Mapping[str, Any]) -> xr.Dataset:
    """Return all arrays of an answer, with names of their dimensions; columns of tables are arrays too."""
    from workbench.storage.variables import combined

    named = {_own_name(results) or name: value for name, value in results.items()}
    parts = ((stored, make()) for _, stored, make in _pieces(_spread(named)))
    return combined({where: array for where, array in parts if _is_stored(array.data)})


def _own_name(results: Mapping[str, Any]) -> str | None:
    """Return the name of an array of xarray that is the only result; None for others, and for a coordinate alone."""
    value: Any = results.get("value")
    if results.keys() != {"value"} or not _is_of("xarray", "DataArray", value):
        return None
    return None if value.name in (None, *value.coords, *value.dims) else str(value.name)


def _stored_names(names: Iterable[Any]) -> dict[Any, str]:
    """Return names for stored arrays: a store takes / for a folder, and names without a letter for none."""
    all_names = list(names)
    # Valid names stay unchanged, even if an invalid one comes first.
    used = {str(name) for name in all_names if _stored_name(name) == str(name)}
    stored_names: dict[Any, str] = {}
    for name in all_names:
        stored = _stored_name(name)
        if stored != str(name) and stored in used:
            stored = next(each for number in itertools.count(2) if (each := f"{stored}_{number}") not in used)
        used.add(stored)
        stored_names[name] = stored
    return stored_names


def _stored_name(name_given: object) -> str:
    name = re.sub(r"[/\\\0]", "_", str(name_given)).strip()
    return name if name.strip("._") and not name.startswith("__") else f"unnamed{name.strip('.')}"


def _pieces(results: Mapping[Any, Any], before: str = "", place: str = "") -> Iterator[tuple[str, str, _Making]]:
    """Yield names of arrays as given and as stored, and a function that makes each: no values are computed."""
    for given, file_name in _stored_names(results).items():
        name, stored, value = f"{before}{given}", f"{place}{file_name}", results[given]
        if _is_one_piece(value):
            continue
        if _is_of("xarray", "DataArray", value):
            yield name, stored, partial(_of_xarray, value)
        elif _is_of("xarray", "Dataset", value):
            yield from _pieces(value.data_vars, f"{name}.", f"{stored}.")
        elif _is_table(value):
            for each, called, column in _columns(value):
                yield f"{name}.{each}", f"{stored}.{called}", partial(_of_table, stored, column)
        elif hasattr(value, "index") and hasattr(value, "to_frame"):
            yield name, stored, partial(_of_table, stored, value)
        elif hasattr(value, "dtype") and hasattr(value, "shape") and value.ndim > 0:
            yield name, stored, partial(_of_numbers, stored, value)


def _array(data: Any, dims: Iterable[str], coords: Mapping[str, Any] | None = None, attrs: Any = None) -> xr.DataArray:
    from workbench.storage.variables import array, with_lengths

    return array(_without_gaps(with_lengths(data)), dims, coords, attrs)


def _of_numbers(name: str, numbers: Any) -> xr.DataArray:
    return _array(numbers, (f"{name}_{axis}" for axis in range(numbers.ndim)))


def _of_xarray(array: Any) -> xr.DataArray:
    """Return the array with all coordinates except those with several levels, which are coordinates themselves."""
    from workbench.storage.datasets import plain, said

    whole = [str(name) for name, index in array.indexes.items() if getattr(index, "nlevels", 1) > 1]
    coords = {}
    for name, each in array.coords.items():
        if name not in array.dims or name not in whole:
            stored, dims = _stored_name(name), tuple(map(_stored_name, each.dims))
            coords[stored] = dims, plain(each.to_numpy()), said(each.attrs)
    attrs = {str(key): value.tolist() if hasattr(value, "tolist") else value for key, value in array.attrs.items()}
    attrs_saved = {key: value for key, value in attrs.items() if isinstance(value, bool | int | float | str | list)}
    data = array.data if hasattr(array.data, "chunks") else plain(array.data) if array.dtype == object else array.data
    return _array(data, map(_stored_name, array.dims), coords, attrs_saved)


def _without_gaps(data: Any) -> Any:
    """Return the array with NaN, NaT or no text where it is masked, integers as float64 then; no long doubles."""
    import dask.array as da
    import numpy as np

    kind, lazy = data.dtype.kind, hasattr(data, "chunks")
    if kind in "fc" and data.dtype.itemsize > {"f": 8, "c": 16}[kind]:
        data = data.astype({"f": "f8", "c": "c16"}[kind])
    if not _is_masked(data):
        return data
    if not (lazy or np.ma.is_masked(data)):
        return np.asarray(data.data)
    missing: Any = np.array("NaT", data.dtype)[()] if kind in "mM" else "" if kind == "U" else np.nan
    filled = da.ma.filled if lazy else np.ma.filled
    return filled(data.astype(float) if kind in "biu" else data, missing)


def _is_masked(data: Any) -> bool:
    import numpy as np

    return isinstance(getattr(data, "_meta", data), np.ma.MaskedArray)


def _is_table(value: Any) -> bool:
    return hasattr(value, "columns") and hasattr(value, "index")


def _columns(table: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the name of each column, its stored name, and the column: names may be repeated."""
    names: list[str] = []
    for label in table.columns:
        name = ".".join(map(str, label)) if isinstance(label, tuple) else str(label)
        names.append(next(each for n in itertools.count(1) if (each := f"{name}_{n}" if n > 1 else name) not in names))
    for at, (name, stored) in enumerate(_stored_names(names).items()):
        yield name, stored, table.iloc[:, at]


def _of_table(table: str, column: Any) -> xr.DataArray:
    from workbench.storage.datasets import plain

    row = _stored_name(getattr(column.index, "name", None) or f"{table}_row")
    data = _of_column(column)
    if hasattr(data, "chunks"):
        return _array(data, (row,))
    index, levels = column.index, {row: column.index}
    if getattr(index, "nlevels", 1) > 1:
        levels = {index.names[n] or f"{row}_{n + 1}": index.get_level_values(n) for n in range(index.nlevels)}
    labels = ((_stored_name(name), plain(level.to_numpy())) for name, level in levels.items())
    return _array(data, (row,), {name: (row, level) for name, level in labels})


def _of_column(column: Any) -> Any:
    """Return the array of a table's column; with Dask its lengths are unknown, and nothing is computed."""
    if hasattr(column, "to_dask_array"):
        with warnings.catch_warnings():
            # The warning is about text, which isn't stored from Dask's tables.
            warnings.filterwarnings("ignore", message="Dask currently has limited support")
            return column.to_dask_array()
    data = column.to_numpy()
    return data.astype(str) if data.dtype == object and all(isinstance(each, str) for each in data) else data


def _unknown(length: float) -> bool:
    return math.isnan(length)


def _is_stored(data: Any) -> bool:
    return data.ndim > 0 and _is_kept(data) and (hasattr(data, "chunks") or data.nbytes <= LARGEST)


def _is_kept(data: Any) -> bool:
    """Return whether values of this type are stored."""
    from workbench.storage.cf import has_calendar

    return data.dtype.kind in _STORED or has_calendar(data)


def remarks(results: Mapping[str, Any], whose: str) -> tuple[str, ...]:
    """Return messages about parts that aren't stored, or are stored in another form."""
    import dask

    notes, results = [], _spread(results)
    renamed = [f"{name!r} as {stored}" for name, stored, _ in _pieces(results) if name != stored]
    if renamed:
        notes.append(f"Kept under another name, as names can't be empty or have /: {', '.join(renamed[:20])}.")
    for name, each in results.items():
        # `nbytes` of a Dask table raises an error.
        n_bytes = 0 if dask.is_dask_collection(each) else getattr(each, "nbytes", 0)
        if isinstance(n_bytes, int) and n_bytes > LARGEST:
            notes.append(
                f"{name} of {whose} is one object of {formats.size(n_bytes)} in one process and is not kept: return it "
                "as a Dask array, and give save=PATH."
            )
        elif _is_table(each):
            lost = [name for name, _, column in _columns(each) if not _is_stored(_of_column(column))]
            if lost:
                notes.append(
                    f"Of {name} not kept: {', '.join(lost)}. Only numbers, dates and text without gaps are, and of "
                    "Dask's tables no text."
                )
        elif not _is_one_piece(each):
            if _is_lost(each):
                notes.append(f"{name} of {whose} holds {each.dtype}, which isn't kept: numbers, dates and text are.")
            elif hasattr(each, "dtype") and each.ndim and (saved_as := _without_gaps(each).dtype) != each.dtype:
                gaps = ", with NaN where it is masked" if _is_masked(each) else ""
                notes.append(f"{name} of {whose} holds {each.dtype} and is kept as {saved_as}{gaps}.")
            elif (
                isinstance(each, list | tuple | dict)
                and len(each) > _MOST
                and any(_is_array(part) for _, part in _inside(each))
            ):
                notes.append(
                    f"{name} of {whose} has more than {_MOST} parts, so its arrays aren't kept: return one array, as "
                    "numpy.stack makes of several."
                )
            elif isinstance(_plain(each), str) and _is_object(each):
                notes.append(f"Of {name} of {whose}, a {type(each).__name__}, only this text is kept: {_plain(each)}")
        else:
            notes.append(
                f"{name} of {whose} is larger than {formats.size(LARGEST)} in one piece and stayed where it was made: "
                "return it as a Dask array."
            )
    return tuple(notes)


def _is_object(value: Any) -> bool:
    """Return whether an object is more than its text: a figure or a model, but no date."""
    return hasattr(value, "__dict__") and not (hasattr(value, "isoformat") or hasattr(value, "dtype"))


def _is_lost(array: Any) -> bool:
    """Return whether an array holds values that aren't stored; labels and object columns become text if possible."""
    if not (hasattr(array, "dtype") and array.ndim) or _is_of("xarray", "DataArray", array):
        return False
    return not _is_kept(_of_column(array) if hasattr(array, "to_frame") else array)


def needs(lazy: Mapping[str, Any], threads_per_worker: int) -> Needs | None:
    """Estimate from the graph and the sizes of its blocks; None where no part of it is Dask's."""
    if not lazy:
        return None
    layers = {name: layer for each in lazy.values() for name, layer in getattr(_graph(each), "layers", {}).items()}
    blocks, sizes, in_tasks = [], [], [0]
    for layer in layers.values():
        about = getattr(layer, "collection_annotations", None) or {}
        if {"shape", "chunksize", "dtype"} <= about.keys() and about["dtype"] is not None:
            lengths = [about["shape"], about["chunksize"]]
            if not any(map(_unknown, itertools.chain(*lengths))):
                whole_, block = (math.prod(each) * about["dtype"].itemsize for each in lengths)
                sizes.append(whole_)
                blocks.append(block)
                # No more threads hold a block than there are blocks.
                in_tasks.append(block * min(threads_per_worker, -(-whole_ // block) if block else 0))
    n_tasks = sum(len(_graph(each)) for each in lazy.values())
    output = sum(int(n) for each in lazy.values() if not math.isnan(n := _bytes(each)))
    largest = max(sizes, default=output)
    # A task holds its input, its result and usually something in between.
    in_hand = 3 * max(in_tasks)
    message = (
        f"Estimated from its graph: blocks of up to {formats.size(max(blocks))}, three of them in each thread, "
        f"and an answer of {formats.size(output)}."
        if blocks
        else f"Its graph has {formats.count(n_tasks, 'task')}, whose sizes are unknown before they run."
    )
    return Needs(
        input_bytes=largest,
        held_per_worker=in_hand,
        held_total=in_hand + output,
        sentence=message,
        known=bool(blocks),
    )


def _bytes(collection: Any) -> float:
    is_known = any(
        _is_of(*each, collection) for each in (("dask", "Array"), ("xarray", "DataArray"), ("xarray", "Dataset"))
    )
    return float(collection.nbytes) if is_known else math.nan


def _is_one_piece(collection: Any) -> bool:
    """Return whether a collection is a delayed value, which says yes to every question."""
    return _is_of("dask", "Delayed", collection)


def _graph(collection: Any) -> Any:
    return collection.__dask_graph__() or {}


def _is_of(package: str, name: str, value: Any) -> bool:
    """Return whether a value is of a class of a package, which isn't imported for the question."""
    return any(each.__name__ == name and each.__module__.split(".")[0] == package for each in type(value).__mro__)
