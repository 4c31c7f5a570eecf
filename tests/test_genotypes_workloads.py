"""Genotypes apart from their analyses: workloads, the output of `look`, and pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.test_genotypes_pca import bed_file
from workbench.errors import BadInputError, FailedError
from workbench.figures.answers import Dots, pictures
from workbench.runs import inputs
from workbench.storage.variables import dataset
from workbench.workloads.builtin import templates
from workbench.workloads.contents import look

TEXT = np.dtypes.StringDType()
RNG = np.random.default_rng(0)
LOADINGS = dataset(
    {"loadings": (("variant", "component"), RNG.normal(size=(30_000, 5)))},
    {
        "chromosome": ("variant", np.repeat(np.array(["1", "2", "10"], TEXT), 10_000)),
        "position": ("variant", np.tile(np.arange(10_000), 3)),
    },
)


def test_its_workloads_come_after_the_others() -> None:
    names = [each.name for each in templates()]
    mine = ["genotype_pca", "pack_genotypes", "genotype_qc", "genotype_relatedness", "genotype_project"]
    assert names[-5:] == mine


def test_genotypes_are_told_with_contigs_samples_and_what_is_unknown(tmp_path: Path) -> None:
    counts = np.random.default_rng(0).integers(0, 3, (40, 6)).astype("int8")
    counts[:4] = 3
    found = look(bed_file(tmp_path, counts, ["1"] * 30 + ["X"] * 10))
    assert found.sentence() == "PLINK .bed, .bim and .fam, 83 B: 1 array"
    assert found.arrays[0].line().startswith("variant 40 × sample 6, uint8, 80 B, two bits each")
    assert found.remarks[:2] == ("Contigs: 1, X.", "Of the first 40 variants 10 % are unknown.")


def test_what_can_not_be_looked_into_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.bed").write_text("")
    with pytest.raises(BadInputError, match=r"a\.bed"):
        look(str(tmp_path / "a.bed"))
    (tmp_path / "study.vcf").write_text("##fileformat=VCFv4.2\n")
    with pytest.raises(BadInputError, match=r"is a VCF, which is not read here\. Make a file that is: plink2 --vcf"):
        look(str(tmp_path / "study.vcf"))


def test_the_largest_loading_of_a_genome_is_drawn_however_many_there_are() -> None:
    dots = next(each for each in pictures(LOADINGS, {}) if each.name == "loadings-1").drawn
    assert isinstance(dots, Dots)
    sizes = np.abs(LOADINGS["loadings"].values[:, 0])
    assert dots.y.max() == sizes.max()
    assert len(dots.y) <= 10_000
    # Contigs lie one after the other in the file's order, which isn't that of the alphabet.
    assert list(dict.fromkeys(dots.labels)) == ["1", "2", "10"]
    assert (np.diff(dots.x) >= 0).all()


def test_quality_of_genotypes_is_drawn_as_an_analyst_looks_at_it() -> None:
    n, m = 300, 40
    unknown = RNG.integers(0, 5, n)
    frequency = RNG.random(n)
    frequency[0] = np.nan
    by_variant = {"missing": unknown / m, "frequency": frequency, "hwe_p": RNG.random(n)}
    by_sample = {"sample_missing": RNG.random(m), "sample_heterozygosity": RNG.random(m)}
    arrays = {name: ("variant", data) for name, data in by_variant.items()}
    arrays |= {name: ("sample", data) for name, data in by_sample.items()}
    found = {each.name: each for each in pictures(dataset(arrays, {"sample": range(m)}), {})}
    assert list(found) == ["samples", "frequency", "missing", "hwe"]
    (line,) = found["missing"].drawn  # type: ignore[misc]
    np.testing.assert_array_equal(line.y, np.bincount(unknown))
    np.testing.assert_allclose(line.x, 100 * np.arange(5) / m)
    assert found["frequency"].drawn[0].y.sum() == n - 1  # type: ignore[index]
    told, expected = found["hwe"].drawn  # type: ignore[misc]
    assert told.y[0] == -np.log10(by_variant["hwe_p"].min())
    assert (np.diff(expected.y) < 0).all()
    pairs = {"sample_1": ("pair", np.array(["a"], TEXT)), "sample_2": ("pair", np.array(["b"], TEXT))}
    pairs["degree"] = ("pair", np.array([1]))
    related = {name: ("pair", np.array([0.25])) for name in ("kinship", "ibs0")}
    (picture,) = pictures(dataset(related, pairs), {})
    assert isinstance(picture.drawn, Dots)
    assert (picture.drawn.names, picture.drawn.labels) == (("a, b",), ("1",))


@pytest.mark.parametrize("suffix", [".bed", ".bim", ".fam"])
def test_a_change_of_any_of_the_three_files_is_noticed(tmp_path: Path, suffix: str) -> None:
    path = bed_file(tmp_path, np.zeros((4, 5), np.int8), ["1"] * 4)
    workload = next(each for each in templates() if each.name == "genotype_qc")
    before = inputs.states(workload, {"path": path})
    assert before == inputs.states(workload, {"path": path})
    with Path(path).with_suffix(suffix).open("a") as file:
        file.write("more")
    with pytest.raises(FailedError, match="changed after the run was submitted"):
        inputs.check_unchanged(workload, {"path": path}, before)
