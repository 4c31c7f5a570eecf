"""Genotypes from VCF Zarr and from counts in arrays of every kind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import h5py
import numpy as np
import pytest
import zarr

from workbench.errors import BadInputError
from workbench.genotypes import Genotypes, Variants, open_genotypes, pca, simulate
from workbench.genotypes.packing import at_most, block_rows
from workbench.workloads import template

_COUNTS = np.random.default_rng(0).integers(0, 3, (60, 13)).astype("u1")


def _with_missing(counts: np.ndarray[Any, Any], code: float, dtype: str) -> tuple[Any, Any]:
    lost = np.random.default_rng(1).random(counts.shape) < 0.2
    written = counts.astype(dtype)
    written[lost] = code
    return written, np.where(lost, 255, counts)


def vcf_zarr(path: Path, calls: Any, zarr_format: int = 2, **replaced: Any) -> Path:
    """Write a group as bio2zarr does, with the arrays of version 0.4 of the specification."""
    n_variants, n_samples = np.shape(calls)[:2]
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format, attributes={"vcf_zarr_version": "0.4"})
    columns: dict[str, Any] = {
        "call_genotype": np.asarray(calls, "i1"),
        "variant_position": np.arange(n_variants, dtype="i4") * 10,
        "variant_contig": np.arange(n_variants, dtype="i1") % 2,
        "contig_id": ["chr1", "chr2"],
        "variant_id": [f"rs{i}" for i in range(n_variants)],
        "variant_allele": [["A", "G", ""]] * n_variants,
        "sample_id": [f"NA{i}" for i in range(n_samples)],
    }
    for name, column in {**columns, **replaced}.items():
        if column is None:
            continue
        data = np.array(column)
        if data.dtype.kind == "U":
            data = data.astype(np.dtypes.StringDType())
        chunks = (7, 5, 2)[: data.ndim] if name == "call_genotype" else "auto"
        group.create_array(name, data=data, chunks=chunks)
    return path


def _calls(counts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Two alleles for each count; the heterozygous are written both ways round."""
    swapped = np.indices(counts.shape).sum(axis=0) % 2 == 0
    first, second = counts >= 1, counts == 2
    return np.stack([np.where(swapped, second, first), np.where(swapped, first, second)], axis=2).astype("i1")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_vcf_zarr_of_both_formats_is_read_with_its_labels(tmp_path: Path, zarr_format: int) -> None:
    calls = _calls(_COUNTS)
    calls[3, 4] = -1
    calls[5, 6] = (0, -1)
    calls[5, 7] = (-1, 1)
    expected = _COUNTS.copy()
    expected[[3, 5, 5], [4, 6, 7]] = 255
    genotypes = open_genotypes(vcf_zarr(tmp_path / "study.vcz", calls, zarr_format))
    np.testing.assert_array_equal(genotypes.counts().compute(), expected)
    np.testing.assert_array_equal(genotypes[10:20].counts().compute(), expected[10:20])
    variants = genotypes.variants
    assert variants.contig is not None
    assert variants.position is not None
    assert variants.id is not None
    assert variants.alleles is not None
    assert genotypes.samples[:2].tolist() == ["NA0", "NA1"]
    assert variants.contig[:3].tolist() == ["chr1", "chr2", "chr1"]
    assert variants.position[:3].tolist() == [0, 10, 20]
    assert variants.id[2] == "rs2"
    assert variants.alleles[0].tolist() == ["A", "G"]


def test_vcf_zarr_without_the_optional_columns_is_read(tmp_path: Path) -> None:
    bare = dict.fromkeys(("variant_position", "variant_contig", "contig_id", "variant_id", "variant_allele"))
    genotypes = open_genotypes(vcf_zarr(tmp_path / "bare.vcz", _calls(_COUNTS), **bare))
    np.testing.assert_array_equal(genotypes.counts().compute(), _COUNTS)
    assert genotypes.variants.alleles is None
    alone = vcf_zarr(tmp_path / "alone.vcz", _calls(_COUNTS), variant_allele=[["A"]] * 60)
    alleles = open_genotypes(alone).variants.alleles
    assert alleles is not None
    assert alleles[0].tolist() == ["A", ""]


