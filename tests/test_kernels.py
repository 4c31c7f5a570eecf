"""Kernels in CUDA C: compiled for devices without one, and right on a processor from the same text."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests import nvrtc
from tests.standin import on_host
from workbench.genotypes import kernels, packing
from workbench.linalg import cuda
from workbench.sent_code import _packed

Matrix = np.ndarray[Any, Any]

MOST_REGISTERS = {
    "sum_float64": 48,
    "sum_float32": 40,
    "decode_float32": 32,
    "decode_float64": 32,
    "count": 48,
    "draw": 32,
    "draw_counts": 32,
}
"""Of a thread; with 65 536 in a multiprocessor that has room for 2048 threads, 32 leave none of them out."""

SEED = 20_190_103
SHAPES = [(1, 1), (7, 3), (300, 4), (65, 203), (33, 20_001)]

# What a test asks of the functions that kernels share.
ASKING = """
extern "C" __global__ void ask_philox(const unsigned int *counter, const unsigned int *key, unsigned int *found)
{
    const Words words = philox(Words{{counter[0], counter[1], counter[2], counter[3]}}, key[0], key[1]);
    for (int i = 0; i < 4; ++i)
        found[i] = words.w[i];
}
"""
ASKING_NORMALS = """
extern "C" __global__ void ask_float64(const unsigned int *words, double *found)
{
    double z[2];
    const unsigned int *w = words + 4 * blockIdx.x;
    normals(Words{{w[0], w[1], w[2], w[3]}}, z);
    for (int i = 0; i < 2; ++i)
        found[2 * blockIdx.x + i] = z[i];
}

extern "C" __global__ void ask_float32(const unsigned int *words, float *found)
{
    float z[4];
    const unsigned int *w = words + 4 * blockIdx.x;
    normals(Words{{w[0], w[1], w[2], w[3]}}, z);
    for (int i = 0; i < 4; ++i)
        found[4 * blockIdx.x + i] = z[i];
}
"""


@pytest.fixture
def on_processor() -> Callable[..., Any]:
    """Return a function that runs a kernel of a file on this processor; `more` is added to the file's text."""
    if on_host.compiler() is None:
        pytest.skip("Kernels on a processor need a C++ compiler, and there is none.")
    return lambda name, file, more="": on_host.kernel(cuda.source(file) + more, name)


def philox(counter: Matrix, key: tuple[int, int]) -> Matrix:
    """Philox4x32-10 in NumPy, of counters (…, 4)."""
    a, b, c, d = (np.asarray(counter, np.uint64)[..., i] for i in range(4))
    low = np.uint64(2**32 - 1)
    for i in range(10):
        p, q = np.uint64(0xD2511F53) * a, np.uint64(0xCD9E8D57) * c
        first, second = ((word + i * step) % 2**32 for word, step in zip(key, (0x9E3779B9, 0xBB67AE85), strict=True))
        a, c = q >> np.uint64(32) ^ b ^ np.uint64(first), p >> np.uint64(32) ^ d ^ np.uint64(second)
        b, d = q & low, p & low
    return np.stack([a, b, c, d], axis=-1)


def words_at(rows: Matrix, places: Matrix, use: int) -> Matrix:
    """Words of all of these places in all of these rows."""
    row, place = np.meshgrid(rows.astype(np.uint64), places.astype(np.uint64), indexing="ij")
    low, shift = np.uint64(2**32 - 1), np.uint64(32)
    return philox(np.stack([place & low, place >> shift, row & low, row >> shift], axis=-1), (SEED, use))


def normals(words: Matrix, dtype: str) -> Matrix:
    """Box's and Muller's numbers in float64 of words (…, 4)."""
    if dtype == "float64":
        uniform, turns = (((words[..., i] << np.uint64(32) | words[..., i + 1]) >> np.uint64(11)) for i in (0, 2))
        uniform, turns = (uniform.astype(float) + 1)[..., None] * 2.0**-53, turns.astype(float)[..., None] * 2.0**-53
    else:
        uniform, turns = words[..., ::2].astype(float) * 2.0**-32 + 2.0**-33, words[..., 1::2].astype(float) * 2.0**-32
    radius, angle = np.sqrt(-2 * np.log(uniform)), 2 * np.pi * turns
    z = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
    return z.reshape(*z.shape[:-2], -1)


