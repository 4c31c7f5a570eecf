"""The PCA of packed genotypes is that of the matrix which its convention names, whatever the file holds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from tests.peers import found_by_peers
from workbench.errors import BadInputError
from workbench.genotypes import MISSING, Genotypes, kernels, operator
from workbench.genotypes.operator import GenotypeOperator
from workbench.genotypes.packing import pack
from workbench.genotypes.pca import GenotypePCA, pca
from workbench.genotypes.scaling import Rule, Scaler
from workbench.workloads import template

Matrix = np.ndarray[Any, Any]
ROWS, SAMPLES, K = 600, 143, 5
SCALERS: tuple[Scaler, ...] = ("patterson", "hail", "plink", "standard", "center")


def counts(seed: int = 0, rows: int = ROWS, samples: int = SAMPLES, missing: float = 0.02) -> Matrix:
    """Return counts in six populations, some missing, with sites that are all missing, monomorphic or heterozygous."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.05, 0.95, (rows, 1))
    each = np.clip(p + 0.15 * rng.standard_normal((rows, 6)), 0.01, 0.99)
    x = rng.binomial(2, each[:, rng.integers(0, 6, samples)]).astype(np.uint8)
    x[rng.random(x.shape) < missing] = MISSING
    x[3], x[5], x[9], x[20] = MISSING, 0, 2, 1
    return x


def genotypes(x: Matrix, rows: int = 350) -> Genotypes:
    """`x` packed, with rubbish in the bits past the last sample."""
    codes = np.where(x == MISSING, 3, x).astype(np.uint8)
    codes = np.pad(codes, ((0, 0), (0, -x.shape[1] % 4)), constant_values=3).reshape(len(x), -1, 4)
    packed = (codes << np.array([0, 2, 4, 6], np.uint8)).sum(axis=2).astype(np.uint8)
    return Genotypes(da.from_array(packed, chunks=(rows, -1)), np.array([f"s{i}" for i in range(x.shape[1])]))


def cleaned(x: Matrix, scaler: Scaler) -> tuple[Matrix, Matrix]:
    """Return the matrix scaled by each convention's formula in float64, and a mask of its sites."""
    known = np.where(x == MISSING, np.nan, x.astype(float))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mean = np.nanmean(known, axis=1, keepdims=True)
        deviation = np.nanstd(known, axis=1, keepdims=True)
    p = mean / 2
    kept = ((p > 0) & (p < 1))[:, 0] & ((deviation[:, 0] > 0) | (scaler != "standard"))
    known, p, mean, deviation = known[kept], p[kept], mean[kept], deviation[kept]
    centred = np.where(np.isnan(known), 0, known - mean)
    if scaler == "patterson":
        return centred / np.sqrt(p * (1 - p)), kept
    if scaler in ("hail", "plink"):
        return centred / np.sqrt(2 * p * (1 - p) * kept.sum()), kept
    return (centred / deviation if scaler == "standard" else centred), kept


def run(source: Any, n_components: int = K, **given: Any) -> GenotypePCA:
    with dask.config.set(scheduler="sync"):
        return pca(source, n_components, **given)


def aligned(found: Matrix, true: Matrix) -> Matrix:
    """Return `true` with the signs of `found`."""
    return true * np.sign((found * true).sum(axis=0))


@pytest.mark.parametrize("scaler", SCALERS)
def test_each_convention_is_that_of_its_formula(scaler: Scaler) -> None:
    x = counts()
    result = run(genotypes(x), scaler=scaler, tol=1e-13)
    matrix, kept = cleaned(x, scaler)
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    np.testing.assert_allclose(result.singular_values, s[:K], rtol=1e-9)
    scores = vt[:K].T * (1 if scaler == "plink" else s[:K])
    np.testing.assert_allclose(result.scores, aligned(result.scores, scores), atol=1e-6 * np.abs(scores).max())
    loadings = result.loadings.compute(scheduler="sync")
    np.testing.assert_allclose(loadings, aligned(loadings, u[:, :K]), atol=1e-6)
    variance = s**2 if scaler in ("hail", "plink") else s**2 / SAMPLES
    np.testing.assert_allclose(result.explained_variance, variance[:K], rtol=1e-9)
    np.testing.assert_allclose(result.explained_variance_ratio, s[:K] ** 2 / (s**2).sum(), rtol=1e-9)
    assert (result.kept == kept).all()


