"""genotype_pca and pack_genotypes, on files that Debian's plink writes and on simulated populations."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from tests.test_runs import start_cluster
from workbench.cli import main
from workbench.figures.answers import pictures
from workbench.figures.report import report_html
from workbench.genotypes import eigenvec, open_genotypes
from workbench.runs import answer_storage, store
from workbench.runs.run import Run
from workbench.runs.singular_values import values
from workbench.session import Session
from workbench.storage.variables import dataset
from workbench.workloads import template
from workbench.workloads.values import BadParameterError

PCA, PACK = template("genotype_pca"), template("pack_genotypes")


def _plink(program: str, folder: Path, *arguments: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"needs Debian's {program}: sh tests/apt-install.sh {program}")
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def _dummy(folder: Path) -> Path:
    _plink("plink1.9", folder, "--dummy", "80", "700", "0.1", "--seed", "5", "--out", "dummy")
    return folder / "dummy.bed"


def _by_hand(folder: Path) -> Path:
    """Make a .bed file with plink from a VCF with missing, monomorphic and all-missing sites."""
    rng = np.random.default_rng(0)
    names = "\t".join(f"s{i}" for i in range(60))
    lines = [
        "##fileformat=VCFv4.3",
        "##contig=<ID=1>",
        f"#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\t{names}",
    ]
    lines.insert(2, '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">')
    for site in range(400):
        words = rng.choice(["0/0", "0/1", "1/1"], 60, p=rng.dirichlet([2, 2, 2]))
        words[rng.random(60) < 0.05] = "./."
        words[:] = "0/0" if site % 20 == 3 else "./." if site % 20 == 7 else words
        lines.append("\t".join(("1", str(site + 1), f"v{site}", "A", "G", ".", ".", ".", "GT", *words)))
    (folder / "hand.vcf").write_text("\n".join(lines) + "\n")
    _plink("plink2", folder, "--vcf", "hand.vcf", "--make-bed", "--out", "hand")
    return folder / "hand.bed"


def _eigenvalues(counts: np.ndarray[Any, Any], k: int) -> np.ndarray[Any, Any]:
    """Of the cleaned matrix by Patterson's convention, by NumPy in float64."""
    c = np.where(counts > 2, np.nan, counts.astype(float))
    c = c[~np.isnan(c).all(axis=1)]
    mean = np.nanmean(c, axis=1, keepdims=True)
    c, mean = c[np.nanstd(c, axis=1) > 0], mean[np.nanstd(c, axis=1) > 0]
    p = mean / 2
    m = np.where(np.isnan(c), 0, c - mean) / np.sqrt(p * (1 - p))
    return np.linalg.eigvalsh(m.T @ m)[::-1][:k] / counts.shape[1]


@pytest.mark.parametrize("make", [_dummy, _by_hand])
def test_plinks_files_have_numpys_eigenvalues_from_the_command_line(
    make: Any, tmp_path: Path, data_folder: Path, capsys: Any
) -> None:
    path = make(tmp_path)
    start_cluster("calm-otter")
    given = ["-p", f"path={path}", "-p", "n_components=5", "-p", "tol=1e-7"]
    assert main(["run", "genotype_pca", "--cluster", "calm-otter", "--json", *given]) == 0
    run = json.loads(capsys.readouterr().out)
    expected = _eigenvalues(open_genotypes(path).counts().compute(), 5)
    np.testing.assert_allclose(run["result"]["explained_variance"], expected, rtol=1e-6)
    assert run["check"]["passed"], run["check"]["what"]
    assert not {"n_variants", "n_populations", "fst"} & set(run["resolved"])
    assert run["result"]["certificate"]["sentence"] not in run["check"]["what"]
    if make is _by_hand:
        assert sorted(run["result"]["dropped"].values()) == [20, 20]
    assert main(["show", run["id"]]) == 0
    told = capsys.readouterr().out
    assert "✓ Checked: " in told
    assert f"{100 * run['result']['certificate']['bound'][0]:.2g} %" in told
    assert "scores (" in told
    assert "scatter" not in told
    Session().stop("calm-otter")


