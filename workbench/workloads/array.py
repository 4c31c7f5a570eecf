"""Sums and means over random arrays: functions, needs, checks and published results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import dask.array as da
import numpy as np

from workbench import formats
from workbench.workloads import generators
from workbench.workloads.code import computing, random_code, to_host
from workbench.workloads.declaring import workload
from workbench.workloads.estimates import Matrix, matrix, with_input
from workbench.workloads.fields import Chunks, FloatType, Generator, Persist, Seed, Shape, Sized, Words
from workbench.workloads.generators import TILE
from workbench.workloads.presets import FIRST_STEPS, UCX, Preset
from workbench.workloads.registry import Resolution, Template, arguments
from workbench.workloads.sizes import random_array
from workbench.workloads.svd import held, made, matrix_of, uniform_code
from workbench.workloads.values import Alone, BadParameterError, Check, Needs, Surroundings

if TYPE_CHECKING:
    from distributed import Client

Reduction = Annotated[Literal["sum", "mean"], Words("Reduction over the elements.")]


def random_normal(
    shape: tuple[int, int], chunks: int | tuple[int, int] | str, dtype: str, seed: int, generator: str
) -> da.Array:
    """Return normal numbers of mean 10 and standard deviation 1, from a generator of NumPy's or CuPy's."""
    rs = da.random.RandomState(seed) if generator == "RandomState" else da.random.default_rng(seed)
    return rs.normal(10, 1, size=shape, chunks=chunks).astype(dtype)


def sum_in_tiles(
    shape: tuple[int, int], chunks: int | tuple[int, int] | str, dtype: str, seed: int, generator: str
) -> da.Array:
    """Sum every other row and column of such numbers plus 1, within the cache, or a register."""
    from workbench.workloads.generators import sum_every_other

    blocks = da.core.normalize_chunks(chunks, shape, dtype=dtype)
    engine = {"tiles": "numpy", "fast": "fast", "fused": "device"}[generator]
    return sum_every_other(10, 1, chunks=blocks, dtype=dtype, seed=seed, engine=engine)


def array_sum(
    shape: Annotated[Shape, Sized("square", "2 GiB")],
    chunks: Chunks = "auto",
    dtype: FloatType = "float64",
    seed: Seed = 0,
    generator: Generator = "tiles",
    reduction: Reduction = "sum",
) -> da.Array:
    """Compute the sum or mean of every other row and column of `x + 1` for a random array x.

    The elements of x are normal with mean 10 and standard deviation 1. Each block is created, reduced and discarded, so
    the array can be much larger than memory. From the post "GPU Dask Arrays, first steps" (2019); generator=RandomState
    runs the post's code. tiles and fast create the same kind of numbers without leaving the processor's cache, and
    fused creates them on GPUs without storing any. When the post was written, reduction=mean failed on GPUs.
    """
    if generator in ("tiles", "fast", "fused"):
        total = sum_in_tiles(shape, chunks, dtype, seed, generator)
        return total if reduction == "sum" else total / (-(-shape[0] // 2) * -(-shape[1] // 2))
    x = random_normal(shape, chunks, dtype, seed, generator)
    if reduction == "mean":
        return (x + 1)[::2, ::2].mean()
    return (x + 1)[::2, ::2].sum()


def transpose_sum(
    shape: Annotated[Shape, Sized("square", "1 GiB")],
    chunks: Chunks = "auto",
    dtype: FloatType = "float64",
    seed: Seed = 0,
    persist: Persist = False,
) -> tuple[da.Array, float | None]:
    """Compute the sum of a random square array and its transpose.

    Each block is added to the block across the diagonal, so nearly every block moves between workers. This tests the
    network more than the processors. The elements are uniform between 0 and 1. From the post "Experiments in high
    performance networking with UCX and DGX" (2019).
    """
    rs = da.random.RandomState(seed)
    x, seconds_to_make = rs.random(size=shape, chunks=chunks).astype(dtype), None
    if persist:
        x, seconds_to_make = held(x)
    return (x + x.T).sum(), seconds_to_make


_LARGE_SIDE = 50_000
_NOT_STORED = "nothing of a block is stored, and each is a task."
_IN_TILES = f"whole tiles of {TILE} × {TILE}, only one of which is in a thread's memory at a time."
_BLOCKS_OF: dict[str, dict[str, Any]] = {
    # Measured with two threads in November 2026: 1000 × 1000 was 1.5 times as fast as 4000 × 4000.
    "default_rng": {"block_bytes": 8_000_000},
    # Only a tile is in memory, so blocks are large enough to hide a millisecond of scheduling.
    "tiles": {"block_bytes": 128 * 2**20, "multiple": TILE, "reason": _IN_TILES},
    "fast": {"block_bytes": 512 * 2**20, "multiple": TILE, "reason": _IN_TILES},
    # A GPU draws and adds about 3e11 numbers a second, by estimate, and Dask spends a millisecond on a task.
    "fused": {"block_bytes": 8 * _LARGE_SIDE**2, "multiple": 4, "reason": _NOT_STORED},
    "RandomState": {},
}


def _summed(given: Mapping[str, Any], cluster: Surroundings, *, workload: str, **values: Any) -> Resolution:
    """Choose blocks that suit the generator, which on GPUs is CuPy's RandomState or our kernel."""
    generator: str = values["generator"]
    notes: tuple[str, ...] = ()
    if generator == "fused":
        notes = ("Every number is made in a register and added up; none is stored.",)
        if cluster.threads is not None and not cluster.makes_on_gpu():
            raise BadParameterError(
                f"generator of {workload} is 'fused', which is for GPUs. Give tiles or fast, or use a cluster on GPUs.",
                "generator",
            )
    elif generator != "RandomState" and cluster.makes_on_gpu():
        notes = (
            f"GPUs make the numbers with CuPy's RandomState: generator={generator} is for processors, fused for GPUs.",
        )
        generator = "RandomState"
    layout = random_array(given, cluster, workload=workload, layout="square", liked=_BLOCKS_OF[generator], **values)
    if generator == "fused" and max(layout[0]["chunks"]) < _LARGE_SIDE < min(layout[0]["shape"]):
        notes = (*notes, f"Fewer blocks cost nothing, as they are not stored: chunks={_LARGE_SIDE} takes least time.")
    return layout[0] | {"generator": generator}, (*notes, *layout[1])


