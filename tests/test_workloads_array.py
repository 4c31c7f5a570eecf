from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest

from workbench.workloads import template
from workbench.workloads.array import array_sum, transpose_sum
from workbench.workloads.generators import fast_reason, normal

GENERATORS = ("default_rng", "RandomState", "tiles", "fast")
CASES = {"sum": ("array_sum", {}), "mean": ("array_sum", {"reduction": "mean"}), "transpose": ("transpose_sum", {})}
SHAPE = {"array_sum": [1000, 701], "transpose_sum": [900, 900]}


def test_the_sum_is_that_of_numpy_on_the_same_numbers() -> None:
    x = da.random.RandomState(3).normal(10, 1, size=(1000, 701), chunks=(300, 200)).compute()
    found = array_sum((1000, 701), chunks=(300, 200), seed=3, generator="RandomState").compute()
    np.testing.assert_allclose(found, (x + 1)[::2, ::2].sum(), rtol=1e-13)


def test_the_mean_is_that_of_numpy_on_the_same_numbers() -> None:
    x = da.random.RandomState(3).normal(10, 1, size=(1000, 701), chunks=(300, 200)).compute()
    found = array_sum((1000, 701), chunks=(300, 200), seed=3, generator="RandomState", reduction="mean").compute()
    np.testing.assert_allclose(found, (x + 1)[::2, ::2].mean(), rtol=1e-13)


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_every_generator_gives_an_answer_that_passes_its_check(
    reduction: str, generator: str, quick_client: Any
) -> None:
    if generator == "fast" and fast_reason():
        pytest.skip(str(fast_reason()))
    chosen = template("array_sum")
    for given in ({"shape": [1000, 701]}, {"shape": [1000, 701], "chunks": [300, 200], "dtype": "float32"}):
        _, check = chosen.compute(
            chosen.validate(given | {"generator": generator, "reduction": reduction}, threads=2), quick_client
        )
        assert check.passed, check.what


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_the_cell_of_every_generator_can_be_run_and_gives_the_same(reduction: str, generator: str) -> None:
    if generator == "fast" and fast_reason():
        pytest.skip(str(fast_reason()))
    chosen = template("array_sum")
    parameters = chosen.validate({"shape": [600, 401], "generator": generator, "reduction": reduction}, threads=2)
    lines = chosen.cell(parameters).rstrip().splitlines()
    there: dict[str, Any] = {}
    exec("\n".join((*lines[:-1], f"answer = {lines[-1]}")), there)
    assert float(there["answer"]) == chosen.compute(parameters)[0]["value"]


def test_tiles_give_the_sum_of_the_numbers_they_make_whatever_the_blocks() -> None:
    blocks = ((1000,), (701,))
    x = normal(10, 1, chunks=blocks, seed=3).compute()
    for chunks in (1000, 300, 256):
        blocks = da.core.normalize_chunks(chunks, (1000, 701))
        found = array_sum((1000, 701), chunks=blocks, seed=3, generator="tiles").compute()
        np.testing.assert_allclose(found, (x + 1)[::2, ::2].sum(), rtol=1e-13)
        mean = array_sum((1000, 701), chunks=blocks, seed=3, generator="tiles", reduction="mean").compute()
        np.testing.assert_allclose(mean, (x + 1)[::2, ::2].mean(), rtol=1e-13)


def test_blocks_suit_the_generator() -> None:
    chosen = template("array_sum")
    blocks = {}
    for generator in ("tiles", "default_rng", "RandomState"):
        parameters = chosen.validate({"size": "16GiB", "generator": generator}, threads=2)
        blocks[generator] = parameters.resolved["chunks"]
        assert "measured" in parameters.notes[0] or "whole tiles" in parameters.notes[0]
    assert blocks["tiles"] == [4096, 4096]
    assert blocks["default_rng"][0] <= 1000 < blocks["RandomState"][0] <= 2000
    small = chosen.validate({"shape": [3000, 3000]}, threads=2).resolved["chunks"]
    assert small[0] % 256 == 0
    assert (3000 / small[0]) ** 2 >= 8