def test_pattersons_eigenvalues_are_2m_times_hails() -> None:
    found = {scaler: run(genotypes(counts()), scaler=scaler, tol=1e-8) for scaler in ("patterson", "hail")}
    m = found["hail"].kept.sum()
    ratio = found["patterson"].singular_values ** 2 / found["hail"].singular_values ** 2
    np.testing.assert_allclose(ratio, 2 * m, rtol=1e-7)
    assert "√(2m)" in found["hail"].convention
    assert "Patterson" in found["patterson"].convention


@pytest.mark.parametrize("n_samples", [5, 16, 61, 64, 65, 130, 131, 132])
def test_any_number_of_samples_goes(n_samples: int) -> None:
    x = counts(1, samples=n_samples)
    result = run(genotypes(x), 3, tol=1e-8)
    np.testing.assert_allclose(result.singular_values, np.linalg.svd(cleaned(x, "patterson")[0])[1][:3], rtol=1e-8)


@pytest.mark.parametrize("rows", [1, 7, 350, 5000])
def test_any_blocks_give_the_same(rows: int) -> None:
    x = counts(2, rows=200)
    expected = np.linalg.svd(cleaned(x, "patterson")[0])[1][:K]
    np.testing.assert_allclose(run(genotypes(x, rows=rows), tol=1e-8).singular_values, expected, rtol=1e-8)


def test_more_samples_than_variants_go() -> None:
    x = counts(3, rows=60, samples=SAMPLES)
    expected = np.linalg.svd(cleaned(x, "patterson")[0])[1][:K]
    np.testing.assert_allclose(run(genotypes(x), tol=1e-8).singular_values, expected, rtol=1e-8)


@pytest.mark.parametrize("tol", [1e-1, 1e-6])
def test_samples_without_genotypes_are_named_and_change_nothing(tol: float) -> None:
    x = counts(samples=400)
    x[:, [5, 17]] = MISSING
    x[4, 5] = 1  # one genotype is enough to take part
    found, alone = run(genotypes(x), tol=tol), run(genotypes(np.delete(x, 17, axis=1)), tol=tol)
    assert found.unknown_samples.tolist() == ["s17"]
    assert np.isnan(found.scores[17]).all()
    assert np.isfinite(np.delete(found.scores, 17, axis=0)).all()
    np.testing.assert_allclose(found.singular_values, alone.singular_values, rtol=3 * tol)
    new = found.project(genotypes(x)).unknown_samples
    assert new.tolist() == ["s17"]


def test_sites_left_out_are_counted_by_reason() -> None:
    x = counts(missing=0.0)
    x[30, 10:] = MISSING
    x[40] = 0
    x[40, :4] = 1
    kept = np.ones(ROWS, bool)
    kept[:3] = False
    result = run(genotypes(x), maf=0.02, max_missing=0.5, kept=kept)
    p = np.where(x == MISSING, 0, x).sum(axis=1) / 2 / np.maximum(1, (x != MISSING).sum(axis=1))
    rare = int((kept & (p > 0) & (p < 1) & (np.minimum(p, 1 - p) < 0.02)).sum())
    assert result.dropped == {
        "all missing": 1,
        "monomorphic": 2,
        "often missing": 1,
        "rare": rare,
        "not asked for": 3,
    }
    assert not result.kept[[0, 1, 2, 3, 5, 9, 30, 40]].any()
    assert result.kept.sum() == ROWS - sum(result.dropped.values())