def array(top: int, bottom: int, left: int, right: int, dtype: str) -> Matrix:
    """Return the normal numbers that a kernel sums, in float64."""
    each, use = (2, 1) if dtype == "float64" else (4, 2)
    groups = np.arange(left // each, -(-right // each))
    z = normals(words_at(np.arange(top, bottom), groups, use), dtype).reshape(bottom - top, -1)
    return z[:, left - groups[0] * each :][:, : right - left]


# On a processor


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ([0, 0, 0, 0], [0, 0], "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([2**32 - 1] * 4, [2**32 - 1] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_answers_published_with_it(
    on_processor: Callable[..., Any], counter: list[int], key: list[int], answer: str
) -> None:
    # kat_vectors of Random123: zeros, ones, and the digits of pi.
    found = np.zeros(4, np.uint32)
    on_processor("ask_philox", "normal_sum", ASKING)(
        (1,), (1,), (np.array(counter, np.uint32), np.array(key, np.uint32), found)
    )
    expected = [int(word, 16) for word in answer.split()]
    assert found.tolist() == expected == philox(np.array(counter), (key[0], key[1])).tolist()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_normal_numbers_are_box_and_mullers_to_the_last_places(on_processor: Callable[..., Any], dtype: str) -> None:
    words = words_at(np.arange(50), np.arange(1000), 9).reshape(-1, 4).astype(np.uint32)
    words[:3] = [[0] * 4, [2**32 - 1] * 4, [2**31] * 4]
    found = np.zeros((len(words), 2 if dtype == "float64" else 4), dtype)
    on_processor(f"ask_{dtype}", "normal_sum", ASKING_NORMALS)((len(words),), (1,), (words, found))
    expected = normals(words.astype(np.uint64), dtype)
    assert np.isfinite(found).all()
    # Near the largest uniform number float32 has no more places for 1 - u, on which the radius rests.
    np.testing.assert_allclose(found, expected, rtol=0, atol=4e-15 if dtype == "float64" else 4e-4)
    near = (np.abs(found - expected) <= 8 * np.finfo(dtype).eps).mean()
    assert near > 0.99


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_normal_numbers_have_the_moments_of_the_normal_distribution(
    on_processor: Callable[..., Any], dtype: str
) -> None:
    words = words_at(np.arange(100), np.arange(10_000), 9).reshape(-1, 4).astype(np.uint32)
    found = np.zeros((len(words), 2 if dtype == "float64" else 4), dtype)
    on_processor(f"ask_{dtype}", "normal_sum", ASKING_NORMALS)((len(words),), (1,), (words, found))
    flat, numpy = found.ravel().astype(float), np.random.default_rng(0).standard_normal(found.size)
    expected = {1: (0, 1), 2: (1, 2), 3: (0, 15), 4: (3, 96), 6: (15, 10170)}  # power: (mean, variance)
    for power, (mean, variance) in expected.items():
        apart = 6 * np.sqrt(variance / flat.size)
        assert abs((flat**power).mean() - mean) < apart, power
        assert abs((flat**power).mean() - (numpy**power).mean()) < 2 * apart, power
    assert stats.kstest(flat, "norm").pvalue > 1e-6
    for lag in (1, 2, 3, 4, 20_000, 40_000):
        assert abs((flat[lag:] * flat[:-lag]).mean()) < 6 / np.sqrt(flat.size), lag


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("rows", "columns"), [((0, 300), (0, 1000)), ((7, 8), (5, 6)), ((1, 202), (3, 402)), ((2**33, 2**33 + 5), (1, 18))]
)
def test_the_sum_is_that_of_every_other_row_and_column_wherever_a_block_begins(
    on_processor: Callable[..., Any], dtype: str, rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    x = 10 + 2 * array(*rows, *columns, dtype) + 1
    chosen = np.outer(np.arange(*rows) % 2 == 0, np.arange(*columns) % 2 == 0)
    for grid, block in (((1, 1), (1,)), ((2, 16), (32,))):
        sums = np.zeros((grid[0] * grid[1] * block[0], 2))
        parameters = (*rows, *columns, 10.0, 2.0, SEED, sums)
        on_processor(f"sum_{dtype}", "normal_sum")(grid, block, parameters)
        expected = [x[chosen].sum(), x[~chosen].sum()]
        np.testing.assert_allclose(sums.sum(axis=0), expected, rtol=1e-12 if dtype == "float64" else 1e-5)


@pytest.mark.parametrize(("height", "samples"), SHAPES)
def test_genotypes_are_decoded_as_unpack_decodes_them_bit_for_bit(
    on_processor: Callable[..., Any], height: int, samples: int
) -> None:
    packed = np.random.default_rng(0).integers(0, 256, (height, packing.packed_width(samples)), dtype=np.uint8)
    n_bytes = packed.shape[1]
    counts = packing.unpack(packed, 4 * n_bytes)
    groups = n_bytes + 3
    shape = cuda.grid(groups, height), (cuda.THREADS,)
    for dtype in ("float32", "float64"):
        means = np.random.default_rng(1).random(height).astype(dtype)
        found = np.full((height, 4 * groups), np.nan, dtype)
        on_processor(f"decode_{dtype}", "genotypes")(*shape, (packed, n_bytes, height, means, found, groups))
        expected = np.where(counts == 255, means[:, None], counts.astype(dtype))
        np.testing.assert_array_equal(found[:, : 4 * n_bytes], expected)
        np.testing.assert_array_equal(found[:, 4 * n_bytes :], means[:, None] * (np.arange(12) == 0))


@pytest.mark.parametrize(("height", "samples"), SHAPES)
def test_samples_are_counted_as_on_the_host(on_processor: Callable[..., Any], height: int, samples: int) -> None:
    packed = np.random.default_rng(0).integers(0, 256, (height, packing.packed_width(samples)), dtype=np.uint8)
    found = np.zeros((height, 3), np.int32)
    parameters = (packed, packed.shape[1], height, int(kernels.last_byte(samples)), found)
    on_processor("count", "genotypes")((-(-height // 8),), (32, 8), parameters)
    np.testing.assert_array_equal(found, kernels.counted(packed, samples)[:, 1:])


@pytest.mark.parametrize(("height", "samples"), SHAPES)
def test_genotypes_that_are_drawn_follow_from_philox_bit_for_bit(
    on_processor: Callable[..., Any], height: int, samples: int
) -> None:
    rng, populations = np.random.default_rng(0), min(3, samples)
    n_bytes, first = packing.packed_width(samples), 2**32 - 5
    levels = np.sort(rng.integers(0, 2**31 + 1, (height, populations, 3), dtype=np.uint32), axis=2)
    levels[0] = [0, 2**31, 2**31]  # always one copy
    population = np.arange(samples, dtype=np.int32) * populations // samples
    packed = np.full((height, n_bytes), 0xFF, np.uint8)
    parameters = (first, height, samples, levels, population, populations, SEED, packed, n_bytes)
    on_processor("draw", "genotypes")(cuda.grid(n_bytes, height), (cuda.THREADS,), parameters)
    words = words_at(first + np.arange(height), np.arange(n_bytes), 3).reshape(height, -1)[:, :samples] >> np.uint64(1)
    expected = (words[:, :, None] >= levels[:, population]).sum(axis=2).astype(np.uint8)
    np.testing.assert_array_equal(packed, packing.pack(expected, missing=3))
    assert (packing.unpack(packed, samples)[0] == 1).all()


@pytest.mark.parametrize(
    ("rows", "columns"),
    [((0, 300), (0, 1000)), ((7, 8), (5, 6)), ((3, 9), (15, 34)), ((2**33, 2**33 + 5), (8, 2**33 % 1000 + 31))],
)
def test_counts_that_are_drawn_follow_from_philox_bit_for_bit(
    on_processor: Callable[..., Any], rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    (top, bottom), (left, right) = rows, columns
    groups = np.arange(left // 16, -(-right // 16))
    rest = words_at(np.arange(*rows), groups, 4)[..., None] * np.uint64(3) ** np.arange(1, 5, dtype=np.uint64)
    digits = (rest >> np.uint64(32)) % np.uint64(3)
    expected = digits.reshape(bottom - top, -1)[:, left - 16 * groups[0] :][:, : right - left]
    for around in (0, 3):  # a block begins where its array does, and where a multiple of eight bytes doesn't
        held = np.full(expected.size + 2 * around, 0xFF, np.uint8)
        block = held[around : around + expected.size].reshape(expected.shape)
        grid = cuda.grid(len(groups), bottom - top)
        on_processor("draw_counts", "counts")(grid, (cuda.THREADS,), (top, bottom, left, right, SEED, block))
        np.testing.assert_array_equal(block, expected)
        assert (held[:around] == 0xFF).all()
        assert (held[around + expected.size :] == 0xFF).all()


def test_counts_that_are_drawn_are_as_likely_and_independent(on_processor: Callable[..., Any]) -> None:
    block = np.zeros((1000, 3000), np.uint8)
    parameters = (0, *block.shape[:1], 0, *block.shape[1:], SEED, block)
    on_processor("draw_counts", "counts")(cuda.grid(188, 1000), (cuda.THREADS,), parameters)
    assert stats.chisquare(np.bincount(block.ravel(), minlength=3)).pvalue > 1e-6
    for apart in ((0, 1), (0, 3), (0, 4), (0, 16), (1, 0)):  # in a word, a call of Philox, and beyond
        both = 3 * block[apart[0] :, apart[1] :] + block[: 1000 - apart[0], : 3000 - apart[1]]
        assert stats.chisquare(np.bincount(both.ravel(), minlength=9)).pvalue > 1e-6, apart


# For devices, without one


def test_threads_that_compile_the_same_at_once_all_have_it(
    on_processor: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(on_host.library.__wrapped__, [cuda.source("genotypes")] * 4))
    assert len({library._name for library in found}) == 1
    assert len(list((tmp_path / "kernels-on-host").iterdir())) == 1


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="NVRTC is for Linux, where tests install it.")


@on_linux
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("file", cuda.KERNELS)
def test_a_kernel_compiles_for_a_device_with_few_registers_and_spills_none(file: str, architecture: str) -> None:
    takes = nvrtc.takes(nvrtc.compiled(nvrtc.library(), cuda.source(file), architecture))
    assert sorted(takes) == sorted(cuda.KERNELS[file])
    assert {name: each for name, each in takes.items() if each.registers > MOST_REGISTERS[name]} == {}
    assert {name: each for name, each in takes.items() if each.local_bytes} == {}


@on_linux
def test_a_kernel_that_spills_or_does_not_compile_is_seen() -> None:
    found = nvrtc.library()
    source = (
        'extern "C" __global__ void spills(float *x, int n)\n'
        "{ float a[64]; for (int i = 0; i < 64; ++i) a[i] = x[i * n];\n"
        "for (int i = 0; i < n; ++i) a[i * n % 64] += 1; x[0] = a[n]; }"
    )
    assert nvrtc.takes(nvrtc.compiled(found, source, "sm_90"))["spills"].local_bytes == 256
    with pytest.raises(ValueError, match=r'sm_90: .*identifier "unknown" is undefined'):
        nvrtc.compiled(found, "__global__ void wrong() { unknown(); }", "sm_90")


@pytest.mark.parametrize("file", cuda.KERNELS)
def test_kernels_take_arrays_and_what_cupy_makes_of_pythons_numbers(file: str) -> None:
    kernels = dict(re.findall(r'extern "C" __global__ void (\w+)\(([^)]*)\)', cuda.source(file)))
    assert tuple(kernels) == cuda.KERNELS[file]
    for parameters in kernels.values():
        scalars = {each.rpartition(" ")[0].strip() for each in parameters.split(",") if "*" not in each}
        assert scalars <= {"long long", "double"}


def test_kernels_travel_to_workers_with_this_package(tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {_packed(tmp_path)!r}); from workbench.linalg import cuda\n"
    code += "print(cuda.__file__, [len(cuda.source(file)) for file in cuda.KERNELS])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "workbench-" in done.stdout
    assert done.stdout.endswith(f"{[len(cuda.source(file)) for file in cuda.KERNELS]}\n")
