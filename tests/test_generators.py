"""Random arrays made tile by tile: the same for all chunks, normal, and by the generators that are promised."""

import subprocess
import sys
from itertools import pairwise

import dask
import numpy as np
import pytest
from scipy import stats

from workbench.errors import BadInputError
from workbench.workloads.generators import LANES, TILE, normal, sum_every_other

ENGINES = ("numpy", "fast")


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="single-threaded"):
        yield


def cut(length, *edges):
    marks = (0, *edges, length)
    return tuple(b - a for a, b in pairwise(marks))


@pytest.fixture(params=ENGINES)
def engine(request):
    if request.param == "fast":
        pytest.importorskip("numba", reason="the extra `fast` is not installed")
    return request.param


def test_the_array_does_not_depend_on_its_chunks(engine):
    whole = normal(10, 1, chunks=((900,), (700,)), seed=5, engine=engine).compute()
    for rows, columns in ((cut(900, 1, 255, 256, 511), cut(700, 300)), (cut(900, 512), cut(700, 1, 2, 699))):
        other = normal(10, 1, chunks=(rows, columns), seed=5, engine=engine)
        assert other.chunks == (rows, columns)
        np.testing.assert_array_equal(other.compute(), whole)


def test_another_seed_and_each_tile_give_other_numbers(engine):
    x = normal(0, 1, chunks=((2 * TILE,), (2 * TILE,)), seed=1, engine=engine).compute()
    y = normal(0, 1, chunks=((2 * TILE,), (2 * TILE,)), seed=2, engine=engine).compute()
    tiles = [array[i : i + TILE, j : j + TILE].ravel() for array in (x, y) for i in (0, TILE) for j in (0, TILE)]
    correlation = np.corrcoef(tiles) - np.eye(len(tiles))
    assert np.abs(correlation).max() < 6 / TILE
    assert len(np.unique(np.concatenate(tiles))) > 0.999 * 8 * TILE**2


@pytest.mark.parametrize(("rows", "columns"), [((600,), (700,)), ((1, 256, 300), (255, 3, 257)), ((1,), (1,))])
def test_the_sum_made_in_the_cache_is_that_of_the_array(engine, rows, columns):
    x = normal(10, 1, chunks=(rows, columns), seed=3, engine=engine)
    expected = (x + 1)[::2, ::2].sum().compute()
    assert sum_every_other(10, 1, chunks=(rows, columns), seed=3, engine=engine).compute() == pytest.approx(
        expected, rel=1e-12
    )


def test_float32_is_the_same_array_rounded(engine):
    chunks = ((300,), (300,))
    double = normal(10, 2, chunks=chunks, engine=engine).compute()
    single = normal(10, 2, chunks=chunks, engine=engine, dtype="float32")
    assert single.dtype == single.compute().dtype == np.float32
    np.testing.assert_allclose(single.compute(), double, rtol=2e-7)
    assert sum_every_other(10, 2, chunks=chunks, engine=engine, dtype="float32").dtype == np.float32


def test_the_numbers_are_normal_and_independent(engine):
    x = normal(0, 1, chunks=((2048,), (1024,)), seed=11, engine=engine).compute()
    flat, n = x.ravel(), x.size
    assert stats.kstest(flat, "norm").pvalue > 1e-6
    expected = {1: (0, 1), 2: (1, 2), 3: (0, 15), 4: (3, 96), 6: (15, 10170)}  # power: (mean, variance)
    for power, (mean, variance) in expected.items():
        assert abs((flat**power).mean() - mean) < 6 * np.sqrt(variance / n), power
    for lag in (1, 2, 31, 32, 33, 63, 64, 65, 255, 256, 1024, 65536):
        assert abs((flat[lag:] * flat[:-lag]).mean()) < 6 / np.sqrt(n), lag
        assert abs((flat[lag:] ** 2 * flat[:-lag] ** 2).mean() - 1) < 6 * np.sqrt(8 / n), lag
    # Neighbours fall evenly into the squares of a grid that each axis cuts into 16 parts of equal chance.
    ranks = np.minimum((stats.norm.cdf(flat) * 16).astype(int), 15)
    counts = np.bincount(16 * ranks[0::2] + ranks[1::2], minlength=256)
    assert 1e-6 < stats.chisquare(counts).pvalue < 1 - 1e-6
    assert 4.5 < np.abs(flat).max() < 7


def test_the_fast_words_are_philox_and_xoshiro():
    pytest.importorskip("numba", reason="the extra `fast` is not installed")
    from workbench.workloads.fast_normal import seed_states, step

    states, made = np.empty((4, LANES), np.uint64), np.empty((2, 2, LANES), np.uint64)
    seed_states(np.uint64(2**40 + 7), np.uint64(3), np.uint64(5), states)
    for pair in made:
        step(states, *pair)
    for lane in (0, 1, 31):
        state = [_philox_word(2**40 + 7, 3, 5, word * LANES + lane) for word in range(4)]
        for k in range(4):
            assert int(made[k // 2, k % 2, lane]) == _xoshiro_next(state)


def _philox_word(seed, row, column, place):
    """Philox4x32-10 as its authors wrote it down, in Python's whole numbers."""
    mask = 2**32 - 1
    key, counter = [seed & mask, seed >> 32], [row, column, place - place % 2, 1]
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & mask, (a >> 32) ^ counter[3] ^ key[1], a & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    first, second = counter[:2] if place % 2 == 0 else counter[2:]
    return first << 32 | second


def _xoshiro_next(s):
    """xoshiro256++ as its authors wrote it down; changes the state."""
    mask = 2**64 - 1

    def rotated(x, k):
        return (x << k | x >> (64 - k)) & mask

    result = (rotated((s[0] + s[3]) & mask, 23) + s[0]) & mask
    t = s[1] << 17 & mask
    s[2] ^= s[0]
    s[3] ^= s[1]
    s[1] ^= s[2]
    s[0] ^= s[3]
    s[2] ^= t
    s[3] = rotated(s[3], 45)
    return result


def test_philox_gives_its_published_answers():
    """Known answers of the Random123 library for philox4x32-10 with zeros and with ones everywhere."""
    pytest.importorskip("numba", reason="the extra `fast` is not installed")
    from workbench.workloads.fast_normal import _philox

    ones = np.uint64(2**32 - 1)
    zero = np.uint64(0)
    assert [f"{int(word):08x}" for word in _philox(*[zero] * 6)] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]
    assert [f"{int(word):08x}" for word in _philox(*[ones] * 6)] == ["408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"]


def test_without_numba_the_fast_engine_says_what_to_install():
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "from workbench.workloads.generators import normal\n"
        "try:\n    normal(0, 1, chunks=((4,), (4,)), engine='fast')\n"
        "except Exception as err:\n    print(type(err).__name__, err)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.startswith("BadInputError")
    assert "pip install 'numba>=" in told


def test_an_unknown_engine_says_which_there_are():
    with pytest.raises(BadInputError, match=r"'slow'.*numpy, fast"):
        normal(0, 1, chunks=((4,), (4,)), engine="slow")
