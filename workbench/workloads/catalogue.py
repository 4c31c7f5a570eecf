"""The table of workloads: each plain function with its title, its estimate and its check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.utils import format_bytes

from workbench.workloads import array, checks, estimates, file, network, presets, svd, sweep
from workbench.workloads.fields import Layout, Tolerance
from workbench.workloads.layout import cut, working_type
from workbench.workloads.opening import find_array
from workbench.workloads.registry import Resolution, Template, arguments
from workbench.workloads.sizes import Wish, chunks_of, shape_of
from workbench.workloads.values import BadParameterError, Check, Needs, Surroundings

if TYPE_CHECKING:
    from distributed import Client


def _random_array(
    values: dict[str, Any], given: Mapping[str, Any], around: Surroundings, *, workload: str, layout: Layout
) -> Resolution:
    stored = np.dtype(values["dtype"])
    worked = stored if stored.kind == "f" else np.dtype("float64")
    wish = Wish(workload, layout, worked, stored)
    shape = shape_of(wish, values, given, around)
    chunks, notes = chunks_of(wish, shape, values["chunks"], around)
    rest = {name: value for name, value in values.items() if name not in ("size", "shape", "chunks")}
    return {"shape": shape, "chunks": chunks, **rest}, notes


def _value(results: Mapping[str, Any]) -> dict[str, Any]:
    return {"value": float(results["value"])}


def _random_matrix(resolved: Mapping[str, Any]) -> Any:
    names = ("shape", "chunks", "dtype", "seed")
    return svd.random_matrix(**arguments({name: resolved[name] for name in names}))


def _compressible(values: dict[str, Any], given: Mapping[str, Any], around: Surroundings) -> Resolution:
    resolved, notes = _random_array(values, given, around, workload="compressed_svd", layout="wide")
    small = min(resolved["shape"])
    if resolved["k"] > small:
        rows, columns = resolved["shape"]
        raise BadParameterError(
            f"k of compressed_svd is {resolved['k']}. Give a whole number from 1 to {small}: the array is "
            f"{rows} × {columns}.",
            "k",
        )
    return resolved, notes


def _array_of_file(values: dict[str, Any], given: Mapping[str, Any], around: Surroundings) -> Resolution:
    try:
        found = find_array(values["path"], values["array"])
    except BadParameterError as err:
        raise BadParameterError(f"{err.parameter} of svd_of_file: {err}", err.parameter) from err
    blocks, chunks, notes = cut(found, values["k"], values["chunks"], around)
    facts = {
        "path": found.path,
        "array": found.array,
        "format": found.format,
        "shape": found.shape,
        "blocks": blocks,
        "chunks": chunks,
        "dtype": working_type(found.dtype),
    }
    if found.dtype.name != facts["dtype"]:
        notes = (*notes, f"The array holds {found.dtype.name} and is decomposed as {facts['dtype']}.")
    return values | facts, notes


def _matrix_of_file(resolved: Mapping[str, Any]) -> Any:
    names = ("path", "array", "format", "shape", "blocks", "chunks", "dtype", "center")
    # The check goes over the blocks one by one, so none may wait for the means of the columns.
    return file.matrix_of_file(**arguments({name: resolved[name] for name in names}), compute=True)


def _readers(resolved: Mapping[str, Any]) -> tuple[Any, ...]:
    reader = file.READERS[resolved["format"]]
    return reader, f'READERS = {{"{resolved["format"]}": {reader.__name__}}}', file.matrix_of_file


def _exact(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    return checks.svd_is_exact(_random_matrix(resolved), results, client)


def _close(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    return checks.svd_is_close(_random_matrix(resolved), results, resolved["tolerance"], client)


def _right_for_file(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    x = _matrix_of_file(resolved)
    if resolved["k"] is None:
        return checks.svd_is_exact(x, results, client)
    return checks.svd_is_close(x, results, resolved["tolerance"], client)


def _with_input(
    estimate: Callable[[Mapping[str, Any], int], Needs], resolved: Mapping[str, Any], threads_per_worker: int
) -> Needs:
    """Add the array itself where it is held first, and isn't counted already."""
    needs = estimate(resolved, threads_per_worker)
    if not resolved["persist"] or not resolved.get("compute", True):
        return needs
    more = format_bytes(needs.input_bytes)
    return needs.model_copy(
        update={
            "held_total": needs.held_total + needs.input_bytes,
            "kept": None if needs.kept is None else needs.kept + needs.input_bytes,
            "sentence": f"{needs.sentence} The array is made first and held, {more} more.",
        }
    )


def _singular_values(results: Mapping[str, Any]) -> dict[str, Any]:
    return {"singular_values": [float(value) for value in results["s"]]}


TEMPLATES: tuple[Template, ...] = (
    Template(
        array.array_sum,
        title="Sum of an array",
        returns=("value",),
        small=("value",),
        resolver=partial(_random_array, workload="array_sum", layout="square"),
        estimate=estimates.streaming_sum,
        checker=checks.sum_is_expected,
        summary_of=_value,
        presets=presets.SUM,
    ),
    Template(
        array.array_mean,
        title="Mean of an array",
        returns=("value",),
        small=("value",),
        resolver=partial(_random_array, workload="array_mean", layout="square"),
        estimate=estimates.streaming_sum,
        checker=checks.mean_is_expected,
        summary_of=_value,
        presets=presets.SUM,
    ),
    Template(
        array.transpose_sum,
        title="Array plus its transpose",
        returns=("value",),
        small=("value",),
        resolver=partial(_random_array, workload="transpose_sum", layout="square"),
        estimate=estimates.transposed_sum,
        checker=checks.transpose_sum_is_expected,
        summary_of=_value,
        presets=presets.TRANSPOSE,
        reports_bandwidth=True,
    ),
    Template(
        network.protocol_sweep,
        title="TCP, TLS and UCX compared",
        returns=("rows",),
        small=(),
        resolver=sweep.resolved_sweep,
        estimate=sweep.sweep_needs,
        checker=sweep.answers_agree,
        summary_of=lambda results: {"rows": results["rows"]},
        parts=lambda _: (network.transposed_sum, network.rounds),
        conducted=True,
    ),
    Template(
        svd.tall_skinny_svd,
        title="SVD of a tall and skinny matrix",
        returns=("u", "s", "v"),
        small=("s",),
        resolver=partial(_random_array, workload="tall_skinny_svd", layout="tall"),
        estimate=partial(_with_input, estimates.exact_svd),
        checker=_exact,
        summary_of=_singular_values,
        presets=presets.TALL,
        parts=lambda _: (svd.random_matrix,),
    ),
    Template(
        svd.compressed_svd,
        title="Compressed SVD",
        returns=("u", "s", "v"),
        small=("s",),
        resolver=_compressible,
        estimate=partial(_with_input, estimates.approximate_svd),
        checker=_close,
        summary_of=_singular_values,
        presets=presets.COMPRESSED,
        parts=lambda _: (svd.random_matrix,),
        extra={"tolerance": (Tolerance, 0.25)},
    ),
    Template(
        file.svd_of_file,
        title="SVD of your own array",
        returns=("u", "s", "v"),
        small=("s",),
        resolver=_array_of_file,
        estimate=estimates.svd_of_file,
        checker=_right_for_file,
        summary_of=_singular_values,
        parts=_readers,
        extra={"tolerance": (Tolerance, 0.1)},
    ),
)
