"""The table of workloads: each plain function with its title, its estimate and its check."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench import formats
from workbench.workloads import (
    alone,
    ancestry,
    array,
    checks,
    estimates,
    file,
    frames,
    genotypes,
    presets,
    svd,
)
from workbench.workloads.ancestry import certificate_json
from workbench.workloads.fields import Anonymous, Endpoint, Layout, Raw, Tolerance
from workbench.workloads.generators import TILE, fast_reason
from workbench.workloads.layout import cut, working_type
from workbench.workloads.opening import find_array, options_of
from workbench.workloads.registry import Resolution, Template, arguments
from workbench.workloads.sizes import Wish, chunks_of, shape_of
from workbench.workloads.values import BadParameterError, Check, Needs, Surroundings

if TYPE_CHECKING:
    from distributed import Client


def _random_array(
    values: dict[str, Any],
    given: Mapping[str, Any],
    around: Surroundings,
    *,
    workload: str,
    layout: Layout,
    **liked: Any,
) -> Resolution:
    stored = np.dtype(values["dtype"])
    worked = stored if stored.kind == "f" else np.dtype("float64")
    wish = Wish(workload, layout, worked, stored, **liked)
    shape = shape_of(wish, values, given, around)
    chunks, notes = chunks_of(wish, shape, values["chunks"], around)
    rest = {name: value for name, value in values.items() if name not in ("size", "shape", "chunks")}
    return {"shape": shape, "chunks": chunks, **rest}, notes


_LARGE_SIDE = 50_000
_NOT_STORED = "nothing of a block is stored, and each is a task."
_IN_TILES = f"whole tiles of {TILE} × {TILE}, only one of which is in a thread's memory at a time."
_BLOCKS_OF: dict[str, dict[str, Any]] = {
    # Measured with two threads in November 2026: 1000 × 1000 were half as quick again as 4000 × 4000.
    "default_rng": {"block_bytes": 8_000_000},
    # Nothing but a tile is in memory, so blocks are as large as a thousandth of a second of scheduling doesn't show in.
    "tiles": {"block_bytes": 128 * 2**20, "multiple": TILE, "reason": _IN_TILES},
    "fast": {"block_bytes": 512 * 2**20, "multiple": TILE, "reason": _IN_TILES},
    # A GPU makes and adds up about 3e11 numbers a second, by estimate, and Dask spends a millisecond on a task.
    "fused": {"block_bytes": 8 * _LARGE_SIDE**2, "multiple": 4, "reason": _NOT_STORED},
    "RandomState": {},
}


def _summed(values: dict[str, Any], given: Mapping[str, Any], around: Surroundings, *, workload: str) -> Resolution:
    """Blocks that suit the generator, which on GPUs is CuPy's RandomState or a kernel of ours."""
    generator: str = values["generator"]
    told: tuple[str, ...] = ()
    if generator == "fused":
        told = ("Every number is made in a register and added up; none is stored.",)
        if around.threads is not None and not around.makes_on_gpu():
            raise BadParameterError(
                f"generator of {workload} is 'fused', which is for GPUs. Give tiles or fast, or use a cluster on GPUs.",
                "generator",
            )
    elif generator != "RandomState" and around.makes_on_gpu():
        told = (
            f"GPUs make the numbers with CuPy's RandomState: generator={generator} is for processors, fused for GPUs.",
        )
        generator = "RandomState"
    elif generator == "fast" and (reason := fast_reason()):
        raise BadParameterError(
            f"generator of {workload} is 'fast'. Give tiles, or install numba: {reason}", "generator"
        )
    layout = _random_array(values, given, around, workload=workload, layout="square", **_BLOCKS_OF[generator])
    if generator == "fused" and max(layout[0]["chunks"]) < _LARGE_SIDE < min(layout[0]["shape"]):
        told = (*told, f"Fewer blocks cost nothing, as they are not stored: chunks={_LARGE_SIDE} takes least time.")
    return layout[0] | {"generator": generator}, (*told, *layout[1])


def _value(results: Mapping[str, Any]) -> dict[str, Any]:
    return {"value": float(results["value"])} | _made(results)


