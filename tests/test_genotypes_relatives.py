"""Relatives are found as PLINK 2 finds them, by the bits of packed blocks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from tests.test_genotypes_pca import bed_file
from tests.test_genotypes_qc import column, numbers, plink2
from workbench.cli import main
from workbench.compiled import installed
from workbench.errors import BadInputError
from workbench.genotypes import Genotypes, bits, kinship, open_genotypes, pca, relatives
from workbench.genotypes.choosing import of_chosen_samples
from workbench.genotypes.packing import pack
from workbench.runs import answer_storage, store
from workbench.runs.run import Run
from workbench.workloads import template

WORKLOAD = template("genotype_relatedness")


def family(variants: int = 3000) -> Any:
    """Return counts of two parents, their three children, a twin of the first, and strangers: pairs of every degree."""
    rng = np.random.default_rng(0)
    haplotypes = rng.random((variants, 2, 24)) < rng.uniform(0.1, 0.9, (variants, 1, 1))

    def child(one: int, other: int) -> Any:
        choice = rng.integers(0, 2, (2, variants))
        rows = np.arange(variants)
        return np.stack([haplotypes[rows, choice[0], one], haplotypes[rows, choice[1], other]], axis=1)

    for place, parents in ((2, (0, 1)), (3, (0, 1)), (4, (0, 1)), (6, (2, 9))):
        haplotypes[:, :, place] = child(*parents)
    haplotypes[:, :, 5] = haplotypes[:, :, 2]
    x = haplotypes.sum(axis=1).astype(np.uint8)
    x[rng.random(x.shape) < 0.03] = 255
    return x


def study(x: Any, rows: int = 700) -> Genotypes:
    packed = da.from_array(pack(x), chunks=(rows, -1))
    return Genotypes(packed, np.array([f"s{i}" for i in range(x.shape[1])]))


@pytest.mark.parametrize("compiled", [True, False])
def test_plink_2_prints_the_same_table(compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(bits, "installed", lambda: False)
    elif not installed():
        pytest.skip("needs numba")
    monkeypatch.setattr(relatives, "TILE", 16)
    plink2(tmp_path, "--dummy", "41", "997", "0.07", "--seed", "4", "--make-bed", "--out", "study")
    plink2(tmp_path, "--bfile", "study", "--make-king-table", "--out", "told")
    with dask.config.set(scheduler="sync"):
        found = kinship(tmp_path / "study.bed", -np.inf)
    told = tmp_path / "told.kin0"
    names = [frozenset(pair) for pair in zip(column(told, "IID1"), column(told, "IID2"), strict=True)]
    table = found.table()
    place = {frozenset(pair): i for i, pair in enumerate(zip(table["sample_1"], table["sample_2"], strict=True))}
    order = [place[pair] for pair in names]
    assert len(order) == 41 * 40 // 2 == len(found.pairs)
    assert found.n_variants == 997
    assert found.known[order].tolist() == numbers(told, "NSNP").tolist()
    for ours, theirs in (("hethet", "HETHET"), ("ibs0", "IBS0"), ("kinship", "KINSHIP")):
        np.testing.assert_allclose(table[ours][order], numbers(told, theirs), rtol=5.1e-6, atol=1e-12)


def test_plink_2_leaves_out_the_same_variants(tmp_path: Path) -> None:
    contigs = ["0", *("1",) * 300, *("X",) * 100, "XY", "Y", "MT"]
    path = bed_file(tmp_path, family(404), contigs)
    plink2(tmp_path, "--bfile", "study", "--make-king-table", "--out", "told")
    found = kinship(path, -np.inf)
    assert found.n_variants == 302
    np.testing.assert_allclose(found.kinship, np.sort(numbers(tmp_path / "told.kin0", "KINSHIP"))[::-1], rtol=1e-4)
    with pytest.raises(BadInputError, match=r"All 404 variants are on X, Y or mitochondria.* Give genotypes"):
        kinship(bed_file(tmp_path, family(404), ["X"] * 404))


def test_degrees_are_those_of_a_family_and_the_samples_to_remove_leave_no_pair(tmp_path: Path) -> None:
    found = kinship(study(family()), 0.0442, maf=0.02, max_missing=0.2)
    degrees = {frozenset(pair): int(degree) for pair, degree in zip(found.pairs.tolist(), found.degree, strict=True)}
    expected = {(2, 5): 0, (0, 2): 1, (1, 4): 1, (2, 3): 1, (3, 5): 1, (2, 6): 1, (5, 6): 1, (0, 6): 2, (3, 6): 2}
    assert all(degrees[frozenset(pair)] == degree for pair, degree in expected.items())
    assert frozenset((0, 1)) not in degrees
    left = set(range(24)) - {int(name[1:]) for name in found.remove}
    assert not any(set(pair) <= left for pair in found.pairs.tolist())
    assert len(left) >= 24 - 5
    assert (np.diff(found.kinship) <= 0).all()
    (tmp_path / "gone.txt").write_text("\n".join(found.remove))
    assert not len(kinship(study(family()), 0.0442, remove=tmp_path / "gone.txt").pairs)


def test_a_name_removes_all_samples_that_have_it_and_leaves_no_pair() -> None:
    whole = study(family())
    names = np.where(np.arange(24) % 8 == 2, "twice", whole.samples)
    repeated = replace(whole, samples=names)
    found = kinship(repeated)
    assert "twice" in found.remove
    assert not len(kinship(repeated, remove=found.remove).pairs)
    left = open_genotypes(repeated, remove=["twice"])
    assert "twice" not in left.samples
    assert left.n_samples == 21
    (remark,) = left.remarks
    assert "3 samples share their name with another, such as twice" in remark
    assert of_chosen_samples(open_genotypes(repeated)).remarks == (remark,)
    components = pca(repeated, 2, remove=found.remove)
    assert not set(found.remove) & set(components.samples)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 700])
def test_bits_are_turned_to_lie_by_sample(rows: int) -> None:
    x = np.random.default_rng(rows).integers(0, 4, (rows, 29)).astype(np.uint8)
    planes = bits.by_sample(pack(x), 29)
    told = np.unpackbits(planes.view(np.uint8), axis=2, bitorder="little")
    assert (told[:, 0] + 2 * told[:, 1])[:, :rows].tolist() == x.T.tolist()
    assert told[:, :, rows:].all()


def test_the_workload_tells_degrees_and_finds_a_wrong_kinship(tmp_path: Path, quick_client: Any) -> None:
    np.save(tmp_path / "counts.npy", family(1500))
    parameters = WORKLOAD.validate({"path": str(tmp_path / "counts.npy"), "maf": 0.05, "cutoff": 0.1})
    assert WORKLOAD.needs(parameters).peak(2) > 0
    results = WORKLOAD.build(parameters)
    summary, arrays = WORKLOAD.summarise(results), WORKLOAD.arrays(results)
    assert summary["pairs_by_degree"]["the same or twins"] == 1
    assert summary["closest"][0].startswith("sample 2 and sample 5: 0.")
    assert len(arrays["remove"].data) == summary["samples_to_remove"]
    check = WORKLOAD.check(parameters, results, quick_client)
    assert check.passed, check.what
    results["related"].kinship[0] -= 1e-6
    assert not WORKLOAD.check(parameters, results, quick_client).passed
    with pytest.raises(BadInputError, match=r"cutoff is a kinship of at most 0\.5"):
        kinship(study(family(100)), 2)


def test_where_no_kinship_can_be_computed_it_is_said_so() -> None:
    x = np.random.default_rng(0).integers(0, 2, (50, 6)).astype(np.uint8)
    for counts, chosen in ((np.full_like(x, 255), {}), (2 * x, {}), (x * 0, {"maf": 0.1})):
        with pytest.raises(BadInputError, match=r"can't be computed of the \d+ variants .* Leave out fewer variants"):
            kinship(study(counts), -np.inf, **chosen)
    half = np.where(np.arange(6) < 4, x, 255).astype(np.uint8)
    assert len(kinship(study(half), -np.inf).pairs) == 6


def save_removed(path: str, folder: Path, client: Any) -> list[str]:
    """Save the samples to remove of a run on this file as rem.tsv, and return their names."""
    results = WORKLOAD.build(WORKLOAD.validate({"path": path}))
    run = store.create(Run(id="kin-1", workload="genotype_relatedness", cluster="otter", status="running", created=1.0))
    answers = answer_storage.leave(run.id, WORKLOAD.arrays(results), None, client).answers
    store.update(run.id, answers=answers, status="done")
    assert main(["save", run.id, str(folder / "rem.tsv"), "--only", "remove"]) == 0
    return list(results["related"].remove)


def test_the_samples_to_remove_are_saved_as_a_list_that_removes_them_all(
    tmp_path: Path, data_folder: Path, quick_client: Any
) -> None:
    path = tmp_path / "counts.npy"
    np.save(path, family(1500))
    gone = save_removed(str(path), tmp_path, quick_client)
    assert (tmp_path / "rem.tsv").read_text().splitlines() == ["remove", *gone]
    left = open_genotypes(path, remove=tmp_path / "rem.tsv")
    assert (left.n_samples, left.remarks) == (24 - len(gone), ())
    assert len(gone) > 1
    assert not len(kinship(left).pairs)


def test_the_samples_to_remove_are_saved_with_their_families_so_that_plink_removes_them(
    tmp_path: Path, data_folder: Path, quick_client: Any
) -> None:
    path = bed_file(tmp_path, family(1500), ["1"] * 1500)
    gone = save_removed(path, tmp_path, quick_client)
    assert open_genotypes(path, remove=tmp_path / "rem.tsv").n_samples == 24 - len(gone)
    plink2(tmp_path, "--bfile", "study", "--remove", "rem.tsv", "--make-just-fam", "--out", "left")
    assert len((tmp_path / "left.fam").read_text().splitlines()) == 24 - len(gone)
