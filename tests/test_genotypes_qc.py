"""Quality of genotypes by site and by sample, as PLINK 2 tells it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from tests.test_genotypes_pca import bed_file
from workbench.errors import BadInputError
from workbench.genotypes import Genotypes, open_genotypes, pca, qc
from workbench.genotypes.packing import pack
from workbench.genotypes.qc import by_sample
from workbench.storage.exports import table
from workbench.workloads import template
from workbench.workloads.values import BadParameterError

WORKLOAD = template("genotype_qc")


def plink2(folder: Path, *arguments: str) -> None:
    if shutil.which("plink2") is None:
        pytest.skip("needs Debian's plink2: sh tests/apt-install.sh plink2")
    done = subprocess.run(["plink2", *arguments], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def column(path: Path, name: str) -> list[str]:
    header, *lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    return [line[header.index(name)] for line in lines]


def numbers(path: Path, name: str) -> Any:
    return np.array(column(path, name), float)


@pytest.mark.parametrize("mid_p", [False, True])
def test_plink_2_prints_the_same_of_sites_and_samples(mid_p: bool, tmp_path: Path) -> None:
    plink2(tmp_path, "--dummy", "61", "500", "0.06", "--seed", "4", "--make-bed", "--out", "study")
    asked = ["--bfile", "study", "--missing", "--freq", "--hardy", *(["midp"] if mid_p else []), "--out", "told"]
    plink2(tmp_path, *asked)
    with dask.config.set(scheduler="sync"):
        found = qc(tmp_path / "study.bed", mid_p=mid_p)
    told = tmp_path / "told"
    assert found.counts[:, 3].tolist() == numbers(told.with_suffix(".vmiss"), "MISSING_CT").tolist()
    np.testing.assert_allclose(found.missing, numbers(told.with_suffix(".vmiss"), "F_MISS"), rtol=5.1e-6)
    assert found.by_sample[:, 3].tolist() == numbers(told.with_suffix(".smiss"), "MISSING_CT").tolist()
    np.testing.assert_allclose(found.frequency, numbers(told.with_suffix(".afreq"), "ALT_FREQS"), rtol=5.1e-6)
    assert found.counts[:, 1].tolist() == numbers(told.with_suffix(".hardy"), "HET_A1_CT").tolist()
    np.testing.assert_allclose(found.hwe, numbers(told.with_suffix(".hardy"), "MIDP" if mid_p else "P"), rtol=5.1e-6)


@pytest.mark.parametrize("contig", ["X", "chrX", "24", "MT"])
def test_sites_of_which_males_have_one_copy_have_no_p_and_stay_in_components_and_a_note_says_so(
    contig: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    frequency = rng.uniform(0.2, 0.8, (40, 1))
    x = rng.binomial(2, frequency, (40, 200))
    x[20:, :100] = 2 * rng.binomial(1, frequency[20:], (20, 100))
    path = bed_file(tmp_path, x.astype(np.uint8), ["1"] * 20 + [contig] * 20)
    assert np.isnan(qc(path).hwe).tolist() == [False] * 20 + [True] * 20
    assert pca(path, 2, hwe=1e-3, ld_prune=(2, 1)).kept.all()
    for name, given, effect in (
        ("genotype_qc", {}, "no Hardy-Weinberg p-value, and their frequencies count the one copy of males twice"),
        ("genotype_pca", {"hwe": 1e-3}, "hwe doesn't exclude them"),
        ("genotype_relatedness", {}, "left out of kinship"),
    ):
        validate, given = template(name).validate, {"path": path, **given}
        assert any("20 variants on X, Y or mito" in each and effect in each for each in validate(given).notes)
        assert not any("mito" in each for each in validate(given | {"autosomes_only": True}).notes)
    variants = open_genotypes(path).variants
    assert variants.contig is not None
    dogs = np.where(np.arange(40) < 20, "38", "24" if contig == "24" else variants.contig)
    other = replace(open_genotypes(path), variants=replace(variants, contig=dogs))
    assert np.isnan(qc(other).hwe).any() == (contig != "24")


@pytest.mark.parametrize("rows", [1, 254, 255, 256, 700])
def test_samples_are_counted_down_the_rows_whatever_their_number(rows: int) -> None:
    x = np.random.default_rng(rows).choice([0, 1, 2, 3], (rows, 23), p=[0.1, 0.1, 0.1, 0.7]).astype(np.uint8)
    expected = np.stack([(x == code).sum(axis=0) for code in range(4)], axis=1)
    assert (by_sample(pack(x), 23) == expected).all()


def test_a_share_of_nothing_is_none_and_thresholds_count_what_would_go() -> None:
    x = np.random.default_rng(0).binomial(2, 0.5, (40, 50)).astype(np.uint8)
    x[0], x[1], x[2, :5], x[:, 7] = 255, 2, 255, 255
    found = qc(Genotypes(da.from_array(pack(x), chunks=(9, -1)), np.arange(50)))
    assert np.isnan(found.frequency[0])
    assert found.sample_missing[7] == 1
    assert np.isnan(found.sample_het[7])
    gone = found.would_go()
    assert gone["monomorphic or unknown"] == 2
    assert gone["missing > 0.02"] == 2
    assert gone["missing > 0.1"] == 2
    assert "would go: {'monomorphic" in repr(found)


def test_the_workload_counts_keeps_arrays_and_finds_a_wrong_count(tmp_path: Path, quick_client: Any) -> None:
    np.save(tmp_path / "counts.npy", np.random.default_rng(0).integers(0, 4, (900, 37)).astype("uint8"))
    (tmp_path / "list.txt").write_text("sample 1\nsample 2\n")
    parameters = WORKLOAD.validate({"path": str(tmp_path / "counts.npy"), "remove": str(tmp_path / "list.txt")})
    names = np.array(["sample 1", "sample 2"])
    assert WORKLOAD.validate({"path": tmp_path / "counts.npy", "remove": names}).resolved == parameters.resolved | {
        "remove": names.tolist()
    }
    assert parameters.resolved["shape"] == [900, 35]
    assert WORKLOAD.needs(parameters).peak(2) > 0
    results = WORKLOAD.build(parameters)
    summary, arrays = WORKLOAD.summarise(results), WORKLOAD.arrays(results)
    assert summary["variants_that_would_go"]["missing > 0.1"] > 800
    assert arrays["counts"].data.shape == (900, 4)
    assert arrays["sample_missing"].coords["sample"][0] == "sample 0"
    check = WORKLOAD.check(parameters, results, quick_client)
    assert check.passed, check.what
    results["quality"].counts[0, :2] += [1, -1]
    results["quality"].by_sample[0, :2] += [1, -1]
    assert "2 counts of 16 × 4 variants" in WORKLOAD.check(parameters, results, quick_client).what
    results["quality"].counts[0, 0] += 1
    assert "different sums" in WORKLOAD.check(parameters, results, quick_client).what
    with pytest.raises(BadParameterError, match=r"^autosomes_only of genotype_qc"):
        WORKLOAD.validate({"path": str(tmp_path / "counts.npy"), "autosomes_only": True})
    with pytest.raises(BadInputError, match="All 900 variants are left out"):
        qc(str(tmp_path / "counts.npy"), kept=np.zeros(900, bool))


@pytest.mark.parametrize(("variants", "samples"), [(0, 5), (5, 0)])
@pytest.mark.parametrize("workload", ["genotype_qc", "genotype_pca", "genotype_relatedness"])
def test_files_without_variants_or_samples_are_refused_as_such(
    workload: str, variants: int, samples: int, tmp_path: Path
) -> None:
    (tmp_path / "none.bed").write_bytes(b"\x6c\x1b\x01" + bytes(variants * -(-samples // 4)))
    (tmp_path / "none.bim").write_text("".join(f"1 v{i} 0 {i} A C\n" for i in range(variants)))
    (tmp_path / "none.fam").write_text("".join(f"f s{i} 0 0 0 -9\n" for i in range(samples)))
    sentence = rf"path of {workload}: .*none.bed has {variants} variants of {samples} samples, expected some"
    with pytest.raises(BadParameterError, match=sentence):
        template(workload).validate({"path": str(tmp_path / "none.bed")})


def test_arrays_have_the_alleles_of_each_variant(tmp_path: Path) -> None:
    (tmp_path / "a.bed").write_bytes(b"\x6c\x1b\x01\x39\x0e")
    (tmp_path / "a.bim").write_text("1 v0 0 1 A C\n1 v1 0 2 G T\n")
    (tmp_path / "a.fam").write_text("".join(f"f s{i} 0 0 0 -9\n" for i in range(4)))
    arrays = WORKLOAD.arrays(WORKLOAD.build(WORKLOAD.validate({"path": str(tmp_path / "a.bed")})))
    head, *lines = (line.split("\t") for line in table(arrays[["frequency"]]))
    alleles = [head.index(f"variant_{name}_allele") for name in ("other", "counted")]
    assert [[line[i] for i in alleles] for line in lines] == [["C", "A"], ["T", "G"]]


@pytest.mark.filterwarnings("error")
def test_a_file_in_which_nothing_is_known_is_summed_up(tmp_path: Path) -> None:
    np.save(tmp_path / "counts.npy", np.full((9, 5), 255, np.uint8))
    summary = WORKLOAD.summarise(WORKLOAD.build(WORKLOAD.validate({"path": str(tmp_path / "counts.npy")})))
    assert summary["sample_most_unknown"] == "sample 0 (100 %)"
    assert summary["samples_heterozygosity_3_sd_apart"] == 0