def _truncated(folder: Path) -> Path:
    bed = _dummy(folder)
    bed.write_bytes(bed.read_bytes()[:-5])
    return bed


def _wrong_magic(folder: Path) -> Path:
    bed = _dummy(folder)
    bed.write_bytes(b"\x00" + bed.read_bytes()[1:])
    return bed


def _other_bim(folder: Path) -> Path:
    bed = _dummy(folder)
    bim = bed.with_suffix(".bim")
    bim.write_text("".join(bim.read_text().splitlines(keepends=True)[:-3]))
    return bed


def _empty_group(folder: Path) -> Path:
    zarr.open_group(folder / "nothing.zarr", mode="w")
    return folder / "nothing.zarr"


@pytest.mark.parametrize("make", [_truncated, _wrong_magic, _other_bim, _empty_group])
@pytest.mark.parametrize("workload", ["genotype_pca", "pack_genotypes"])
def test_a_file_that_is_broken_gets_one_sentence_and_exit_code_2(
    make: Any, workload: str, tmp_path: Path, data_folder: Path, capsys: Any
) -> None:
    path = make(tmp_path)
    to = ["-p", f"to={tmp_path / 'out.zarr'}"] if workload == "pack_genotypes" else []
    assert main(["run", workload, "--on", "cpu --workers 1", "-p", f"path={path}", *to]) == 2
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) == 1, said
    assert str(path.with_suffix("")) in said
    assert "xpected" in said


def test_a_table_of_labels_that_is_not_there_is_told_of_by_its_own_name(tmp_path: Path) -> None:
    np.save(tmp_path / "counts.npy", np.eye(4, dtype=np.int8))
    given = {"path": str(tmp_path / "counts.npy"), "labels": str(tmp_path / "none.tsv"), "n_components": 2}
    with pytest.raises(BadParameterError, match=r"^labels of genotype_pca: .*none.tsv isn't there") as caught:
        template("genotype_pca").validate(given)
    assert caught.value.parameter == "labels"


def test_simulated_populations_are_found_and_said_to_be_apart(quick_client: Any) -> None:
    given = {"n_variants": 3000, "n_samples": 90, "n_populations": 4, "n_components": 3}
    parameters = PCA.validate(given, memory=2**31, threads=2)
    summary, check = PCA.compute(parameters, quick_client)
    assert check.passed, check.what
    assert "Populations make up" in check.what
    assert set(summary["scatter"]["labels"]) == {f"population {i}" for i in (1, 2, 3, 4)}
    assert summary["scatter"]["label"] == "population"
    assert len(json.dumps(summary)) < 20_000
    there: dict[str, Any] = {}
    exec(PCA.cell(parameters), there)
    np.testing.assert_allclose(there["found"].singular_values, summary["singular_values"], rtol=1e-6)


def test_components_of_noise_that_are_not_certain_fail_the_check() -> None:
    given = {"n_variants": 2000, "n_samples": 150, "n_populations": 1, "n_components": 8, "tol": 1e-9}
    results = PCA.build(PCA.validate(given))
    found = results["components"]
    doubtful = dataclasses.replace(found.certificate, status="not reached")
    check = PCA.check(PCA.validate(given), {"components": dataclasses.replace(found, certificate=doubtful)})
    assert not check.passed
    assert check.what == doubtful.sentence
    skewed = dataclasses.replace(found, scores=found.scores + found.scores[:, :1])
    assert not PCA.check(PCA.validate(given), {"components": skewed}).passed
    other = np.linalg.qr(np.random.default_rng(0).normal(size=found._vectors.shape))[0]
    check = PCA.check(PCA.validate(given), {"components": dataclasses.replace(found, _vectors=other)})
    assert not check.passed
    assert "don't agree" in check.what
    assert "AᵀA v and s² v differ" in check.detail