def test_gpus_make_their_numbers_with_cupys_random_state_and_say_so() -> None:
    chosen = template("array_sum")
    parameters = chosen.validate({"size": "1GiB"}, threads=2, on_gpu=True)
    assert parameters.resolved["generator"] == "RandomState"
    assert "RandomState" in parameters.notes[0]
    given = {"size": "1GiB", "generator": "RandomState"}
    assert chosen.validate(given, threads=2).resolved == parameters.resolved


def test_the_transposed_sum_is_that_of_numpy_on_the_same_numbers() -> None:
    x = da.random.RandomState(3).random(size=(500, 500), chunks=(200, 100)).compute()
    found, seconds = transpose_sum((500, 500), chunks=(200, 100), seed=3)
    np.testing.assert_allclose(found.compute(), (x + x.T).sum(), rtol=1e-13)
    assert seconds is None


def test_blocks_of_a_square_array_meet_those_of_its_transpose_also_where_their_size_is_given() -> None:
    parameters = template("transpose_sum").validate({"shape": [2828, 2828], "chunks": "655kiB"}, threads=2)
    assert parameters.resolved["chunks"] == [289, 289]
    assert parameters.notes == ("Blocks of at most 655 kiB: 289, 289.",)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "more"), CASES.values(), ids=CASES)
def test_a_right_answer_passes_its_check_and_a_wrong_one_fails(
    name: str, more: dict[str, Any], dtype: str, quick_client: Any
) -> None:
    chosen = template(name)
    parameters = chosen.validate({"shape": SHAPE[name], "chunks": 300, "dtype": dtype, "seed": 5, **more}, threads=2)
    summary, check = chosen.compute(parameters, quick_client)
    assert check.passed, check.what
    assert "within" in check.what
    for wrong in (1.01, 0.99, 0.0, -1.0, 2.0, float("nan"), float("inf")):
        tampered = chosen.check(parameters, {"value": summary["value"] * wrong})
        assert not tampered.passed, wrong
        assert "outside" in tampered.what


@pytest.mark.parametrize(("name", "more"), CASES.values(), ids=CASES)
def test_the_check_is_narrow(name: str, more: dict[str, Any]) -> None:
    # An array of 20 000² leaves chance a ten-thousandth, so one block of 2000² missing of a hundred is seen at once.
    chosen = template(name)
    parameters = chosen.validate({"shape": [20_000, 20_000], **more})
    right = 11.0 if more else {"array_sum": 11 * 10_000**2, "transpose_sum": 20_000.0**2}[name]
    assert chosen.check(parameters, {"value": right}).passed
    assert not chosen.check(parameters, {"value": right * 1.0005}).passed


@pytest.mark.parametrize(("name", "more"), CASES.values(), ids=CASES)
def test_right_answers_pass_whatever_the_seed(name: str, more: dict[str, Any]) -> None:
    chosen = template(name)
    for seed in range(20):
        parameters = chosen.validate({"shape": [60, 60], "chunks": 30, "seed": seed, **more})
        _, check = chosen.compute(parameters)
        assert check.passed, check.what


def test_the_same_seed_gives_the_same_sum_and_another_seed_another() -> None:
    chosen = template("array_sum")
    values = [
        chosen.compute(chosen.validate({"shape": [50, 50], "chunks": 25, "seed": seed}))[0]["value"]
        for seed in (1, 1, 2)
    ]
    assert values[0] == values[1] != values[2]


@pytest.mark.parametrize("shape", [[1, 1], [1, 7], [3, 2]])
def test_the_smallest_arrays_have_a_sum(shape: list[int]) -> None:
    chosen = template("array_sum")
    summary, check = chosen.compute(chosen.validate({"shape": shape}))
    assert np.isfinite(summary["value"])
    assert check.passed, check.what