_TILED = ("tiles", "fast", "fused")
"""Generators that sum their numbers in the processor's cache or in registers."""
_PARTIAL_SUMS = 20 * 2**20
"""Bytes on a GPU for the sums of a block's threads, and for their total."""


def _streaming_sum(threads_per_worker: int, **resolved: Any) -> Needs:
    """Estimate one pass in which blocks are made and forgotten, or only tiles of them."""
    x = matrix(resolved)
    generator = resolved.get("generator", "RandomState")
    if generator in _TILED:
        return _tiled_sum(x, generator, threads_per_worker)
    # A block and `x + 1`, or the generator's float64, which is twice as large as a block of float32.
    held = (x.made + x.block) * threads_per_worker * 5 // 4
    return x.needs(
        held=held,
        sentence=f"Makes {formats.size(x.n_bytes)} in one pass and forgets each block: "
        f"{formats.size(held)} in a worker at a time is enough.",
    )


def _tiled_sum(x: Matrix, generator: str, threads_per_worker: int) -> Needs:
    # The tile as drawn and in the requested dtype, and the part that is added.
    fused, tile = generator == "fused", 5 * TILE**2 * 8 // 2
    held = (_PARTIAL_SUMS if fused else tile) * threads_per_worker
    return x.needs(
        held=held,
        sentence=f"Makes {formats.size(x.n_bytes)} in one pass, and "
        f"{'stores none of it' if fused else 'never holds more of it than a tile'}: "
        f"{formats.size(held)} in a worker at a time is enough.",
    )


def _transposed_sum(threads_per_worker: int, **resolved: Any) -> Needs:
    """Estimate one pass in which a block waits for the one across the diagonal."""
    x = matrix(resolved)
    # Measured: a worker holds three blocks in each thread and three that wait, whatever the array's size, and
    # three more in transfer if there are several workers.
    extra = x.made - x.block
    held = (3 * threads_per_worker + 3) * x.block + threads_per_worker * extra
    return x.needs(
        held=held,
        received=3 * x.block,
        sentence=f"Makes {formats.size(x.n_bytes)} in one pass; blocks wait for those across the diagonal, "
        f"{formats.size(held + 3 * x.block)} in a worker at a time, and nearly all of it travels.",
    )


def _value(results: Mapping[str, Any]) -> dict[str, Any]:
    return {"value": float(results["value"])} | made(results)


_SIGMAS = 6.0
"""Standard deviations allowed: a correct answer exceeds them once in 500 million runs."""


def _is_expected(results: Mapping[str, Any], client: Client | None, **resolved: Any) -> Check:
    """Compare the sum or mean of n normal elements of mean 11 and deviation 1 with 11 n or 11."""
    count = _every_other(resolved["shape"])
    if resolved["reduction"] == "mean":
        return _statistical(resolved, results, 11.0, 1 / math.sqrt(count), "the mean of 10 plus 1")
    return _statistical(resolved, results, 11.0 * count, math.sqrt(count), "11 for each element")


