from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest

from workbench.linalg import AccuracyWarning, svd_compressed
from workbench.workloads import checks, template
from workbench.workloads.svd import random_matrix


def test_the_singular_values_of_a_tall_matrix_are_those_of_numpy(quick_client: Any) -> None:
    chosen = template("tall_skinny_svd")
    parameters = chosen.validate({"shape": [3000, 20], "chunks": 500, "seed": 4}, threads=2)
    summary, check = chosen.compute(parameters, quick_client)
    x = random_matrix((3000, 20), (500, 20), "float64", 4).compute()
    np.testing.assert_allclose(summary["singular_values"], np.linalg.svd(x, compute_uv=False), rtol=1e-12)
    assert check.passed, check.what


def test_a_tall_matrix_in_float32_passes_its_check(quick_client: Any) -> None:
    chosen = template("tall_skinny_svd")
    parameters = chosen.validate({"shape": [20_000, 50], "chunks": 5000, "dtype": "float32"}, threads=2)
    _, check = chosen.compute(parameters, quick_client)
    assert check.passed, check.what


@pytest.mark.parametrize("shape", [[1, 1], [5, 5], [7, 1], [100, 99]])
def test_matrices_that_are_hardly_tall_have_an_svd(shape: list[int]) -> None:
    chosen = template("tall_skinny_svd")
    _, check = chosen.compute(chosen.validate({"shape": shape}))
    assert check.passed, check.what


def _decomposed(x: da.Array) -> dict[str, Any]:
    u, s, v = np.linalg.svd(x.compute(), full_matrices=False)
    return {"u": da.from_array(u, chunks=(x.chunks[0], -1)), "s": s, "v": da.from_array(v, chunks=(-1, x.chunks[1]))}


