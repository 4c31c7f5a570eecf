"""Choice of samples and variants: lists, regions, and the exact test of Hardy-Weinberg equilibrium."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from workbench.errors import BadInputError
from workbench.genotypes import Genotypes, Variants, open_genotypes, pca
from workbench.genotypes.choosing import in_regions, of_chosen_samples
from workbench.genotypes.packing import pack
from workbench.genotypes.scaling import exact_p
from workbench.workloads import template
from workbench.workloads.values import BadParameterError

N, M = 37, 90


def counts() -> Any:
    x = np.random.default_rng(3).integers(0, 3, (M, N)).astype(np.uint8)
    x[np.random.default_rng(4).random(x.shape) < 0.05] = 255
    return x


def study(**variants: Any) -> Genotypes:
    names = np.array([f"s{i}" for i in range(N)])
    table = {"family": np.array([f"f{i // 2}" for i in range(N)]), "age": np.arange(N)}
    packed = da.from_array(pack(counts()), chunks=(40, -1))
    return Genotypes(packed, names, Variants(**variants), table)


@pytest.mark.parametrize("chosen", [[5], [0, 1, 2, 3], [36, 4, 9, 9, 0], list(range(1, 36))])
def test_some_samples_are_taken_of_packed_bits_in_the_order_asked_for(chosen: list[int]) -> None:
    whole = study()
    found = whole.of_samples(chosen)
    assert (found.counts().compute() == whole.counts().compute()[:, chosen]).all()
    assert list(found.samples) == [f"s{i}" for i in chosen]
    assert list(found.sample_table["age"]) == chosen
    assert found.packed.shape[1] == -(-len(chosen) // 4)


def test_a_list_of_samples_names_them_alone_with_their_family_or_below_a_header(tmp_path: Path) -> None:
    texts = ["s3\ns8\n", "f1 s3\nf4\ts8 0 0 1\n", "#IID SEX\ns8 1\ns3 2\n", "#FID IID\nf1 s3\nf4 s8\n", "0 s3\n0 s8\n"]
    for text in texts:
        (tmp_path / "list.txt").write_text(text)
        found = of_chosen_samples(study(), keep_samples=tmp_path / "list.txt")
        assert list(found.samples) == ["s3", "s8"], text
        assert list(of_chosen_samples(study(), remove=str(tmp_path / "list.txt")).samples) == [
            f"s{i}" for i in range(N) if i not in (3, 8)
        ]
    both = of_chosen_samples(study(), keep_samples=["s1", "s2", "nobody"], remove=["s2"])
    assert list(both.samples) == ["s1"]
    assert both.remarks == ("keep_samples names 1 that are no samples here, of 3.",)
    assert of_chosen_samples(study(), remove=[]).n_samples == N
    (tmp_path / "list.txt").write_text("f2 s3\n")
    with pytest.raises(BadInputError, match="names none of the samples: the first there is 'f2 s3', the first sample"):
        of_chosen_samples(study(), remove=tmp_path / "list.txt")
    with pytest.raises(BadInputError, match="leave none of 37 samples"):
        of_chosen_samples(study(), remove=study().samples)


@pytest.mark.parametrize("name", ["6", "06", "chr6", "Chr06", "NC_000006.12"])
def test_a_chromosome_is_the_same_by_each_of_its_names(name: str) -> None:
    there = study(contig=np.repeat([name, "7"], 45), position=np.arange(90))
    for asked in ("6:0-99", "chr6:0-99", "NC_000006.11:0-99"):
        assert in_regions(there, asked).sum() == 45
    assert not in_regions(there, "16:0-99,60:0-99,nc_000016.1:0-99").any()
    with pytest.warns(UserWarning, match=rf"leave_out: no variant lies there, .* Contigs are .*{name}"):
        assert not pca(there, 2, leave_out="8:0-99").dropped


def test_variants_in_regions_are_those_between_both_ends(tmp_path: Path) -> None:
    places = {"contig": np.repeat(["1", "chr6"], 45), "position": np.tile(np.arange(1, 46) * 10, 2)}
    (tmp_path / "regions.bed").write_text("track name=x\nchr6 99 200 mhc\n1\t440\t999\n")
    (expected,) = np.nonzero(in_regions(study(**places), "chr1:441-900, 6:100-200"))
    assert expected.tolist() == [44, *range(54, 65)]
    for same in (["1:450-450", "6:100-200"], tmp_path / "regions.bed", str(tmp_path / "regions.bed")):
        assert np.flatnonzero(in_regions(study(**places), same)).tolist() == expected.tolist()
    found = pca(study(**places), 2, leave_out="6:100-200", keep_samples=[f"s{i}" for i in range(30)])
    assert found.dropped == {"in a region left out": 11}
    alone = pca(np.delete(counts()[:, :30], range(54, 65), axis=0), 2)
    np.testing.assert_allclose(found.singular_values, alone.singular_values, rtol=1e-6)
    for wrong, sentence in (
        ("6:100-200,7", "leave_out has '7', expected regions such as"),
        ("6:200-100", "ends before it starts"),
        ("nowhere.bed", "nowhere.bed isn't there"),
    ):
        with pytest.raises(BadInputError, match=sentence):
            in_regions(study(**places), wrong)
    assert not pca(study(**places), 2, leave_out=[]).dropped
    with pytest.raises(BadInputError, match="needs the contig and position"):
        pca(study(), 2, leave_out="6:1-2")


def likely(none: int, one: int, two: int, *, mid: bool) -> float:
    """Compute the exact test with integers, case by case."""
    n, rare = none + one + two, 2 * min(none, two) + one
    ways = {}
    for hets in range(rare % 2, rare + 1, 2):
        few = (rare - hets) // 2
        chosen = math.factorial(n) // math.factorial(few) // math.factorial(hets) // math.factorial(n - few - hets)
        ways[hets] = 2**hets * chosen
    tied = sum(each for each in ways.values() if each == ways[one])
    below = sum(each for each in ways.values() if each < ways[one])
    return float(Fraction(2 * below + (1 if mid else 2) * tied, 2 * sum(ways.values())))


@pytest.mark.parametrize("mid", [False, True])
def test_the_exact_test_counts_all_that_is_no_likelier(mid: bool) -> None:
    rng = np.random.default_rng(0)
    tables = np.concatenate([rng.integers(0, most, (60, 3)) for most in (2, 4, 10, 40, 100)])
    tables = np.concatenate([tables, [[300, 0, 300], [290, 90, 10], [0, 90, 0]]])
    expected = [likely(*map(int, row), mid=mid) if row.any() else 1.0 for row in tables]
    np.testing.assert_allclose(exact_p(tables, mid=mid), expected, rtol=1e-9)


def test_sites_out_of_equilibrium_are_left_out_and_counted() -> None:
    x = np.random.default_rng(0).binomial(2, 0.5, (60, 200)).astype(np.uint8)
    x[:3] = np.where(np.arange(200) % 2, 2, 0)
    found = pca(Genotypes(da.from_array(pack(x)), np.arange(200)), 2, hwe=1e-6)
    assert found.dropped == {"out of equilibrium": 3}
    assert not found.kept[:3].any()


def test_the_workload_takes_what_python_takes_and_names_the_parameter_that_is_wrong(
    tmp_path: Path, quick_client: Any
) -> None:
    np.save(tmp_path / "counts.npy", counts())
    (tmp_path / "few.txt").write_text("".join(f"sample {i}\n" for i in (3, 9, 20)))
    given = {"path": str(tmp_path / "counts.npy"), "n_components": 3, "maf": 0.4, "max_missing": 0.08, "hwe": 1e-3}
    pca_of = template("genotype_pca")
    parameters = pca_of.validate(given | {"remove": str(tmp_path / "few.txt")})
    assert parameters.resolved["shape"] == [M, N - 3]
    summary, check = pca_of.compute(parameters, quick_client)
    assert check.passed, check.what
    with dask.config.set(scheduler="sync"):
        alone = pca(
            open_genotypes(tmp_path / "counts.npy", remove=tmp_path / "few.txt"), 3, maf=0.4, max_missing=0.08, hwe=1e-3
        )
    assert summary["dropped"] == alone.dropped
    assert set(alone.dropped) == {"rare", "often missing", "out of equilibrium"}
    np.testing.assert_allclose(summary["singular_values"], alone.singular_values, rtol=1e-6)
    for name, wrong in (
        ("remove", str(tmp_path / "none.txt")),
        ("keep_samples", str(tmp_path / "few.txt") + "x"),
        ("leave_out", "6:1-2"),
        ("maf", 0.7),
        ("hwe", 1),
    ):
        with pytest.raises(BadParameterError, match=f"^{name} of genotype_pca") as caught:
            pca_of.validate(given | {name: wrong})
        assert caught.value.parameter == name
    with pytest.raises(BadParameterError, match="remove of genotype_pca is for files"):
        pca_of.validate({"remove": "few.txt"})


def test_choices_without_effect_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "a.bed").write_bytes(b"\x6c\x1b\x01" + bytes(range(40)))
    (tmp_path / "a.bim").write_text("".join(f"{1 + i // 20} v{i} 0 {i} A C\n" for i in range(40)))
    (tmp_path / "a.fam").write_text("".join(f"f s{i} 0 0 0 -9\n" for i in range(4)))
    given = {"path": str(tmp_path / "a.bed"), "n_components": 2}
    wide = template("genotype_pca").validate(given | {"leave_out": "99:1-5", "ld_r2": 0.1, "ld_step": 3})
    assert "leave_out: no variant lies there, so none is left out. Contigs are 1, 2." in wide.notes
    assert "ld_r2, ld_step: of ld_window only, without effect while none is given." in wide.notes
    assert not template("genotype_pca").validate(given | {"leave_out": "2:1-50", "ld_r2": 0.1, "ld_window": 9}).notes
