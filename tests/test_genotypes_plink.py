"""PLINK's files: one written byte by byte from the specification, and those that Debian's plink writes."""

from __future__ import annotations

import functools
import http.server
import shutil
import subprocess
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from workbench.errors import BadInputError
from workbench.genotypes import open_genotypes, pack_to_zarr, plink, read_plink

_NEEDS = "needs Debian's {0}: sh tests/apt-install.sh {0}"


def _plink(program: str, folder: Path, *arguments: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(_NEEDS.format(program))
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def _tiny(folder: Path) -> Path:
    """Write the specification's layout by hand: 3 variants × 5 samples, the unused bits of the last byte zero."""
    rows = [
        # samples 1 to 4 from the low bits up: hom A1, missing, het, hom A2; sample 5: het
        (0b11_10_01_00, 0b00_00_00_10),
        (0b00_00_00_00, 0b00_00_00_00),
        (0b01_01_01_01, 0b00_00_00_01),
    ]
    bed = folder / "tiny.bed"
    bed.write_bytes(b"\x6c\x1b\x01" + b"".join(bytes(row) for row in rows))
    (folder / "tiny.bim").write_text("1 rs1 0 100 G A\n1\trs2\t0.5\t200\tT\tC\nX rs3 0 300 0 G\n")
    (folder / "tiny.fam").write_text("f1 a 0 0 1 2\nf1 b 0 0 2 -9\nf2 c a b 0 1.5\nf2 d 0 0 1 NA\nf3 e 0 0 2 1\n")
    return bed


@pytest.fixture(params=[None, 8], ids=["at once", "in pieces"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables read at once, and in pieces of some bytes."""
    if request.param:
        monkeypatch.setattr(plink, "_PIECE", request.param)


_TINY = [[2, 255, 1, 0, 1], [2, 2, 2, 2, 2], [255] * 5]


@pytest.mark.usefixtures("pieces")
def test_a_file_written_by_hand_from_the_specification_is_read(tmp_path: Path) -> None:
    genotypes = open_genotypes(_tiny(tmp_path))
    assert genotypes.counts().compute().tolist() == _TINY
    assert genotypes.counts(missing=3).compute()[2].tolist() == [3] * 5
    assert genotypes.samples.tolist() == ["a", "b", "c", "d", "e"]
    assert genotypes.variants.id is not None
    assert genotypes.variants.contig is not None
    assert genotypes.variants.position is not None
    assert genotypes.variants.alleles is not None
    assert genotypes.variants.id.tolist() == ["rs1", "rs2", "rs3"]
    assert genotypes.variants.contig.tolist() == ["1", "1", "X"]
    assert genotypes.variants.position.tolist() == [100, 200, 300]
    assert genotypes.variants.alleles.tolist() == [["A", "G"], ["C", "T"], ["G", "0"]]
    assert genotypes.sample_table["sex"].tolist() == ["male", "female", "unknown", "male", "female"]
    np.testing.assert_array_equal(genotypes.sample_table["phenotype"], [2, np.nan, 1.5, np.nan, 1])
    assert genotypes.sample_table["family"].tolist() == ["f1", "f1", "f2", "f2", "f3"]


@pytest.mark.parametrize("name", ["tiny", "tiny.bed", "tiny.bim", "tiny.fam"])
def test_any_of_the_three_files_or_their_common_name_opens_them(tmp_path: Path, name: str) -> None:
    _tiny(tmp_path)
    assert open_genotypes(tmp_path / name).shape == (3, 5)


def test_a_url_is_read_block_by_block(tmp_path: Path) -> None:
    _tiny(tmp_path)
    memory = fsspec.filesystem("memory")
    for path in tmp_path.iterdir():
        memory.pipe_file(f"/plink-test/{path.name}", path.read_bytes())
    genotypes = open_genotypes("memory://plink-test/tiny.bed", rows=2)
    assert genotypes.packed.chunks == ((2, 1), (2,))
    assert genotypes.counts().compute().tolist() == _TINY


def test_a_web_server_that_knows_no_ranges_and_shows_folders_as_pages_is_read_from_as_well(tmp_path: Path) -> None:
    pack_to_zarr(_tiny(tmp_path), tmp_path / "packed.zarr")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/tiny"
        for path in (f"{url}.bed", url.replace("tiny", "packed.zarr")):
            assert open_genotypes(path, rows=1).counts().compute().tolist() == _TINY
        with pytest.raises(BadInputError, match=r"/nothing isn't there. Expected"):
            open_genotypes(url.replace("tiny", "nothing"))
        server.shutdown()


@pytest.mark.parametrize(("program", "options"), [("plink1.9", ("0.1",)), ("plink2", ("0.1", "--make-bed"))])
def test_plinks_dummy_data_are_read_as_plink_reads_them(tmp_path: Path, program: str, options: tuple[str, ...]) -> None:
    _plink(program, tmp_path, "--dummy", "37", "411", *options, "--seed", "5", "--out", "dummy")
    _plink("plink1.9", tmp_path, "--bfile", "dummy", "--keep-allele-order", "--recode", "A-transpose", "--out", "text")
    lines = (tmp_path / "text.traw").read_text().splitlines()[1:]
    # The column COUNTED names the allele: that of the .bim's A1.
    expected = np.array([[255 if word == "NA" else int(word) for word in line.split("\t")[6:]] for line in lines])
    genotypes = read_plink(tmp_path / "dummy", rows=100)
    assert (expected == 255).mean() > 0.05
    np.testing.assert_array_equal(genotypes.counts().compute(), expected)
    assert genotypes.variants.alleles is not None
    assert genotypes.variants.alleles[:, 1].tolist() == [line.split("\t")[4] for line in lines]
    np.testing.assert_array_equal(genotypes[100:300:7].counts().compute(), expected[100:300:7])


_VCF = """##fileformat=VCFv4.3
##contig=<ID=1>
##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">
#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tann\tbob\tcyd
1\t10\tplain\tA\tG\t.\t.\t.\tGT\t0/0\t0/1\t1/1
1\t20\tmissing\tA\tG\t.\t.\t.\tGT\t./.\t0|1\t1|0
1\t30\tmonomorphic\tC\tT\t.\t.\t.\tGT\t0/0\t0/0\t0/0
1\t40\tnobody\tC\tT\t.\t.\t.\tGT\t./.\t./.\t./.
"""


def test_a_vcf_made_by_hand_comes_through_plink_with_missing_and_monomorphic_sites(tmp_path: Path) -> None:
    (tmp_path / "hand.vcf").write_text(_VCF)
    _plink("plink2", tmp_path, "--vcf", "hand.vcf", "--make-bed", "--out", "hand")
    genotypes = open_genotypes(tmp_path / "hand.bed")
    assert genotypes.counts().compute().tolist() == [[0, 1, 2], [255, 1, 1], [0, 0, 0], [255, 255, 255]]
    assert genotypes.samples.tolist() == ["ann", "bob", "cyd"]
    assert genotypes.variants.alleles is not None
    assert genotypes.variants.alleles[0].tolist() == ["A", "G"]


def _rewrite(path: Path, change: Any) -> None:
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize(
    ("file", "change", "sentence"),
    [
        ("bed", lambda b: b[:-1], "has 8 bytes, expected 9 .*it was cut short, or one of the three belongs to another"),
        ("bed", lambda b: b + b"\0\0", "has 11 bytes, expected 9 .* It would fit 4 variants"),
        ("bed", lambda b: b"\x6c\x1b\x00" + b[3:], "sample by sample .*expected variant by variant .*--make-bed"),
        ("bed", lambda b: b"\x6c\x1b\x10" + b[3:], "starts with 6c 1b 10, expected 6c 1b 01. If PLINK 2 wrote it"),
        ("bed", lambda b: b"chr1\t100", "is no PLINK .bed file: it starts with 63 68 72, expected 6c 1b 01"),
        ("bed", lambda b: b"", "it starts with nothing, expected 6c 1b 01"),
        ("bim", lambda b: b[: b.index(b"\n") + 1], "has 9 bytes, expected 5 .1 variants in the .bim .* fit 3 variants"),
        ("bim", lambda b: b.replace(b" 100 ", b" x "), "has a position that is no whole number"),
        ("bim", lambda b: b.replace(b" 100 ", b" "), "columns, expected 6: contig, id"),
        (
            "bim",
            lambda b: b.replace(b"\t200\t", b"\t").replace(b" 300 ", b" 300 0 "),
            "line 2 has 5 columns, expected 6",
        ),
        (
            "fam",
            lambda b: b"#FID IID PAT MAT SEX PHENO\n" + b,
            "tiny.fam starts with a header, '#FID IID .*expected none",
        ),
        ("bim", lambda b: b"#CHROM ID CM POS A1 A2\n" + b, "tiny.bim starts with a header, '#CHROM .*expected none"),
        ("fam", lambda b: b + b"f4 f 0 0 1 1 1\n", "tiny.fam, line 6 has 7 columns, expected 6: family, sample"),
        ("fam", lambda b: b"\n\n" + b + b"\nf4 f 0 0 1 1 1\n", "tiny.fam, line 9 has 7 columns"),
        (
            "fam",
            lambda b: b + b"f4 f 0 0 1 1\n" * 4,
            "9 samples in the .fam .* It would fit 2 variants, or 5 to 8 samples",
        ),
    ],
)
def test_a_damaged_file_gives_one_sentence_with_its_path_and_what_was_expected(
    tmp_path: Path, file: str, change: Any, sentence: str
) -> None:
    bed = _tiny(tmp_path)
    _rewrite(bed.with_suffix(f".{file}"), change)
    with pytest.raises(BadInputError, match=sentence) as caught:
        open_genotypes(bed)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("short", [1, 2, 3])
def test_a_fam_too_short_for_its_rows_is_seen_even_where_the_bytes_agree(tmp_path: Path, short: int) -> None:
    _plink("plink1.9", tmp_path, "--dummy", "40", "300", "--seed", "5", "--out", "dummy")
    fam = tmp_path / "dummy.fam"
    fam.write_text("".join(fam.read_text().splitlines(keepends=True)[: 40 - short]))
    expected = "40" if short == 1 else f"{41 - short} to 40"
    sentence = rf"dummy.bed has genotypes of more samples than .*dummy.fam, which has {40 - short}: .*{expected} lines"
    with pytest.raises(BadInputError, match=sentence):
        read_plink(tmp_path / "dummy.bed")


def test_a_row_that_goes_on_after_the_samples_is_seen_when_it_is_read(tmp_path: Path) -> None:
    bed, rows = _tiny(tmp_path), 40_000
    bed.write_bytes(b"\x6c\x1b\x01" + b"\0\0" * (rows - 1) + b"\0\x80")
    bed.with_suffix(".bim").write_text("1 rs 0 1 G A\n" * rows)
    genotypes = read_plink(bed)
    with pytest.raises(BadInputError, match=r"which has 5: row 39999 goes on after them.* Expected 6 to 8 lines"):
        genotypes.packed.compute()


@pytest.mark.parametrize("suffix", [".bed", ".bim", ".fam"])
def test_each_file_that_is_missing_is_named(tmp_path: Path, suffix: str) -> None:
    bed = _tiny(tmp_path)
    bed.with_suffix(suffix).unlink()
    with pytest.raises(BadInputError, match=rf"tiny\{suffix} isn't there. Expected a PLINK .bed file with a .bim"):
        open_genotypes(bed)


def test_a_file_cut_short_while_it_is_in_use_says_so(tmp_path: Path) -> None:
    bed = _tiny(tmp_path)
    genotypes = open_genotypes(bed)
    _rewrite(bed, lambda b: b[:-2])
    with pytest.raises(BadInputError, match=r"tiny.bed ends before row 2: it was cut short"):
        genotypes.counts().compute()


def test_samples_of_equal_names_are_told_apart_by_their_families(tmp_path: Path) -> None:
    bed = _tiny(tmp_path)
    bed.with_suffix(".fam").write_text("".join(f"f{i} same 0 0 0\n" for i in range(5)))
    assert open_genotypes(bed).samples.tolist() == [f"f{i}_same" for i in range(5)]


def test_a_bed_file_says_itself_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"says itself what is in it: leave out missing"):
        open_genotypes(_tiny(tmp_path), missing=3)


def test_a_long_allele_takes_the_room_of_one_long_allele(tmp_path: Path) -> None:
    bed, rows, long = _tiny(tmp_path), 20_000, "A" * 5000
    bed.write_bytes(b"\x6c\x1b\x01" + b"\0\0" * rows)
    bed.with_suffix(".bim").write_text("1 rs1 0 1 G A\n" * (rows - 1) + f"1 {long} 0 1 {long} C\n")
    bed.with_suffix(".fam").write_text("f a 0 0 1 2\n" * 4 + f"f {long} 0 0 1 2\n")
    tracemalloc.start()
    genotypes = read_plink(bed)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # With the room of the longest for each, the alleles alone would take 800 MB.
    assert most < 60e6
    variants = genotypes.variants
    assert variants.alleles is not None
    assert variants.alleles[-1].tolist() == ["C", long]
    assert variants.alleles[0].tolist() == ["A", "G"]
    assert genotypes.samples[-1] == f"f_{long}"
    tracemalloc.start()
    stored = pack_to_zarr(genotypes, tmp_path / "s.zarr")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 120e6
    assert stored.variants.alleles is not None
    assert stored.variants.alleles[-1].tolist() == ["C", long]


def test_variants_at_negative_positions_are_left_out_as_plink_does(tmp_path: Path) -> None:
    bed = _tiny(tmp_path)
    whole = read_plink(bed)
    _rewrite(bed.with_suffix(".bim"), lambda text: text.replace(b"200", b"-200"))

    found = read_plink(bed)

    assert list(map(str, found.variants.id)) == ["rs1", "rs3"]
    np.testing.assert_array_equal(found.counts(3).compute(), whole.counts(3).compute()[[0, 2]])
    assert found.remarks == ("1 variant at negative positions left out, as PLINK does.",)


def test_names_in_capitals_are_read_and_text_in_latin_1_is_named(tmp_path: Path) -> None:
    for path in (bed := _tiny(tmp_path)).parent.glob("tiny.*"):
        path.rename(path.with_suffix(path.suffix.upper()))
    assert open_genotypes(bed.with_suffix(".BED")).shape == (3, 5)

    _rewrite(bed.with_suffix(".FAM"), lambda text: text.replace(b"f2 d", b"f2 \xe9"))
    with pytest.raises(BadInputError, match=r"tiny\.FAM, line 4, isn't written in UTF-8\. If it is Latin-1: iconv"):
        open_genotypes(bed.with_suffix(".BED"))