def test_sites_of_several_alternate_alleles_are_counted_together_or_dropped_or_refused(tmp_path: Path) -> None:
    calls = _calls(_COUNTS)
    calls[2, 0] = (1, 2)
    calls[2, 1] = (0, 3)
    alleles = [["A", "G", "", ""]] * 60
    alleles[2] = ["A", "G", "T", "C"]
    path = vcf_zarr(tmp_path / "several.vcz", calls, variant_allele=alleles)
    genotypes = open_genotypes(path)
    assert genotypes.counts()[2, :2].compute().tolist() == [2, 1]
    assert genotypes.variants.alleles is not None
    assert genotypes.variants.alleles[2].tolist() == ["A", "G,T,C"]
    dropped = open_genotypes(path, multiallelic="drop")
    np.testing.assert_array_equal(dropped.counts().compute(), np.delete(_COUNTS, 2, axis=0))
    assert dropped.variants.id is not None
    assert dropped.variants.id[2] == "rs3"
    with pytest.raises(BadInputError, match=r"has 1 sites with more than one alternate allele, the first at variant 2"):
        open_genotypes(path, multiallelic="refuse")


def test_remarks_say_that_alternate_alleles_are_counted_together_and_half_known_calls_are_missing(
    tmp_path: Path,
) -> None:
    calls = _calls(_COUNTS)
    calls[0, 1], calls[3, 2], calls[2, 4], calls[1, 1] = (-1, 1), (0, -1), (-1, -1), (1, -2)
    alleles = [["A", "G", ""]] * 58 + [["A", "G", "T"]] * 2
    path = vcf_zarr(tmp_path / "half.vcz", calls, variant_allele=alleles)
    half = "Half-known calls, such as ./1, count as missing: 2 of the first 35 calls are."
    several = "Sites with several alternate alleles: 2. Copies of any of these are counted together."
    assert open_genotypes(path).remarks == (half, several)
    assert set(template("genotype_qc").validate({"path": str(path)}).notes) == {half, several}
    assert open_genotypes(path, multiallelic="drop").remarks == (half,)


def test_haploid_calls_count_their_allele_twice_as_plink_does(tmp_path: Path) -> None:
    calls = _calls(_COUNTS)
    calls[33, 8], calls[34, 8], calls[35, 8] = (1, -2), (0, -2), (-1, -2)
    counts = open_genotypes(vcf_zarr(tmp_path / "x.vcz", calls)).counts().compute()
    assert counts[33:36, 8].tolist() == [2, 0, 255]
    alleles = np.random.default_rng(0).integers(0, 2, (60, 13, 1)).astype("i1")
    for name, haploid in (("one", alleles), ("two", np.concatenate([alleles, np.full_like(alleles, -2)], axis=2))):
        found = open_genotypes(vcf_zarr(tmp_path / f"{name}.vcz", haploid))
        assert found.remarks == ("Haploid calls: the one allele of each counts twice, as in PLINK's .bed files.",)
        # Patterson's scaling with a ploidy of 1 divides by the same deviation.
        x = alleles[..., 0].astype(float)
        p = x.mean(axis=1, keepdims=True)
        expected = 2 * np.linalg.svd((x - p) / np.sqrt(p * (1 - p)), compute_uv=False)
        np.testing.assert_allclose(pca(found, 3).singular_values, expected[:3], rtol=1e-3)


def test_vcf_zarr_in_a_zip_file_is_read(tmp_path: Path) -> None:
    folder = vcf_zarr(tmp_path / "study", _calls(_COUNTS))
    path = shutil.make_archive(str(tmp_path / "study.vcz"), "zip", folder)
    np.testing.assert_array_equal(open_genotypes(path).counts().compute(), _COUNTS)
    with dask.config.set(scheduler="processes", num_workers=1):
        np.testing.assert_array_equal(open_genotypes(path).counts().compute(), _COUNTS)


