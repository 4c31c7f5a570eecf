from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest

from workbench.workloads import template
from workbench.workloads.array import array_mean, array_sum, transpose_sum

SHAPE = {"array_sum": [1000, 701], "array_mean": [1000, 701], "transpose_sum": [900, 900]}


def test_the_sum_is_that_of_numpy_on_the_same_numbers() -> None:
    x = da.random.RandomState(3).normal(10, 1, size=(1000, 701), chunks=(300, 200)).compute()
    found = array_sum((1000, 701), chunks=(300, 200), seed=3).compute()
    np.testing.assert_allclose(found, (x + 1)[::2, ::2].sum(), rtol=1e-13)


def test_the_mean_is_that_of_numpy_on_the_same_numbers() -> None:
    x = da.random.RandomState(3).normal(10, 1, size=(1000, 701), chunks=(300, 200)).compute()
    found = array_mean((1000, 701), chunks=(300, 200), seed=3).compute()
    np.testing.assert_allclose(found, (x + 1)[::2, ::2].mean(), rtol=1e-13)


def test_the_transposed_sum_is_that_of_numpy_on_the_same_numbers() -> None:
    x = da.random.RandomState(3).random(size=(500, 500), chunks=(200, 100)).compute()
    found = transpose_sum((500, 500), chunks=(200, 100), seed=3).compute()
    np.testing.assert_allclose(found, (x + x.T).sum(), rtol=1e-13)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SHAPE)
def test_a_right_answer_passes_its_check_and_a_wrong_one_fails(name: str, dtype: str, quick_client: Any) -> None:
    chosen = template(name)
    parameters = chosen.validate({"shape": SHAPE[name], "chunks": 300, "dtype": dtype, "seed": 5}, threads=2)
    summary, check = chosen.compute(parameters, quick_client)
    assert check.passed, check.what
    assert "within" in check.what
    for wrong in (1.01, 0.99, 0.0, -1.0, 2.0, float("nan"), float("inf")):
        tampered = chosen.check(parameters, {"value": summary["value"] * wrong})
        assert not tampered.passed, wrong
        assert "outside" in tampered.what


@pytest.mark.parametrize("name", SHAPE)
def test_the_check_is_narrow(name: str) -> None:
    # An array of 20 000² leaves chance a ten-thousandth, so one block of 2000² missing of a hundred is seen at once.
    chosen = template(name)
    parameters = chosen.validate({"shape": [20_000, 20_000]})
    right = {"array_sum": 11 * 10_000**2, "array_mean": 11.0, "transpose_sum": 20_000.0**2}[name]
    assert chosen.check(parameters, {"value": right}).passed
    assert not chosen.check(parameters, {"value": right * 1.0005}).passed


@pytest.mark.parametrize("name", SHAPE)
def test_right_answers_pass_whatever_the_seed(name: str) -> None:
    chosen = template(name)
    for seed in range(20):
        parameters = chosen.validate({"shape": [60, 60], "chunks": 30, "seed": seed})
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