def _tampered(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    u, s, v = results["u"], results["s"], results["v"]
    one_value = s.copy()
    one_value[-1] *= 0.9
    skewed = u.compute()
    skewed[:, 0] *= 1.001
    return {
        "all values too large": results | {"s": s * 1.01},
        "one value too small": results | {"s": one_value},
        "values in the wrong order": results | {"s": s[::-1]},
        "a negative value": results | {"s": np.append(s[:-1], -s[-1])},
        "not a number": results | {"s": np.append(s[:-1], np.nan)},
        "u not orthonormal": results | {"u": da.from_array(skewed, chunks=u.chunks)},
        "u of other signs": results | {"u": -u},
        "v of another order": results | {"v": v[::-1]},
        "zeros": results | {"u": u * 0, "s": s * 0, "v": v * 0},
    }


@pytest.mark.parametrize(("shape", "chunks"), [((400, 12), (100, 12)), ((12, 400), (12, 100)), ((30, 30), (30, 30))])
def test_a_wrong_exact_svd_fails_its_check(shape: tuple[int, int], chunks: tuple[int, int]) -> None:
    x = da.random.RandomState(0).random(size=shape, chunks=chunks)
    results = _decomposed(x)
    assert checks.svd_is_exact(x, results, None).passed
    for what, wrong in _tampered(results).items():
        assert not checks.svd_is_exact(x, wrong, None).passed, what


def test_an_exact_svd_of_another_matrix_fails_the_check() -> None:
    x, other = (da.random.RandomState(seed).random(size=(400, 12), chunks=(100, 12)) for seed in (0, 1))
    assert not checks.svd_is_exact(x, _decomposed(other), None).passed


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_the_exact_check_does_not_depend_on_the_scale(scale: float) -> None:
    x = da.random.RandomState(0).random(size=(400, 12), chunks=(100, 12)) * scale
    results = _decomposed(x)
    assert checks.svd_is_exact(x, results, None).passed
    assert not checks.svd_is_exact(x, results | {"s": results["s"] * 1.01}, None).passed


def test_a_matrix_of_zeros_and_one_of_low_rank_pass_the_exact_check() -> None:
    low = da.ones((100, 8), chunks=(25, 8))
    assert checks.svd_is_exact(low, _decomposed(low), None).passed
    nothing = da.zeros((100, 8), chunks=(25, 8))
    assert checks.svd_is_exact(nothing, _decomposed(nothing), None).passed


def _with_values(values: np.ndarray[Any, Any], rows: int = 600, seed: int = 0) -> da.Array:
    """Matrix with these singular values."""
    rng = np.random.default_rng(seed)
    u, _ = np.linalg.qr(rng.normal(size=(rows, len(values))))
    v, _ = np.linalg.qr(rng.normal(size=(len(values), len(values))))
    return da.from_array((u * values) @ v.T, chunks=(200, 40))


FALLING = 10.0 ** (-np.arange(80) / 4)
SLOWLY = 1 / (1 + np.arange(80))


@pytest.mark.parametrize("values", [FALLING, SLOWLY], ids=["falling fast", "falling slowly"])
def test_a_compressed_svd_is_as_close_as_its_check_says(values: np.ndarray[Any, Any]) -> None:
    x = _with_values(values)
    u, s, v = da.linalg.svd_compressed(x, 6, n_power_iter=4, iterator="QR", seed=1)
    results = {"u": u, "s": s.compute(), "v": v}
    check = checks.svd_is_close(x, results, 0.01, None)
    assert check.passed, check.what
    np.testing.assert_allclose(results["s"], values[:6], rtol=0.01)


def test_the_residual_bounds_the_true_error() -> None:
    # Without iterations and on a slowly falling spectrum the answer is off; the check must not say less than the truth.
    x = _with_values(SLOWLY)
    u, s, v = da.linalg.svd_compressed(x, 6, n_power_iter=0, n_oversamples=0, seed=1)
    results = {"u": u, "s": s.compute(), "v": v}
    off = np.array([np.abs(SLOWLY - value).min() / value for value in results["s"]]).max()
    assert off > 0.001
    assert not checks.svd_is_close(x, results, off * 0.99, None).passed


def test_a_compressed_svd_that_is_far_off_fails_and_says_what_to_do() -> None:
    # The post's own setting, on noise: nothing else warns of it.
    chosen = template("compressed_svd")
    raw = {"shape": [400, 400], "chunks": 100, "n_power_iter": 0, "dtype": "float64", "tolerance": 0.1}
    raw |= {"method": "dask"}
    _, check = chosen.compute(chosen.validate(raw))
    assert not check.passed
    assert "10 % allowed. Raise n_power_iter" in check.what
    more = raw | {"n_power_iter": 30}
    _, check = chosen.compute(chosen.validate(more))
    assert check.passed, check.what


def test_power_iterations_without_qr_that_go_wrong_are_caught() -> None:
    # Dask's iterator 'power' loses the small values to rounding, without a word.
    x = _with_values(10.0 ** (-np.arange(80) / 2))
    u, s, v = da.linalg.svd_compressed(x, 10, n_power_iter=6, iterator="power", seed=0)
    values = s.compute()
    assert np.abs(values / 10.0 ** (-np.arange(10) / 2) - 1).max() > 0.3
    assert not checks.svd_is_close(x, {"u": u, "s": values, "v": v}, 0.25, None).passed


def test_a_wrong_compressed_svd_fails_its_check() -> None:
    x = _with_values(FALLING)
    u, s, v = np.linalg.svd(x.compute(), full_matrices=False)
    results = {"u": da.from_array(u[:, :5], chunks=200), "s": s[:5], "v": da.from_array(v[:5], chunks=40)}
    check = checks.svd_is_close(x, results, 0.005, None)
    assert check.passed, check.what
    for what, wrong in _tampered(results).items():
        assert not checks.svd_is_close(x, wrong, 0.005, None).passed, what


def test_a_trace_that_leaves_nothing_proves_that_no_value_was_missed() -> None:
    values = np.array([5.0, 4, 3, 2, 1] + [1e-9] * 75)
    x = _with_values(values)
    u, s, v = np.linalg.svd(x.compute(), full_matrices=False)
    first = {"u": da.from_array(u[:, :5], chunks=200), "s": s[:5], "v": da.from_array(v[:5], chunks=40)}
    assert "None was missed" in checks.svd_is_close(x, first, 0.1, None).what
    missed = {"u": da.from_array(u[:, 1:5], chunks=200), "s": s[1:5], "v": da.from_array(v[1:5], chunks=40)}
    assert "not proved" in checks.svd_is_close(x, missed, 0.1, None).what


def test_values_beyond_the_rank_do_not_fail_the_check() -> None:
    x = _with_values(np.array([5.0, 4, 3] + [0.0] * 77))
    u, s, v = da.linalg.svd_compressed(x, 6, n_power_iter=1, iterator="QR", seed=0)
    check = checks.svd_is_close(x, {"u": u, "s": s.compute(), "v": v}, 0.1, None)
    assert check.passed, check.what


@pytest.mark.parametrize(("dtype", "compute"), [("uint8", True), ("float32", False), ("float64", False)])
@pytest.mark.parametrize("method", ["workbench", "dask"])
def test_compressed_svd_finds_the_values_numpy_finds(dtype: str, compute: bool, method: str, quick_client: Any) -> None:
    chosen = template("compressed_svd")
    raw = {"shape": [2000, 60], "chunks": [500, 30], "k": 5, "dtype": dtype, "compute": compute}
    raw |= {"method": method, "n_power_iter": 12}
    summary, check = chosen.compute(chosen.validate(raw, threads=2), quick_client)
    x = random_matrix((2000, 60), (500, 30), dtype, 0).compute().astype("float64")
    expected = np.linalg.svd(x, compute_uv=False)[:5]
    np.testing.assert_allclose(summary["singular_values"], expected, rtol=1e-2)
    assert check.passed, check.what


def test_genotypes_are_zero_one_and_two() -> None:
    x = random_matrix((100, 100), (50, 50), "uint8", 0)
    assert x.dtype == np.uint8
    assert set(np.unique(x.compute())) == {0, 1, 2}


def test_what_is_gathered_is_small() -> None:
    chosen = template("compressed_svd")
    parameters = chosen.validate({"shape": [200, 100]})
    assert chosen.gathered({}) == ("s",)
    assert list(chosen.build(parameters)) == ["u", "s", "v", "certificate", "seconds_to_make"]


def test_a_certified_svd_is_as_accurate_as_asked_for_and_says_so(quick_client: Any) -> None:
    chosen = template("compressed_svd")
    for shape in ([3000, 150], [150, 3000]):
        raw = {"shape": shape, "chunks": [1000, 100] if shape[0] > 1000 else [100, 1000], "k": 4, "tol": 1e-6}
        summary, check = chosen.compute(chosen.validate(raw, threads=2), quick_client)
        x = random_matrix((shape[0], shape[1]), tuple(raw["chunks"]), "uint8", 0).compute().astype("float64")
        np.testing.assert_allclose(summary["singular_values"], np.linalg.svd(x, compute_uv=False)[:4], rtol=1e-6)
        told = summary["certificate"]
        assert max(told["bound"]) <= 1e-6
        assert check.passed, check.what
        assert told["sentence"] not in check.what, "said twice"


def test_an_accuracy_that_is_not_reached_fails_the_check_with_the_certificates_sentence() -> None:
    x = da.random.RandomState(0).random(size=(900, 300), chunks=(300, 300))
    with pytest.warns(AccuracyWarning):
        u, s, v = result = svd_compressed(x, 10, tol=1e-6, max_passes=2)
    results = {"u": u, "s": s.compute(), "v": v, "certificate": result.certificate}
    check = checks.svd_is_certified(x, results, None)
    assert not check.passed
    assert check.what == result.certificate.sentence
    assert "was not reached" in check.what


@pytest.mark.parametrize("turned", [False, True])
def test_a_certificate_does_not_vouch_for_another_answer_or_another_array(turned: bool) -> None:
    x = _with_values(FALLING)
    x = x.T if turned else x
    u, s, v = result = svd_compressed(x, 5, tol=1e-3)
    results = {"u": u.persist(), "s": s.compute(), "v": v.persist(), "certificate": result.certificate}
    assert checks.svd_is_certified(x, results, None).passed
    for what, wrong in _tampered(results).items():
        assert not checks.svd_is_certified(x, wrong, None).passed, what
    other = _with_values(SLOWLY, seed=1)
    check = checks.svd_is_certified(other.T if turned else other, results, None)
    assert "of another array" in check.what


@pytest.mark.parametrize("turned", [False, True])
def test_factors_that_only_agree_with_each_other_fail_the_certified_check(turned: bool) -> None:
    x = _with_values(FALLING)
    certificate = svd_compressed(x, 5, tol=1e-3).certificate
    start = np.linalg.qr(np.random.default_rng(0).normal(size=(80, 5)))[0]
    u, s, w = np.linalg.svd(x.compute() @ start, full_matrices=False)
    v = w @ start.T
    np.testing.assert_allclose(x.compute() @ v.T, u * s, atol=1e-12)
    results = {"u": da.from_array(u, chunks=200), "s": s, "v": da.from_array(v, chunks=40), "certificate": certificate}
    if turned:
        x, results = x.T, results | {"u": results["v"].T, "v": results["u"].T}
    check = checks.svd_is_certified(x, results, None)
    assert not check.passed
    assert "of another array" in check.what


def test_values_beyond_the_rank_do_not_fail_the_certified_check() -> None:
    x = _with_values(np.array([5.0, 4, 3] + [0.0] * 77))
    u, s, v = result = svd_compressed(x, 6)
    results = {"u": u, "s": s.compute(), "v": v, "certificate": result.certificate}
    check = checks.svd_is_certified(x, results, None)
    assert check.passed, check.what


@pytest.mark.parametrize("workload", ["tall_skinny_svd", "compressed_svd"])
def test_the_arrays_of_an_svd_have_named_dimensions_and_rebuild_the_matrix(workload: str) -> None:
    chosen = template(workload)
    parameters = chosen.validate(
        {"shape": [300, 8], "dtype": "float64"} | ({"k": 8} if "compressed" in workload else {})
    )
    found = chosen.arrays(chosen.build(parameters))
    assert {name: each.dims for name, each in found.items()} == {
        "u": ("row", "component"),
        "s": ("component",),
        "v": ("component", "column"),
    }
    u, s, v = (np.asarray(found[name].data) for name in "usv")
    made = random_matrix((300, 8), (300, 8), "float64", 0).compute()
    np.testing.assert_allclose((u * s) @ v, made, atol=0.05)