def test_packed_genotypes_are_those_of_the_source(tmp_path: Path, quick_client: Any) -> None:
    counts = np.random.default_rng(0).integers(0, 4, (900, 37)).astype("uint8")
    np.save(tmp_path / "counts.npy", counts)
    given = {"path": str(tmp_path / "counts.npy"), "to": str(tmp_path / "out.zarr")}
    parameters = PACK.validate(given)
    assert PACK.needs(parameters).peak(2) > 0
    summary, check = PACK.compute(parameters, quick_client)
    assert check.passed, check.what
    assert summary["bytes_before"] == (tmp_path / "counts.npy").stat().st_size
    assert summary["ratio"] == summary["bytes_before"] / summary["bytes_after"]
    again, _ = PACK.compute(parameters, quick_client)
    assert again == summary
    counts[0, 0] = (counts[0, 0] + 1) % 3
    np.save(tmp_path / "counts.npy", counts)
    other = PACK.check(parameters, {"packed": open_genotypes(tmp_path / "out.zarr")}, quick_client)
    assert not other.passed


def test_more_components_or_populations_than_samples_are_refused() -> None:
    with pytest.raises(BadParameterError, match="n_components"):
        PCA.validate({"n_samples": 5, "n_populations": 2})
    with pytest.raises(BadParameterError, match="n_populations"):
        PCA.validate({"n_samples": 5, "n_components": 2})


def test_the_report_draws_how_values_fall_and_where_samples_lie() -> None:
    given = {"n_variants": 1500, "n_samples": 60, "n_populations": 4, "n_components": 3}
    summary, _ = PCA.compute(PCA.validate(given))
    run = Run(id="r", workload="genotype_pca", cluster="c", status="done", result=summary)
    drawn = pictures(dataset({}), summary)
    page = report_html(run, None, drawn)
    assert summary["certificate"]["sentence"] in page
    assert "Scree plot" in page
    assert page.count("<figcaption>") == len(drawn) > 1
    # A value has as many digits as its bound allows, next to that bound; the lists themselves are not repeated.
    first = values(summary)
    assert first is not None
    assert all(cell in page for row in first.rows for cell in row)
    assert "Explained variance" not in page
    assert "60 samples" in page


def _found(bed: Path, client: Any, scaler: str) -> Run:
    """Return a run with the components of a file, saved with it."""
    parameters = PCA.validate({"path": str(bed), "n_components": 4, "tol": 1e-7, "scaler": scaler}, threads=2)
    results = PCA.build(parameters)
    arrays = PCA.arrays(results)
    run = store.create(Run(id=f"pca-{scaler}", workload="genotype_pca", cluster="otter", status="running", created=1.0))
    left = answer_storage.leave(run.id, arrays, None, client)
    assert left.answers.kept == tuple(arrays)
    return store.update(run.id, answers=left.answers, status="done")


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    first, *rest = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return first, rest


def test_all_scores_and_loadings_are_kept_and_rebuild_the_scaled_counts(
    tmp_path: Path, data_folder: Path, quick_client: Any
) -> None:
    bed = _by_hand(tmp_path)
    run = _found(bed, quick_client, "patterson")
    found = dict(run.arrays)
    assert (found["scores"].shape, found["loadings"].shape) == ((60, 4), (360, 4))
    np.testing.assert_allclose(found["loadings"].T @ found["loadings"], np.eye(4), atol=1e-8)
    with run.dataset as told:
        assert list(told["sample"].values[:2]) == ["s0", "s1"]
        assert list(told["component"].values) == ["PC1", "PC2", "PC3", "PC4"]
        assert told["loadings"].coords["counted_allele"].dims == ("variant",)
        counts = open_genotypes(bed).counts().compute()
        row = list(open_genotypes(bed).variants.id).index(str(told["variant"].values[7]))
        known = counts[row][counts[row] <= 2]
        assert (int(told["copies"][7]), int(told["known"][7])) == (known.sum(), len(known))
    assert main(["save", run.id, str(tmp_path / "scores.tsv")]) == 0
    head, rows = _read(tmp_path / "scores.tsv")
    assert {"sample", "family", "PC1", "PC4"} <= set(head)
    np.testing.assert_allclose([float(row[-1]) for row in rows], found["scores"][:, 3])