def test_sites_without_variance_are_left_out_where_that_divides() -> None:
    assert run(genotypes(counts(missing=0)), scaler="standard").dropped == {
        "all missing": 1,
        "monomorphic": 2,
        "constant": 1,
    }


@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-5, 5e-6, 1e-10])
@pytest.mark.parametrize("scaler", ["patterson", "center"])
def test_the_bound_is_never_below_the_true_error(scaler: Scaler, tol: float) -> None:
    for seed in range(4):
        x = counts(seed, missing=0.1 * (seed % 2))
        result = run(genotypes(x), scaler=scaler, tol=tol, seed=seed)
        true = np.linalg.svd(cleaned(x, scaler)[0], compute_uv=False)[:K]
        error = np.abs(result.singular_values / true - 1)
        assert (error <= result.certificate.bound + 2e-14).all()
        assert result.certificate.status != "not reached"


@pytest.mark.parametrize("scaler", ["patterson", "standard", "center"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_what_rounding_of_means_and_factors_does_is_bounded(scaler: Scaler, missing: float) -> None:
    x = counts(missing=missing)
    operator = GenotypeOperator(genotypes(x), Rule(scaler), kernel=kernels.NUMPY)
    with dask.config.set(scheduler="sync"):
        operator.normal(np.eye(SAMPLES, 4), True)
    exact, kept = cleaned(x, scaler)
    s = np.linalg.svd(exact, compute_uv=False)
    allowed = operator.input_error(s, True)
    left, half = np.linalg.svd(exact)[0][:, 0], np.finfo(np.float32).eps / 2
    sites = np.concatenate([each.numbers for each in dask.compute(*operator._sites)])
    unknown, factor = x[kept] == MISSING, sites[kept, 1]
    # To the worst that rounding may do: all one way, as it comes, and as one of the vectors would have it.
    for signs in (np.ones(len(left)), np.random.default_rng(0).choice([-1, 1], len(left)), np.sign(left)):
        scaled = factor * (1 + 2 * half * signs)
        rounded = exact / factor[:, None] - np.where(unknown, 0, 2 * half * signs[:, None])
        error = np.abs(np.linalg.svd(scaled[:, None] * rounded, compute_uv=False) - s)
        assert (error <= allowed + 1e-13 * s[0]).all()
    # And not by far more: of every value that stands out, it takes a millionth.
    assert (allowed[:K] < (2e-6 if missing else 1e-6) * s[:K]).all()


def test_means_are_rounded_so_that_none_is_added_to_what_is_missing() -> None:
    counted = np.random.default_rng(0).integers(0, 1000, (5000, 4))
    sites = Rule().sites(counted)
    for dtype in (np.float32, np.float64):
        q = kernels.Narrow.of(np.ones((4, 1)), dtype is np.float32)
        means, _ = kernels.rounded(np.zeros((1, 1), np.uint8), sites, q)
        assert means.dtype == dtype
        assert (dtype(3) + (means - dtype(3)) == means).all()
        assert np.abs(means[:, 0] - sites[:, 0]).max() <= np.finfo(dtype).eps


@pytest.mark.parametrize(("tol", "dtype"), [(1e-3, "float32"), (1e-9, "float64")])
def test_the_certificate_names_the_arithmetic(tol: float, dtype: str) -> None:
    assert run(genotypes(counts()), tol=tol).certificate.dtype == dtype


def test_blocks_that_are_not_kept_are_read_on_each_pass() -> None:
    source = genotypes(counts())
    kept, read = (run(source, keep=keep).certificate for keep in (True, False))
    assert kept.passes == read.passes
    assert kept.bytes_read == source.packed.nbytes
    assert read.bytes_read == source.packed.nbytes * read.passes


def test_a_cluster_gives_the_same(quick_client: Any) -> None:
    x = counts(missing=0.05)
    on_cluster = pca(genotypes(x), K, seed=1)
    np.testing.assert_allclose(on_cluster.singular_values, run(genotypes(x), seed=1).singular_values, rtol=1e-6)
    np.testing.assert_allclose((on_cluster.loadings**2).sum(axis=0).compute(), 1, rtol=1e-3)


def test_on_a_cluster_what_is_learned_of_each_site_stays_there_and_a_byte_comes(quick_client: Any) -> None:
    x = counts(missing=0.05)
    found = pca(genotypes(x), K)
    operator = found._operator
    assert {each.key for each in operator._more} <= quick_client.futures.keys()
    assert operator.verdict.nbytes == len(x)
    known = np.where(x == MISSING, 0, x)[found.kept]
    expected = np.stack([known.sum(axis=1), (x != MISSING)[found.kept].sum(axis=1)], axis=1)
    np.testing.assert_array_equal(found.counted, expected)


def test_counting_by_words_is_counting() -> None:
    for samples in (1, 3, 4, 31, 32, 33, 203):
        x = counts(samples=samples, rows=40, missing=0.1)
        packed = genotypes(x).packed.compute()
        found = kernels.counted(packed, samples)
        expected = [(np.where(x == MISSING, 3, x) == code).sum(axis=1) for code in range(4)]
        assert (found == np.stack(expected, axis=1)).all()


def test_our_own_packing_is_read() -> None:
    x = counts()
    packed = da.from_array(pack(x), chunks=(300, -1))
    source = Genotypes(packed, np.arange(SAMPLES))
    np.testing.assert_allclose(run(source).singular_values, run(genotypes(x)).singular_values, rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"n_components": 0}, "a whole number from 1 to 143"),
        ({"n_components": 500}, "a whole number from 1 to 143"),
        ({"scaler": "sgkit"}, "Unknown scaler 'sgkit'. Choose one of: patterson, hail, plink, standard, center"),
        ({"tol": 2}, "tol is a relative accuracy"),
        ({"tol": "fine"}, "tol is a relative accuracy between 0 and 1, not 'fine'"),
        ({"max_passes": 0}, "max_passes is a whole number and at least 1, not 0"),
        ({"seed": -1}, "seed is a whole number from 0 on"),
        ({"n_oversamples": -1}, "n_oversamples is a whole number and at least 0"),
        ({"ld_prune": 50}, "ld_prune is a window in variants and the r²"),
        ({"maf": 0.7}, "from 0 to 0.5"),
        ({"max_missing": 7}, "from 0 to 1"),
        ({"maf": None}, "maf is the frequency of the rarer allele, from 0 to 0.5, not None"),
        ({"max_missing": "a"}, "max_missing is a part of the samples, from 0 to 1, not 'a'"),
        ({"kernel": "gpu"}, "Choose one of: auto, numpy, fast"),
        ({"kept": np.ones(3, bool)}, "a mask of 600"),
        ({"kept": np.ma.masked_all(ROWS, bool)}, "A masked array has to be filled first"),
        ({"keep": "x"}, "keep is True, False or None, not 'x'"),
        ({"kept": np.arange(ROWS) < 5}, "Of 600 variants 4 can take part, and 5 components need as many"),
    ],
)
def test_what_can_not_be_used_is_said(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        run(genotypes(counts()), **given)


def test_masked_counts_are_refused_whether_dask_knows_of_the_mask_or_not() -> None:
    x = np.ma.masked_equal(counts(), 2)
    unknown = da.from_array(np.asarray(x), chunks=(200, -1)).map_blocks(
        lambda block: np.ma.masked_equal(block, 2), meta=np.empty((0, 0), np.uint8)
    )
    for given in (x, da.from_array(x, chunks=(200, -1)), unknown):
        with pytest.raises(BadInputError, match="A masked array has to be filled first"):
            run(given)


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (np.arange(12).reshape(12, 1) % 3, "there is one sample: give two or more"),
        (np.repeat(np.arange(12).reshape(12, 1) % 3, 5, axis=1), "All 5 samples are alike in the 4 variants"),
    ],
)
def test_samples_that_do_not_differ_have_no_components(x: Matrix, sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        run(x, 1)


def test_blocks_on_a_device_are_multiplied_there_even_where_numba_is_installed() -> None:
    code = """if True:
        import cupy, dask, sys
        import dask.array as da, numpy as np
        from workbench.compiled import installed
        from workbench.genotypes import Genotypes, device, fast, kernels, simulate
        from workbench.genotypes.packing import pack
        from workbench.genotypes.pca import LARGE, _kernel, pca

        dask.config.set(scheduler="sync")
        def there(packed):
            meta = cupy.asarray(np.empty((0, 0), np.uint8))
            return Genotypes(packed.map_blocks(cupy.asarray, meta=meta), np.arange(60))
        small = da.from_array(pack(np.random.default_rng(0).binomial(2, 0.3, (500, 60))), chunks=(200, -1))
        found = pca(there(small), 4, tol=1e-8)
        here = pca(Genotypes(small, np.arange(60)), 4, tol=1e-8, kernel="numpy")
        np.testing.assert_allclose(found.singular_values, here.singular_values, rtol=1e-7)
        assert type(found.loadings.compute()) is cupy.ndarray
        large = da.zeros((LARGE // 60 + 1, 15), dtype=np.uint8, chunks=(10**6, 15))
        assert [_kernel(name, there(large)) for name in ("auto", "device")] == [device.DEVICE] * 2
        assert [_kernel(name, there(large)) for name in ("numpy", "fast")] == [kernels.NUMPY] * 2
        for samples in (1, 4, 60, 203):
            packed = simulate(3000, samples, missing=0.05, all_missing=0.1).packed.compute()
            sites = np.random.default_rng(1).random((3000, 3)) * [2, 1, 5]
            np.testing.assert_array_equal(
                device.counted(cupy.asarray(packed), samples), kernels.counted(packed, samples)
            )
            chosen = np.random.default_rng(2).normal(size=(samples, 5)).astype("float32")
            for single, rtol in ((True, 1e-4), (False, 1e-12)):
                q = kernels.Narrow.of(chosen, single)
                for name in ("normal", "projected"):
                    for rows in (3000, 2048, 7, 0):
                        found = getattr(device, name)(cupy.asarray(packed[:rows]), sites[:rows], q)
                        found = found.get() if hasattr(found, "get") else found
                        expected = getattr(kernels, name)(packed[:rows], sites[:rows], q)
                        assert found.shape == expected.shape, (found.shape, expected.shape)
                        scale = np.abs(expected).max(initial=0)
                        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * scale)
        if installed():
            assert _kernel("auto", Genotypes(large, np.arange(60))) is fast.FAST
    """
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent / "standin")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_components_without_a_cluster_load_nothing_of_distributed() -> None:
    code = """if True:
        import sys

        import dask

        from workbench import genotypes
        from workbench.genotypes import operator

        operator.MANY = 1  # a sample of few variants, whose blocks are joined
        some = genotypes.simulate(4000, 90, rows=200, seed=0)
        for how in ({}, {"scheduler": "threads"}):
            for keep in (True, False):
                with dask.config.set(how):
                    genotypes.pca(some, 2, kernel="numpy", keep=keep)
        assert "distributed" not in sys.modules
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_pass_reads_the_trace_from_the_counts() -> None:
    x = counts()
    operator = GenotypeOperator(genotypes(x), Rule(), kernel=kernels.NUMPY)
    with dask.config.set(scheduler="sync"):
        operator.normal(np.eye(SAMPLES, 4), True)
    assert operator.squares == pytest.approx(float((cleaned(x, "patterson")[0] ** 2).sum()), rel=1e-12)


def test_a_start_from_a_sample_of_the_variants_saves_passes_and_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x = counts(rows=3000, samples=300, missing=0.01)
    rng = np.random.default_rng(1)
    hidden = [row for row in range(500, 560) if row % operator.EVERY]  # nothing of it in the sample
    x[hidden] = rng.binomial(2, np.where(rng.random(300) < 0.5, 0.9, 0.1), (len(hidden), 300))
    true = np.linalg.svd(cleaned(x, "patterson")[0], compute_uv=False)[:K]
    saved = 0
    for seed in range(4):
        plain = run(genotypes(x), seed=seed)
        with monkeypatch.context() as patch:
            patch.setattr(operator, "MANY", 1)
            started = run(genotypes(x), seed=seed)
        saved += plain.certificate.passes - started.certificate.passes
        assert (np.abs(started.singular_values / true - 1) <= started.certificate.bound).all()
        assert started.certificate.bound.max() <= started.certificate.tol
    assert saved > 0


@pytest.fixture(scope="module")
def fast() -> Any:
    pytest.importorskip("numba")
    from workbench.genotypes import fast

    fast.warm_up()
    return fast


@pytest.mark.parametrize("missing", [0.0, 0.05, 0.4])
@pytest.mark.parametrize(("samples", "columns"), [(1, 1), (12, 16), (203, 7), (385, 20), (3100, 33)])
def test_compiled_products_are_numpys_to_rounding(fast: Any, samples: int, columns: int, missing: float) -> None:
    x = counts(samples=samples, rows=150, missing=missing)
    packed = genotypes(x).packed.compute()
    sites = Rule().sites(kernels.counted(packed, samples))
    q = np.random.default_rng(0).standard_normal((samples, columns)).astype("f4")
    exact = kernels.normal(packed, sites, kernels.Narrow.of(q, False))
    for kernel in (kernels, fast):
        narrow = kernels.Narrow.of(q, True)
        found = kernel.gathered(kernel.normal(packed, sites, kernel.arranged(narrow)).astype(float), narrow)
        assert np.linalg.norm(found - exact) <= 3e-6 * np.linalg.norm(exact)


def test_compiled_code_takes_blocks_of_any_height(fast: Any) -> None:
    x = counts(rows=4200, samples=40)
    packed = genotypes(x).packed.compute()
    sites = Rule().sites(kernels.counted(packed, 40))
    q = kernels.Narrow.of(np.eye(40, 32), True)
    for rows in (*range(90), 2016, 2017, 2100, 4200):
        exact = kernels.normal(packed[:rows], sites[:rows], kernels.Narrow.of(np.eye(40, 32), False))
        total = fast.normal(packed[:rows], sites[:rows], fast.arranged(q))
        np.testing.assert_allclose(fast.gathered(total.astype(float), q), exact, atol=1e-2, rtol=1e-4)


@pytest.mark.parametrize("samples", [1, 3, 4, 31, 32, 33, 64, 203, 1004])
def test_compiled_code_counts_what_numpy_counts(fast: Any, samples: int) -> None:
    packed = np.random.default_rng(samples).integers(0, 256, (60, -(-samples // 4))).astype(np.uint8)
    packed.flags.writeable = False  # as of a mapped file
    for block in (packed, packed[:0], packed[::3]):
        np.testing.assert_array_equal(fast.counted(block, samples), kernels.counted(block, samples))


@pytest.mark.parametrize("tol", [1e-3, 1e-8])
def test_the_compiled_kernel_has_a_certificate_too(fast: Any, tol: float) -> None:
    x = counts(missing=0.05)
    result = run(genotypes(x), tol=tol, kernel="fast")
    true = np.linalg.svd(cleaned(x, "patterson")[0], compute_uv=False)[:K]
    assert (np.abs(result.singular_values / true - 1) <= result.certificate.bound + 2e-14).all()
    assert result.certificate.bound.max() <= tol


_ALLEL = """
import allel
# Whole numbers it would round to half precision.
x, k = given["x"].astype(float), int(given["k"])
found["scores"], model = allel.pca(x, n_components=k, scaler="patterson")
found["variance"], found["share"] = model.explained_variance_, model.explained_variance_ratio_
"""
_SGKIT = """
import sgkit, xarray
x, k = given["x"].astype(float), int(given["k"])
alleles = xarray.Dataset({"call_alternate_allele_count": (("variants", "samples"), x)})
told = sgkit.pca(alleles, n_components=k, ploidy=2, merge=False).compute()
found["scores"], found["variance"] = told.sample_pca_projection, told.sample_pca_explained_variance
found["share"] = told.sample_pca_explained_variance_ratio
"""


@pytest.mark.parametrize("code", [_ALLEL, _SGKIT], ids=["scikit-allel", "sgkit"])
def test_the_peers_find_the_same_on_cleaned_data(tmp_path: Path, code: str) -> None:
    x = counts(missing=0)[21:]
    result = run(genotypes(x), tol=1e-13)
    found = found_by_peers(tmp_path, code, x=x[result.kept], k=K)
    np.testing.assert_allclose(result.scores, aligned(result.scores, found["scores"]), atol=1e-6)
    np.testing.assert_allclose(result.explained_variance, found["variance"], rtol=1e-6)
    np.testing.assert_allclose(result.explained_variance_ratio, found["share"], rtol=1e-6)


def test_plink_2_finds_the_same_eigenvalues(tmp_path: Path) -> None:
    if shutil.which("plink2") is None:
        pytest.skip("plink2 is not installed (Debian: apt-get install plink2)")
    made = ["plink2", "--dummy", "70", "500", "--seed", "1", "--make-bed", "--out", str(tmp_path / "study")]
    subprocess.run(made, check=True, capture_output=True)
    asked = ["plink2", "--bfile", str(tmp_path / "study"), "--pca", "5", "--out", str(tmp_path / "found")]
    subprocess.run(asked, check=True, capture_output=True)
    result = run(str(tmp_path / "study.bed"), 5, scaler="plink", tol=1e-10)
    m = result.kept.sum()
    with_monomorphic = m + result.dropped["monomorphic"]
    pattersons = run(str(tmp_path / "study.bed"), 5, tol=1e-10)
    for eigenvalues in (
        result.explained_variance * m / with_monomorphic,
        pattersons.singular_values**2 / (2 * with_monomorphic),
    ):
        np.testing.assert_allclose(eigenvalues, np.loadtxt(tmp_path / "found.eigenval"), rtol=2e-5)
    assert "where no genotype is missing, with monomorphic sites counted in m" in pattersons.convention
    vectors = np.loadtxt(tmp_path / "found.eigenvec", usecols=range(2, 7))
    np.testing.assert_allclose(result.scores, aligned(result.scores, vectors), atol=1e-4)


def bed_file(folder: Path, x: Matrix, contigs: Sequence[str], positions: Sequence[int] | None = None) -> str:
    """`x` as PLINK's three files, all samples of them women."""
    codes = np.array([3, 2, 0, 1], np.uint8)[np.where(x == MISSING, 3, x)]
    codes = np.pad(codes, ((0, 0), (0, -x.shape[1] % 4))).reshape(len(x), -1, 4)
    rows = (codes << np.array([0, 2, 4, 6], np.uint8)).sum(axis=2).astype(np.uint8)
    (folder / "study.bed").write_bytes(b"\x6c\x1b\x01" + rows.tobytes())
    places = range(1, len(x) + 1) if positions is None else positions
    named = enumerate(zip(contigs, places, strict=True))
    variants = (f"{contig}\tv{i}\t0\t{place}\tA\tG\n" for i, (contig, place) in named)
    (folder / "study.bim").write_text("".join(variants))
    (folder / "study.fam").write_text("".join(f"f{i} s{i} 0 0 2 -9\n" for i in range(x.shape[1])))
    return str(folder / "study.bed")


