"""New samples are found where theory expects them, whichever way their files count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

from workbench.errors import BadInputError
from workbench.genotypes import Genotypes, Variants, pca, project, simulate
from workbench.genotypes.packing import pack
from workbench.runs import answer_storage, store
from workbench.runs.run import Run
from workbench.workloads import template
from workbench.workloads.values import BadParameterError

M, N = 4000, 240
WHOLE = simulate(M, N, n_populations=4, fst=0.03, missing=0.01, seed=3)
OURS, NEW = WHOLE.of_samples(np.arange(N) % 2 == 0), WHOLE.of_samples(np.arange(N) % 2 == 1)


def named(genotypes: Genotypes) -> Genotypes:
    """Return the genotypes with contigs, positions, names and alleles."""
    places = {"contig": np.repeat(["1", "chr2"], M // 2), "position": np.tile(np.arange(M // 2) * 7 + 1, 2)}
    alleles = np.tile(np.array(["A", "G"], np.dtypes.StringDType()), (M, 1))
    ids = np.array([f"rs{i}" for i in range(M)], np.dtypes.StringDType())
    return replace(genotypes, variants=Variants(id=ids, alleles=alleles, **places))


def centres(scores: Any) -> Any:
    """Of the populations, of as many samples each."""
    return scores.reshape(4, -1, scores.shape[1]).mean(axis=1)


@pytest.mark.parametrize("scaler", ["patterson", "hail", "plink", "center"])
def test_samples_that_were_there_have_their_scores_and_new_ones_are_as_much_nearer_as_told(scaler: Any) -> None:
    found = pca(OURS, 3, scaler=scaler, tol=1e-6)
    own = found.project(OURS)
    np.testing.assert_allclose(own.scores, found.scores, atol=3e-3 * np.abs(found.scores).max())
    new, corrected = found.project(NEW), found.project(NEW, correct=True)
    ours = centres(found.scores)
    seen = (centres(new.scores) * ours).sum(axis=0) / (ours**2).sum(axis=0)
    np.testing.assert_allclose(seen, new.shrinkage, rtol=0.08)
    assert (new.shrinkage < 0.85).all()
    np.testing.assert_allclose(corrected.scores, new.scores / new.shrinkage)
    assert "They were divided by that." in repr(corrected)


def test_a_component_of_noise_has_no_shrinkage_that_can_be_told() -> None:
    found = pca(simulate(900, 100, n_populations=1, seed=0), 2, max_passes=60)
    assert np.isnan(found.project(simulate(900, 7, n_populations=1, seed=1)).shrinkage).all()


def test_variants_are_found_by_place_and_alleles_in_any_order_and_with_either_counted() -> None:
    found = pca(named(OURS), 3, tol=1e-6)
    expected = found.project(named(NEW))
    order = np.random.default_rng(0).permutation(M)
    counts = NEW.counts().compute()[order]
    swapped = np.arange(M) % 3 == 0
    counts[swapped] = np.where(counts[swapped] == 255, 255, 2 - counts[swapped])
    there = named(NEW).variants[order]
    assert there.alleles is not None
    alleles = there.alleles.copy()
    alleles[swapped] = alleles[swapped][:, ::-1]
    alleles[5] = ["A", "T"]
    moved = Genotypes(da.from_array(pack(counts)), NEW.samples, replace(there, alleles=alleles, id=None))
    again = found.project(moved)
    assert (again.matched, again.lacking, again.swapped) == (M - 1, 1, int(swapped.sum()))
    np.testing.assert_allclose(again.scores, expected.scores, atol=0.01 * np.abs(expected.scores).max())
    half = found.project(named(NEW)[: M // 2])
    slope = (centres(half.scores) * centres(expected.scores)).sum(axis=0) / (centres(expected.scores) ** 2).sum(axis=0)
    np.testing.assert_allclose(slope, 1, atol=0.25)
    with pytest.raises(BadInputError, match=r"Only 40 of 4000 variants .*another build .* in lower case"):
        found.project(named(NEW)[:40])
    with pytest.raises(BadInputError, match="neither names nor places"):
        pca(OURS, 2).project(NEW[:100])
    with pytest.raises(BadInputError, match="scaler='standard' can't be projected onto"):
        pca(OURS, 2, scaler="standard").project(NEW)


def test_variants_that_read_the_same_on_both_strands_are_left_out_unless_asked_for() -> None:
    def with_ambiguous(genotypes: Genotypes) -> Genotypes:
        genotypes = named(genotypes)
        alleles = genotypes.variants.alleles.copy()  # type: ignore[union-attr]
        alleles[:30], alleles[30:50] = ["A", "T"], ["G", "C"]
        return replace(genotypes, variants=replace(genotypes.variants, alleles=alleles))

    found, new = pca(with_ambiguous(OURS), 3, tol=1e-6), with_ambiguous(NEW)
    left, used = found.project(new), found.project(new, ambiguous=True)
    assert (left.matched, left.lacking, left.ambiguous) == (M - 50, 0, 50)
    assert f"{M - 50} of {M} variants were found" in left.sentence
    assert (used.matched, used.lacking, used.ambiguous) == (M, 0, 0)
    assert "50 more have alleles that read the same on both strands" in left.sentence
    # The other strand's alleles are the same two the other way round, which would turn the counts.
    alleles = new.variants.alleles.copy()  # type: ignore[union-attr]
    alleles[:50] = alleles[:50, ::-1]
    other = found.project(replace(new, variants=replace(new.variants, alleles=alleles)))
    np.testing.assert_array_equal(other.scores, left.scores)
    flipped = np.strings.translate(new.variants.alleles.astype("U1"), str.maketrans("ACGT", "TGCA"))  # type: ignore[union-attr]
    strand = replace(new, variants=replace(new.variants, alleles=flipped))
    with pytest.raises(BadInputError, match=r"All 50 variants found .* none of the other 3950 .* other strand"):
        found.project(strand, ambiguous=True)
    sentence = (
        r"^0 of 4000 variants of the reference are there\. Positions .* 50 more have .* with the same variants\.$"
    )
    with pytest.raises(BadInputError, match=sentence):
        found.project(strand)


@pytest.mark.parametrize("agreeing", [0, 40])
def test_variants_of_another_build_are_found_by_their_names(agreeing: int) -> None:
    found, new = pca(named(OURS), 3, tol=1e-6), named(NEW)
    assert new.variants.position is not None
    moved = new.variants.position + 1000 * (np.arange(M) >= agreeing)
    again = found.project(replace(new, variants=replace(new.variants, position=moved)))
    assert (again.matched, again.lacking, again.by_names) == (M, 0, True)
    assert "matched by their names" in again.sentence
    expected = found.project(new)
    assert "by their names" not in expected.sentence
    np.testing.assert_array_equal(again.scores, expected.scores)


def test_a_reference_that_does_not_come_first_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"The reference comes first.* not Genotypes and GenotypePCA"):
        project(NEW, pca(OURS, 2))  # type: ignore[arg-type]


def test_a_name_that_several_variants_have_tells_of_none() -> None:
    found, new = pca(named(OURS), 3, tol=1e-6), named(NEW)
    names = new.variants.id.copy()
    names[: M // 4] = "."
    new = replace(new, variants=replace(new.variants, contig=None, id=names))
    again = found.project(new)
    assert (again.matched, again.lacking) == (M - M // 4, M // 4)
    found = pca(replace(new, samples=new.samples), 3, tol=1e-6)
    assert found.project(new).matched == M - M // 4


@pytest.mark.parametrize("by_name", [False, True])
def test_samples_alone_in_their_files_which_lack_alleles_have_the_scores_that_they_have_together(by_name: bool) -> None:
    found, new = pca(named(OURS), 3, tol=1e-6), named(NEW)
    if by_name:
        new = replace(new, variants=replace(new.variants, contig=None))
    together = found.project(new)
    for sample in (0, 17, 60):
        counts = new.counts()[:, sample : sample + 1].compute()
        (none,), (two,), (unknown,) = (np.nonzero(counts[:, 0] == code)[:1] for code in (0, 2, 255))
        # As PLINK writes what doesn't vary: the allele that is there is A2, of A1 there are no copies.
        alleles = np.tile(np.array(["A", "G"], np.dtypes.StringDType()), (M, 1))
        alleles[two, 0] = "G"
        for i, word in enumerate(("0", ".", "")):
            alleles[np.concatenate([none, two])[i::3], 1] = word
        alleles[unknown] = "0"
        counts[two] = 0
        variants = replace(new.variants, alleles=alleles)
        alone = found.project(Genotypes(da.from_array(pack(counts)), new.samples[[sample]], variants))
        assert (alone.matched, alone.swapped) == (M, len(two))
        np.testing.assert_allclose(alone.scores[0], together.scores[sample], atol=1e-9)


def test_a_run_projects_onto_what_an_earlier_run_kept(tmp_path: Path, data_folder: Path, quick_client: Any) -> None:
    for name, genotypes in (("ours", OURS), ("new", NEW)):
        np.save(tmp_path / f"{name}.npy", genotypes.counts().compute())
    first, second = template("genotype_pca"), template("genotype_project")
    results = first.build(first.validate({"path": str(tmp_path / "ours.npy"), "n_components": 3, "tol": 1e-5}))
    store.create(Run(id="genotype_pca-3fa29c", workload="genotype_pca", cluster="otter", status="running"))
    answer_storage.leave("genotype_pca-3fa29c", first.arrays(results), None, quick_client)
    parameters = second.validate({"components": "genotype_pca-3fa29c", "path": str(tmp_path / "new.npy")})
    for short in ("last", "3fa29c"):
        assert second.validate(parameters.given | {"components": short}) == parameters
    assert second.needs(parameters).peak(1) > 0
    found = second.build(parameters)
    check = second.check(parameters, found, quick_client)
    assert check.passed, check.what
    assert second.summarise(found)["variants_lacking"] == 0
    expected = results["components"].project(NEW).scores
    np.testing.assert_allclose(second.arrays(found)["scores"].data, expected, atol=1e-6 * np.abs(expected).max())
    found["projected"].scores[len(expected) // 2] += 1
    assert not second.check(parameters, found, quick_client).passed
    for wrong in ("nothing.zarr", str(tmp_path)):
        with pytest.raises(BadParameterError, match=r"^components of genotype_project: .*Expected a Zarr store"):
            second.validate({"components": wrong, "path": str(tmp_path / "new.npy")})