@pytest.mark.parametrize(
    ("replaced", "sentence"),
    [
        ({"call_genotype": None}, "VCF Zarr has it, and has no matrix of counts either"),
        ({"sample_id": None}, "has no array sample_id. Expected a VCF Zarr group with call_genotype"),
        ({"sample_id": ["a", "b"]}, "sample_id has 2 entries, expected 13 as call_genotype has"),
        ({"call_genotype": np.zeros((60, 13, 4), "i1")}, "the ploidy is 4, expected 1 or 2"),
        ({"call_genotype": np.zeros((60, 13), "i1")}, "expected variants × samples × ploidy"),
        ({"variant_position": np.zeros(3, "i4")}, "variant_position has 3 entries, expected 60"),
    ],
)
def test_a_vcf_zarr_group_without_the_expected_arrays_gives_a_sentence(
    tmp_path: Path, replaced: Any, sentence: str
) -> None:
    if replaced.get("call_genotype") is None and "call_genotype" in replaced:
        replaced = {**replaced, "variant_allele": None}
    path = vcf_zarr(tmp_path / "odd.vcz", _calls(_COUNTS), **replaced)
    with pytest.raises(BadInputError, match=sentence) as caught:
        open_genotypes(path)
    assert str(path) in str(caught.value)


def test_calls_that_are_damaged_give_a_sentence_when_they_are_read(tmp_path: Path) -> None:
    path = vcf_zarr(tmp_path / "hurt.vcz", _calls(_COUNTS), 2)
    next(path.glob("call_genotype/[0-9]*")).write_bytes(b"rubbish")
    with pytest.raises(BadInputError, match=r"Chunk .* of .*hurt.vcz/call_genotype can't be decompressed \(7 bytes"):
        open_genotypes(path).packed.compute()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"orientation": 3}, "Unknown orientation 3. Choose one of: variants×samples"),
        ({"missing": "a"}, "missing is a number, or several, that stand for a value not known; not"),
        ({"missing": object()}, "missing is a number"),
        ({"samples": "ab"}, "samples are names, one for each sample, not 'ab'"),
        ({"samples": 5}, "samples are names"),
        ({"variants": "v"}, "variants must be workbench.genotypes.Variants, not str"),
        ({"variants": Variants(id=np.array(["v"]))}, "variants.id has 1 values for 4 variants"),
        ({"labels": {"sex": 5}}, "The column 'sex' has 1 values for 2 samples"),
        ({"labels": 5}, "A path or URL is needed, not 5"),
    ],
)
def test_what_is_told_of_an_array_is_checked_before_it_is_read(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        open_genotypes(np.zeros((4, 2), int), **given)


def test_lists_and_blocks_of_unknown_length_are_refused() -> None:
    with pytest.raises(BadInputError, match="These lists are no array of variants × samples"):
        open_genotypes([[1, 2], [1]])
    x = da.ones((6, 2), dtype=int, chunks=3)
    with pytest.raises(BadInputError, match=r"call its compute_chunk_sizes\(\) first"):
        open_genotypes(x[x[:, 0] > 0])


def _stored(folder: Path, kind: str, counts: Any) -> Path:
    path = folder / f"counts.{kind}"
    if kind == "npy":
        np.save(path, counts)
    elif kind == "h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("geno/counts", data=counts, chunks=(7, 3))
    else:
        array = zarr.create_array(path, shape=counts.shape, chunks=(7, 3), dtype=counts.dtype, overwrite=True)
        array[:] = counts
    return path


@pytest.mark.parametrize("kind", ["npy", "h5", "zarr"])
@pytest.mark.parametrize(("code", "dtype"), [(-127, "i1"), (-9, "i2"), (3, "u1"), (255, "u1"), (np.nan, "f4")])
def test_counts_in_files_are_read_with_each_missing_code(tmp_path: Path, kind: str, code: float, dtype: str) -> None:
    written, expected = _with_missing(_COUNTS, code, dtype)
    path = _stored(tmp_path, kind, written)
    for rows in ("auto", 11):
        genotypes = open_genotypes(path, rows=rows)  # type: ignore[arg-type]
        np.testing.assert_array_equal(genotypes.counts().compute(), expected)
    np.testing.assert_array_equal(genotypes[5:50:3].counts().compute(), expected[5:50:3])
    turned = open_genotypes(_stored(tmp_path, kind, written.T), orientation="samples x variants")
    np.testing.assert_array_equal(turned.counts().compute(), expected)


@pytest.mark.parametrize("chunks", [(60, 13), (7, 3), (7, 4), (1, 13)])
def test_dask_and_numpy_arrays_are_packed_block_by_block(chunks: tuple[int, int]) -> None:
    written, expected = _with_missing(_COUNTS, -1, "i8")
    for array in (da.from_array(written, chunks), written, written.tolist()):
        np.testing.assert_array_equal(open_genotypes(array).counts().compute(), expected)
        np.testing.assert_array_equal(open_genotypes(array, rows=9).counts().compute(), expected)
    turned = open_genotypes(da.from_array(written.T, chunks[::-1]), orientation="samples×variants")
    np.testing.assert_array_equal(turned.counts().compute(), expected)


def test_a_wrong_value_is_named_with_its_place_in_the_whole_array(tmp_path: Path) -> None:
    counts = _COUNTS.copy()
    counts[41, 10] = 7
    sources = [
        da.from_array(counts, (7, 4)),
        counts,
        _stored(tmp_path, "npy", counts),
        _stored(tmp_path, "zarr", counts),
    ]
    for source in sources:
        with pytest.raises(BadInputError, match=r"value 7 at variant 41, sample 10 "):
            open_genotypes(source).packed.compute()
    for source in (counts.T, _stored(tmp_path, "h5", counts.T)):
        with pytest.raises(BadInputError, match=r"value 7 at variant 41, sample 10 "):
            open_genotypes(source, orientation="samples×variants").packed.compute()


def test_a_named_missing_value_is_the_only_one() -> None:
    counts = _COUNTS.copy()
    counts[1, 1] = 9
    assert open_genotypes(counts, missing=9).counts()[1, 1].compute() == 255
    counts[2, 2] = 255
    with pytest.raises(BadInputError, match=r"The value 255 at variant 2, sample 2 .* nor a missing value \(9\)"):
        open_genotypes(counts, missing=9).packed.compute()
    assert open_genotypes(counts, missing=(9, 255)).counts()[2, 2].compute() == 255


def test_which_way_an_array_lies_is_never_guessed_from_an_odd_shape() -> None:
    with pytest.raises(BadInputError, match=r"The array is 13 × 60, .* say which way it lies, orientation='variants×"):
        open_genotypes(_COUNTS.T)
    assert open_genotypes(_COUNTS.T, orientation="variants × samples").shape == (13, 60)
    assert open_genotypes(_COUNTS).shape == (60, 13)
    with pytest.raises(BadInputError, match=r"Unknown orientation 'rows'. Choose one of: variants×samples, samples×"):
        open_genotypes(_COUNTS, orientation="rows")


def test_names_of_samples_decide_which_way_an_array_lies_or_contradict_it() -> None:
    names = [f"s{i}" for i in range(13)]
    assert open_genotypes(_COUNTS.T, samples=names).shape == (60, 13)
    assert open_genotypes(_COUNTS, samples=names).samples.tolist() == names
    with pytest.raises(
        BadInputError, match=r"13 samples are named, which contradicts .* Try orientation='variants×sam"
    ):
        open_genotypes(_COUNTS, samples=names, orientation="samples×variants")
    with pytest.raises(BadInputError, match=r"is 60 × 13, and neither is the number of samples named, 5"):
        open_genotypes(_COUNTS, samples=names[:5])
    with pytest.raises(BadInputError, match=r"could lie either way"):
        open_genotypes(_COUNTS[:13], samples=names)


def test_names_of_dimensions_decide_which_way_an_array_lies(tmp_path: Path) -> None:
    named = zarr.create_array(tmp_path / "n.zarr", data=_COUNTS.T, dimension_names=("samples", "variants"))
    assert open_genotypes(named).shape == (60, 13)
    with pytest.raises(BadInputError, match=r"says that it is samples×variants, which contradicts orientation="):
        open_genotypes(tmp_path / "n.zarr", orientation="variants×samples")
    xarray = zarr.create_array(tmp_path / "x.zarr", data=_COUNTS.T, zarr_format=2)
    xarray.attrs["_ARRAY_DIMENSIONS"] = ["samples", "variants"]
    np.testing.assert_array_equal(open_genotypes(tmp_path / "x.zarr").counts().compute(), _COUNTS)


def test_a_group_of_several_matrices_asks_for_one(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    group.create_array("dosage", data=_COUNTS)
    assert open_genotypes(tmp_path / "g.zarr").shape == (60, 13)
    group.create_array("mask", data=_COUNTS)
    group.create_array("deep/er", data=_COUNTS)
    with pytest.raises(BadInputError, match=r"with 2 matrices: name one of them as array: dosage, mask"):
        open_genotypes(tmp_path / "g.zarr")
    assert open_genotypes(tmp_path / "g.zarr", array="mask").shape == (60, 13)
    assert open_genotypes(tmp_path / "g.zarr", array="deep/er").shape == (60, 13)
    with pytest.raises(BadInputError, match=r"has no matrix 'none'. Choose one of: dosage, mask"):
        open_genotypes(tmp_path / "g.zarr", array="none")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "a.vcf.gz",
            b"\x1f\x8b",
            "is a VCF, which is not read here. Make a file that is: plink2 --vcf NAME --make-bed",
        ),
        ("a.pgen", b"\x6c\x1b\x10", "PLINK 2's own format.*plink2 --pfile NAME --make-bed"),
        ("a.npz", b"PK", "an archive of arrays"),
        ("a.txt", b"0 1 2\n", "starts with 30 20 31 20 32 0a, which is no format that is read here. Expected a PLINK"),
        ("empty", b"", "is empty, which is no format"),
        ("short.npy", b"\x93NUMPY\x01\x00", "short.npy can't be read .* Expected a PLINK"),
        ("short.h5", b"\x89HDF\r\n\x1a\n", "short.h5 can't be read .* Expected a PLINK"),
    ],
)
def test_a_file_that_can_not_be_read_says_what_it_is_and_what_to_do(
    tmp_path: Path, name: str, content: bytes, sentence: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInputError, match=sentence) as caught:
        open_genotypes(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


def test_what_is_not_there_or_no_array_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"/nowhere isn't there. Expected a PLINK .bed file with its .bim and .fam"):
        open_genotypes(tmp_path / "nowhere")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(BadInputError, match=r"/folder is a folder that is no Zarr group or array. Expected a PLINK"):
        open_genotypes(folder)
    (folder / "study.bed").touch()
    with pytest.raises(BadInputError, match=r"no Zarr group or array. It holds study.bed: give one of them"):
        open_genotypes(folder)
    with pytest.raises(BadInputError, match=r"Genotypes can't be read from int. Expected"):
        open_genotypes(5)
    for kind in (complex, str):
        with pytest.raises(BadInputError, match=r"The array holds \S+, expected counts 0, 1 and 2"):
            open_genotypes(np.zeros((4, 3), kind))
    for rows in (0, 1.5, "many"):
        with pytest.raises(BadInputError, match=r"rows is a whole number of variants in a block and at least 1"):
            open_genotypes(np.zeros((4, 3), int), rows=rows)
    with pytest.raises(BadInputError, match=r"has 3 dimensions"):
        open_genotypes(np.zeros((2, 3, 4)))