def _transpose_sum_is_expected(results: Mapping[str, Any], client: Client | None, **resolved: Any) -> Check:
    """Compare twice the sum of n uniform elements with n; its deviation is 2 sqrt(n / 12)."""
    count = math.prod(resolved["shape"])
    return _statistical(resolved, results, float(count), math.sqrt(count / 3), "twice a half for each element")


def _every_other(shape: list[int]) -> int:
    return math.prod(math.ceil(length / 2) for length in shape)


def _statistical(
    resolved: Mapping[str, Any], results: Mapping[str, Any], expected: float, deviation: float, why: str
) -> Check:
    value = float(results["value"])
    # Pairwise summation: rounding grows with the logarithm of the length, which is below 64.
    bound = _SIGMAS * deviation + 64 * float(np.finfo(resolved["dtype"]).eps) * abs(expected)
    passed = bool(abs(value - expected) <= bound)
    words = "within" if passed else "outside"
    range_ = f"{expected:.10g} ± {bound:.3g}"
    return Check(
        passed=passed,
        what=f"{value:.10g} is {words} {range_}: {why}, and {_SIGMAS:g} standard deviations of chance.",
    )


def _normal(resolved: Mapping[str, Any]) -> da.Array:
    options = arguments(random_normal, resolved)
    if options["generator"] not in ("tiles", "fast"):
        return random_normal(**options)
    blocks = da.core.normalize_chunks(options["chunks"], options["shape"], dtype=options["dtype"])
    engine: generators.Engine = "numpy" if options["generator"] == "tiles" else "fast"
    return generators.normal(10, 1, chunks=blocks, dtype=options["dtype"], seed=options["seed"], engine=engine)


SUM = (
    Preset(
        name="post",
        title="2 TB, the sum of the post: 1 min 37 s on one V100, 19 s on eight",
        source=FIRST_STEPS,
        parameters={"shape": [500_000, 500_000], "chunks": [10_000, 10_000], "generator": "RandomState"},
    ),
)


TRANSPOSE = (
    Preset(
        name="post",
        title="40,000 × 40,000 in blocks of 128 MiB, made first and then timed",
        source=UCX,
        parameters={"shape": [40_000, 40_000], "chunks": "128 MiB", "persist": True},
        profile="ucx",
    ),
)


def _sum_code(on_gpu: bool, **resolved: Any) -> str:
    """Return the notebook cell of the sum or mean of a random array."""
    if resolved["generator"] in _TILED:
        return computing(array_sum, arguments(array_sum, resolved), ("value",), (), on_gpu)
    making = random_code(f"{resolved['generator']}({resolved['seed']}).normal(10, 1, ", resolved)
    value = f"value = (x + 1)[::2, ::2].{resolved['reduction']}()\nvalue{to_host(on_gpu)}"
    return f"import dask.array as da\n\n{making}\n{value}"


def _transpose_code(on_gpu: bool, **resolved: Any) -> str:
    """Return the notebook cell of the sum of a random array and its transpose."""
    return f"import dask.array as da\n\n{uniform_code(resolved)}\nvalue = (x + x.T).sum()\nvalue{to_host(on_gpu)}"


TEMPLATES = (
    Template(
        workload(
            title="Sum or mean of an array",
            prepare=partial(_summed, workload="array_sum"),
            needs=_streaming_sum,
            check=_is_expected,
            code=_sum_code,
        )(array_sum),
        returns=("value",),
        small=("value",),
        imports=lambda resolved: {"numba": "choose generator=tiles"} if resolved["generator"] == "fast" else {},
        summary_of=_value,
        presets=SUM,
        alone=Alone(
            _normal,
            lambda xp, x, resolved: {"value": getattr((x + 1)[::2, ::2], resolved["reduction"])()},
            copies=2,
        ),
    ),
    Template(
        workload(
            title="Array plus its transpose",
            prepare=partial(random_array, workload="transpose_sum", layout="square"),
            needs=partial(with_input, _transposed_sum),
            check=_transpose_sum_is_expected,
            code=_transpose_code,
        )(transpose_sum),
        returns=("value", "seconds_to_make"),
        small=("value",),
        values=("seconds_to_make",),
        summary_of=_value,
        presets=TRANSPOSE,
        reports_bandwidth=True,
        alone=Alone(matrix_of, lambda xp, x, _: {"value": (x + x.T).sum()}, copies=2),
    ),
)