def _made(results: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds that it took to make the array, where that isn't in the time."""
    seconds = results.get("seconds_to_make")
    return {} if seconds is None else {"seconds_to_make": float(seconds)}


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
    n_bytes = math.prod(resolved["shape"]) * np.dtype(resolved["dtype"]).itemsize
    keep, told = _kept(resolved, n_bytes, around)
    if resolved["dtype"] == "uint8" and around.makes_on_gpu():
        notes = (
            *notes,
            "GPUs draw 0, 1 and 2 with a kernel of ours: for CuPy's randint each block would be waited for.",
        )
    return resolved | {"keep": keep}, (*notes, *told)


def _kept(resolved: Mapping[str, Any], n_bytes: int, around: Surroundings) -> tuple[bool, tuple[str, ...]]:
    """Whether method=workbench holds the array between its passes, and why not."""
    if resolved["compute"] or resolved["method"] == "dask" or resolved.get("persist"):
        return not resolved["compute"], ()
    if around.keeps(n_bytes):
        return True, ()
    more = f"{formats.size(n_bytes)} are more than {around.too_much}: made or read again at each pass."
    return False, (more,)


def _array_of_file(values: dict[str, Any], given: Mapping[str, Any], around: Surroundings) -> Resolution:
    asked = {name: values[name] for name in ("anon", "endpoint_url")}
    options = options_of("svd_of_file", values["path"], **asked)
    try:
        found = find_array(values["path"], values["array"], raw=values["raw"], options=options)
    except BadParameterError as err:
        raise BadParameterError(f"{err.parameter} of svd_of_file: {err}", err.parameter) from err
    blocks, chunks, notes = cut(found, values["k"], values["chunks"], around)
    facts: dict[str, Any] = {
        "path": found.path,
        "array": found.array,
        "options": options,
        "format": found.format,
        "unpack": found.unpack,
        "remarks": found.remarks,
        "shape": found.shape,
        "blocks": blocks,
        "chunks": chunks,
        "stored": working_type(found.dtype) if found.unpack else found.dtype.newbyteorder("=").name,
        "dtype": working_type(found.dtype),
    }
    if found.dtype.name != facts["dtype"]:
        notes = (*notes, f"The array holds {found.dtype.name} and is decomposed as {facts['dtype']}.")
    notes = (*found.remarks, *notes)
    n_bytes = math.prod(found.shape) * np.dtype(facts["dtype"]).itemsize
    keep, told = (True, ()) if values["k"] is None else _kept(values, n_bytes, around)
    return values | facts | {"keep": keep}, (*notes, *told)


def _matrix_of_file(resolved: Mapping[str, Any]) -> Any:
    names = ("path", "array", "options", "format", "unpack", "shape", "blocks", "chunks", "stored", "dtype", "center")
    # The check goes over the blocks one by one, so none may wait for the means of the columns.
    return file.matrix_of_file(**arguments({name: resolved[name] for name in names}), compute=True)


def _generator(resolved: Mapping[str, Any]) -> tuple[Any, ...]:
    return array.random_normal, array.sum_in_tiles


def _readers(resolved: Mapping[str, Any]) -> tuple[Any, ...]:
    reader = file.READERS[resolved["format"]]
    parts: list[Callable[..., Any]] = [file.plain] if resolved["format"].startswith("zarr") else []
    parts += [file.unpacked] if resolved["unpack"] else []
    return *parts, reader, f'READERS = {{"{resolved["format"]}": {reader.__name__}}}', file.matrix_of_file


def _exact(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    return checks.svd_is_exact(_random_matrix(resolved), results, client)


def _close(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    x = _random_matrix(resolved)
    if resolved["method"] == "workbench":
        return checks.svd_is_certified(x, results, client)
    return checks.svd_is_close(x, results, resolved["tolerance"], client)


def _right_for_file(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    """Whether the answer is right, and of which numbers it is."""
    checked = _svd_of_file_is_right(resolved, results, client)
    return checked.model_copy(update={"what": " ".join((checked.what, *resolved["remarks"]))})


def _svd_of_file_is_right(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    x = _matrix_of_file(resolved)
    if resolved["k"] is None:
        return checks.svd_is_exact(x, results, client)
    if resolved["method"] == "workbench":
        return checks.svd_is_certified(x, results, client)
    return checks.svd_is_close(x, results, resolved["tolerance"], client)


def _with_input(
    estimate: Callable[[Mapping[str, Any], int], Needs], resolved: Mapping[str, Any], threads_per_worker: int
) -> Needs:
    """Add the array itself where it is held first, and isn't counted already."""
    needs = estimate(resolved, threads_per_worker)
    if not resolved["persist"] or not resolved.get("compute", True):
        return needs
    more = formats.size(needs.input_bytes)
    return needs.model_copy(
        update={
            "held_total": needs.held_total + needs.input_bytes,
            "kept": None if needs.kept is None else needs.kept + needs.input_bytes,
            "sentence": f"{needs.sentence} The array is made first and held, {more} more.",
        }
    )


def _singular_values(results: Mapping[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"singular_values": [float(value) for value in results["s"]]}
    if results.get("certificate") is not None:
        told["certificate"] = certificate_json(results["certificate"])
    return told | _made(results)


_SERVED: Mapping[str, tuple[Any, Any]] = {"anon": (Anonymous, False), "endpoint_url": (Endpoint | None, None)}
"""Fields on the server of a URL."""

TEMPLATES: tuple[Template, ...] = (
    Template(
        array.array_sum,
        title="Sum of an array",
        returns=("value",),
        small=("value",),
        resolver=partial(_summed, workload="array_sum"),
        estimate=estimates.streaming_sum,
        checker=checks.sum_is_expected,
        parts=_generator,
        summary_of=_value,
        presets=presets.SUM,
        alone=alone.SUM,
    ),
    Template(
        array.array_mean,
        title="Mean of an array",
        returns=("value",),
        small=("value",),
        resolver=partial(_summed, workload="array_mean"),
        estimate=estimates.streaming_sum,
        checker=checks.mean_is_expected,
        parts=_generator,
        summary_of=_value,
        presets=presets.MEAN,
        alone=alone.MEAN,
    ),
    Template(
        array.transpose_sum,
        title="Array plus its transpose",
        returns=("value", "seconds_to_make"),
        small=("value",),
        values=("seconds_to_make",),
        resolver=partial(_random_array, workload="transpose_sum", layout="square"),
        estimate=partial(_with_input, estimates.transposed_sum),
        checker=checks.transpose_sum_is_expected,
        summary_of=_value,
        parts=lambda _: (svd.held,),
        presets=presets.TRANSPOSE,
        reports_bandwidth=True,
        alone=alone.transposed(_random_matrix),
    ),
    Template(
        frames.dataframe_join,
        title="Join of two dataframes",
        returns=("rows", "total", "seconds_to_make"),
        small=("rows", "total"),
        values=("seconds_to_make",),
        resolver=frames.resolved_join,
        estimate=frames.join_needs,
        checker=frames.join_is_right,
        summary_of=frames.join_summary,
        presets=frames.PRESETS,
        on_gpus=("cudf", "cudf13"),
        parts=lambda _: (frames.table, svd.held),
        reports_bandwidth=True,
    ),
    Template(
        svd.tall_skinny_svd,
        title="SVD of a tall and skinny matrix",
        returns=("u", "s", "v", "seconds_to_make"),
        small=("s",),
        values=("seconds_to_make",),
        resolver=partial(_random_array, workload="tall_skinny_svd", layout="tall"),
        estimate=partial(_with_input, estimates.exact_svd),
        checker=_exact,
        summary_of=_singular_values,
        presets=presets.TALL,
        parts=lambda _: (svd.held,),
        alone=alone.decomposed(_random_matrix),
    ),
    Template(
        svd.compressed_svd,
        title="Compressed SVD",
        returns=("u", "s", "v", "certificate", "seconds_to_make"),
        small=("s",),
        values=("certificate", "seconds_to_make"),
        resolver=_compressible,
        estimate=partial(_with_input, estimates.approximate_svd),
        checker=_close,
        summary_of=_singular_values,
        presets=presets.COMPRESSED,
        parts=lambda _: (svd.random_matrix, svd.held),
        extra={"tolerance": (Tolerance, 0.25)},
        alone=alone.decomposed(_random_matrix),
    ),
    Template(
        file.svd_of_file,
        title="SVD of your own array",
        returns=("u", "s", "v", "certificate"),
        small=("s",),
        values=("certificate",),
        resolver=_array_of_file,
        estimate=estimates.svd_of_file,
        checker=_right_for_file,
        summary_of=_singular_values,
        parts=_readers,
        alone=alone.decomposed(lambda resolved: _matrix_of_file({**resolved, "center": False})),
        extra={
            "raw": (Raw, False),
            **_SERVED,
            "tolerance": (Tolerance, 0.1),
        },
    ),
    Template(
        genotypes.genotype_pca,
        title="Principal components of genotypes",
        returns=("components",),
        small=(),
        values=("components",),
        resolver=ancestry.resolved_pca,
        estimate=ancestry.pca_needs,
        checker=ancestry.components_are_right,
        summary_of=ancestry.pca_summary,
        extra=_SERVED,
    ),
    Template(
        genotypes.pack_genotypes,
        title="Pack genotypes",
        returns=("packed", "bytes_before", "bytes_after"),
        small=(),
        values=("packed", "bytes_before", "bytes_after"),
        resolver=ancestry.resolved_packing,
        estimate=ancestry.packing_needs,
        checker=ancestry.packed_is_the_same,
        summary_of=ancestry.packing_summary,
        by_processors=True,
        extra={**_SERVED, "to_endpoint_url": (Endpoint | None, None)},
    ),
)