@pytest.mark.parametrize("contig", ["X", "chrX", "23", "NC_000023.11"])
def test_that_plink_does_not_project_by_x_is_told_before(contig: str, tmp_path: Path) -> None:
    given = {"path": bed_file(tmp_path, counts(1, 40, 12, 0.0), ["1"] * 30 + [contig] * 10)}
    told = template("genotype_pca").validate(given).notes
    assert any("Some variants are on X: plink2 refuses" in each for each in told)
    told = template("genotype_pca").validate({**given, "autosomes_only": True}).notes
    assert not any("plink2" in each for each in told)


@pytest.mark.parametrize(("contig", "missing"), [("X", 0.0), ("24", 0.0), ("26", 0.024)])
def test_plink_2_finds_the_same_on_autosomes_alone(contig: str, missing: float, tmp_path: Path) -> None:
    if shutil.which("plink2") is None:
        pytest.skip("plink2 is not installed (Debian: apt-get install plink2)")
    x, elsewhere = counts(1, 1500, 96, missing), counts(2, 700, 96, missing)
    x, elsewhere = x[30:], elsewhere[30:, np.random.default_rng(0).permutation(96)]  # without the sites made odd
    path = bed_file(tmp_path, np.concatenate([x, elsewhere]), ["1"] * 700 + ["22"] * 770 + [contig] * 670)
    asked = ["plink2", "--bfile", str(tmp_path / "study"), "--pca", "5", "--out", str(tmp_path / "found")]
    subprocess.run(asked, check=True, capture_output=True)
    result = run(path, 5, scaler="plink", tol=1e-8, autosomes_only=True)
    assert result.dropped["not autosomal"] == 670
    m = result.kept.sum()
    eigenvalues = result.explained_variance * m / (m + result.dropped.get("monomorphic", 0))
    ratio = np.loadtxt(tmp_path / "found.eigenval") / eigenvalues
    if missing:
        # As the convention says: PLINK divides by the sites that both samples have.
        assert ((ratio > 1 / (1 - missing)) & (ratio < 1 / (1 - missing) ** 2)).all(), ratio
        assert "2.5 to 5 % more for q = 0.024" in result.convention
    else:
        np.testing.assert_allclose(ratio, 1, rtol=2e-5)
        vectors = np.loadtxt(tmp_path / "found.eigenvec", usecols=range(2, 7))
        np.testing.assert_allclose(result.scores, aligned(result.scores, vectors), atol=1e-4)
    with_others = run(path, 5, scaler="plink", tol=1e-8)
    assert np.abs(with_others.explained_variance / result.explained_variance - 1).max() > 0.05


def test_autosomes_are_known_by_the_names_that_people_give_them(tmp_path: Path) -> None:
    yes = ["1", "22", "chr1", "Chr22", "chr09", "NC_000001.11", "NC_000022.10"]
    no = ["0", "23", "24", "25", "26", "X", "Y", "XY", "MT", "chrX", "chrM", "NC_000023.11", "NC_012920.1", "chr1_alt"]
    x = counts(missing=0)[50 : 50 + len(yes + no)]
    found = run(bed_file(tmp_path, x, yes + no), 3, autosomes_only=True)
    assert found.kept.tolist() == [True] * len(yes) + [False] * len(no)
    kept = np.arange(len(x)) != 2
    both = run(tmp_path / "study.bed", 3, autosomes_only=True, kept=kept)
    assert dict(both.dropped) == {"not autosomal": len(no), "not asked for": 1}
    bed_file(tmp_path, x, ["X"] * len(x))
    with pytest.raises(BadInputError, match=r"no contig is one of 1 to 22 or chr1 to chr22. There are: X\."):
        run(tmp_path / "study.bed", 3, autosomes_only=True)
    with pytest.raises(BadInputError, match="needs the contig of each variant, which these lack"):
        run(genotypes(x), 3, autosomes_only=True)