def test_samples_whose_names_repeat_across_families_have_both_in_plinks_file(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 256, 200).astype(np.uint8).tobytes()
    (tmp_path / "a.bed").write_bytes(b"\x6c\x1b\x01" + rows)
    (tmp_path / "a.bim").write_text("".join(f"1 v{i} 0 {i} A C\n" for i in range(100)))
    pairs = [["f1", "f1_a"], ["f1", "b"], ["f2", "b"], *(["f3", f"c{i}"] for i in range(5))]
    (tmp_path / "a.fam").write_text("".join(f"{family} {name} 0 0 0 -9\n" for family, name in pairs))
    (tmp_path / "gone.txt").write_text("f3 c4\n")
    genotypes = open_genotypes(tmp_path / "a.bed", remove=tmp_path / "gone.txt")
    assert list(genotypes.samples[:3]) == ["f1_f1_a", "f1_b", "f2_b"]
    results = PCA.build(PCA.validate({"path": str(tmp_path / "a"), "n_components": 2}))
    head, *lines = eigenvec.lines(PCA.arrays(results))["eigenvec"]
    assert head.split("\t") == ["#FID", "IID", "PC1", "PC2"]
    assert [line.split("\t")[:2] for line in lines] == pairs


@pytest.mark.parametrize("scaler", ["plink", "patterson"])
def test_plink_reads_the_components_and_projects_samples_with_them(
    scaler: str, tmp_path: Path, data_folder: Path, quick_client: Any, capsys: Any
) -> None:
    _plink("plink2", tmp_path, "--dummy", "70", "500", "--seed", "1", "--make-bed", "--out", "study")
    run = _found(tmp_path / "study.bed", quick_client, scaler)
    assert main(["save", run.id, str(tmp_path / "ours.eigenvec")]) == 0
    theirs = ("--pca", "4", "biallelic-var-wts", "--freq", "counts", "--out", "theirs")
    _plink("plink2", tmp_path, "--bfile", "study", *theirs)
    names = ("eigenvec", "eigenval", "eigenvec.var", "acount")
    files = {name: (_read(tmp_path / f"ours.{name}"), _read(tmp_path / f"theirs.{name}")) for name in names}
    # Sites without variation take part for PLINK, and have no weight.
    ids = {row[1] for row in files["eigenvec.var"][0][1]}
    for name, ((head, rows), (expected, their_rows)) in files.items():
        kept = their_rows if name in ("eigenvec", "eigenval") else [row for row in their_rows if row[1] in ids]
        files[name] = ((head, rows), (expected, kept))
        if name != "eigenval":
            assert (head, [row[:2] for row in rows]) == (expected, [row[:2] for row in kept])
    assert files["acount"][0] == files["acount"][1]
    for name in ("eigenvec", "eigenvec.var"):
        ours, other = (np.array([row[-4:] for row in rows], float) for _, rows in files[name])
        scale = (ours * other).sum(axis=0) / (other**2).sum(axis=0)
        np.testing.assert_allclose(abs(scale), 1, rtol=0.01)
        np.testing.assert_allclose(ours, other * scale, atol=1e-3 * abs(other).max())
    scored = ("--score", "ours.eigenvec.var", "2", "3", "header-read", "no-mean-imputation", "variance-standardize")
    read = ("--read-freq", "ours.acount", *scored, "--score-col-nums", "5-8", "--out", "projected")
    _plink("plink2", tmp_path, "--bfile", "study", *read)
    _, rows = _read(tmp_path / "projected.sscore")
    averages = np.array([row[-4:] for row in rows], float)
    eigenvalues = np.array((tmp_path / "ours.eigenval").read_text().split(), float)
    vectors = np.array([row[-4:] for row in files["eigenvec"][0][1]], float)
    np.testing.assert_allclose(averages, vectors * np.sqrt(eigenvalues) / 2, atol=1e-5)
    covariates = ("--glm", "allow-no-covars", "--covar", "ours.eigenvec", "--out", "associated")
    _plink("plink2", tmp_path, "--bfile", "study", *covariates)
    assert main(["save", run.id, str(tmp_path / "ours.eigenvec")]) == 2
    assert "is there already" in capsys.readouterr().err