def test_labels_come_from_a_mapping_or_from_a_table_in_any_order(tmp_path: Path) -> None:
    names = [f"s{i}" for i in range(13)]
    table = tmp_path / "panel.tsv"
    lines = [f"s{i}\tpop{i % 3}\tregion {i % 2}" for i in reversed(range(1, 20))]
    table.write_text("\n".join(["#sample\tpop\tsuper_pop", *lines]) + "\n")
    genotypes = open_genotypes(_COUNTS, samples=names, labels=table)
    assert genotypes.sample_table["pop"].tolist() == ["", *(f"pop{i % 3}" for i in range(1, 13))]
    assert genotypes.sample_table["super_pop"][4] == "region 0"
    again = open_genotypes(genotypes, labels={"batch": list(range(13))})
    assert set(again.sample_table) == {"pop", "super_pop", "batch"}
    with pytest.raises(BadInputError, match=r"knows none of the samples, the first of which is 'sample 0'"):
        open_genotypes(_COUNTS, labels=table)
    with pytest.raises(BadInputError, match=r"'batch' has 2 values for 13 samples"):
        open_genotypes(_COUNTS, labels={"batch": [1, 2]})
    table.write_text("sample pop\ns1\n")
    with pytest.raises(BadInputError, match=r"panel.tsv, line 2 has 1 columns, expected 2"):
        open_genotypes(_COUNTS, samples=names, labels=table)


def test_known_variants_stay_beside_their_rows() -> None:
    variants = Variants(position=np.arange(60))
    genotypes = open_genotypes(_COUNTS, variants=variants)[10:20]
    assert genotypes.variants.position is not None
    assert genotypes.variants.position.tolist() == list(range(10, 20))


def test_simulated_genotypes_do_not_depend_on_the_blocks() -> None:
    given: dict[str, Any] = {"missing": 0.03, "monomorphic": 0.1, "all_missing": 0.05, "seed": 4}
    one = simulate(1000, 203, **given).counts().compute()
    for rows in (1000, 256, 333, 1):
        part = simulate(1000, 203, rows=rows, **given)
        np.testing.assert_array_equal(part[400:600].counts().compute(), one[400:600])
    assert (simulate(1000, 203, **{**given, "seed": 5}).counts().compute() != one).mean() > 0.3
    known = np.where(one == 255, 0, one)
    nobody = (one == 255).all(axis=1)
    same = (np.where(one == 255, 3, one).min(axis=1) == known.max(axis=1)) & ~nobody
    assert 0.03 < nobody.mean() < 0.08
    assert 0.07 < same.mean() < 0.14
    assert 0.02 < (one[~nobody] == 255).mean() < 0.04


def test_simulated_populations_drift_apart_as_told() -> None:
    genotypes = simulate(20_000, 400, n_populations=4, fst=[0.01, 0.05, 0.1, 0.3])
    population = genotypes.sample_table["population"]
    assert np.unique(population, return_counts=True)[1].tolist() == [100] * 4
    counts = genotypes.counts().compute()
    for name, fst in zip(np.unique(population), (0.01, 0.05, 0.1, 0.3), strict=True):
        # E[2p(1-p)] = (1 - F) E[2a(1-a)], a uniform in 0.05 to 0.95.
        heterozygous = (counts[:, population == name] == 1).mean()
        assert heterozygous == pytest.approx((1 - fst) * 2 * (0.25 - 0.9**2 / 12), rel=0.02)


def test_only_the_rows_that_are_asked_for_are_simulated() -> None:
    genotypes = simulate(10**9, 1000)
    assert isinstance(genotypes, Genotypes)
    assert genotypes[5 * 10**8 : 5 * 10**8 + 3].counts().compute().shape == (3, 1000)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"fst": 0}, "fst lies between 0 and 1"),
        ({"fst": [0.1, 0.2]}, "fst has 2 values for 3 populations"),
        ({"missing": 2}, "missing=2 is a share"),
        ({"missing": "much"}, "missing='much' is a share"),
        ({"n_populations": 0}, "n_populations is a whole number and at least 1, not 0"),
    ],
)
def test_populations_that_can_not_be_are_refused(given: Any, sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        simulate(10, 10, **given)


def test_blocks_of_very_many_samples_still_have_some_hundred_rows() -> None:
    row = 488_000 // 4
    rows = block_rows(6_100_000, 488_000)
    assert 512 <= rows <= 2**27 // row
    assert at_most(2**24, row) == 1024 * row
    assert block_rows(60_000, 3_000) * 750 <= 2**23
    assert at_most(2**24, 750) == 2**24
