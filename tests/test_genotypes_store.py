"""Packing to Zarr: what is written comes back, on a cluster and without one, and after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster

from workbench.errors import BadInputError, ConflictError, FailedError
from workbench.genotypes import MISSING, Genotypes, Variants, open_genotypes, pack_to_zarr, simulate

_SITES = 1000


def _genotypes(seed: int = 0) -> Genotypes:
    return simulate(_SITES, 203, missing=0.05, all_missing=0.1, seed=seed, rows=128)


def _labelled() -> Genotypes:
    bare = _genotypes()
    variants = Variants(
        contig=np.repeat(["1", "chrX"], _SITES // 2),
        position=np.arange(_SITES),
        id=np.array([f"rs{i}" for i in range(_SITES)]),
        alleles=np.array([["A", "GT,ä"]] * _SITES),
    )
    table = {**bare.sample_table, "phenotype": np.linspace(0, 1, 203), "sex": np.array(["male"] * 203)}
    return Genotypes(bare.packed, bare.samples, variants, table, source="somewhere")


def _same(one: Genotypes, other: Genotypes) -> None:
    np.testing.assert_array_equal(one.counts().compute(), other.counts().compute())
    np.testing.assert_array_equal(one.samples, other.samples)
    assert set(one.sample_table) == set(other.sample_table)
    for name, column in one.sample_table.items():
        np.testing.assert_array_equal(column, other.sample_table[name])
    for name in ("contig", "position", "id", "alleles"):
        left, right = getattr(one.variants, name), getattr(other.variants, name)
        assert (left is None) == (right is None)
        if left is not None:
            np.testing.assert_array_equal(left, right)


def test_what_is_packed_comes_back_with_its_labels(tmp_path: Path) -> None:
    genotypes = _labelled()
    seen: list[tuple[int, int]] = []
    stored = pack_to_zarr(genotypes, tmp_path / "s.zarr", progress=lambda *n: seen.append(n))
    _same(stored, genotypes)
    _same(open_genotypes(tmp_path / "s.zarr"), genotypes)
    _same(open_genotypes(tmp_path / "s.zarr")[100:300], genotypes[100:300])
    assert seen[0] == (0, _SITES)
    assert seen[-1] == (_SITES, _SITES)
    assert seen == sorted(seen)
    array = zarr.open_group(tmp_path / "s.zarr")["packed"]
    assert isinstance(array, zarr.Array)
    assert array.metadata.zarr_format == 3
    assert array.chunks[0] == 128
    files = sorted(path.name for path in (tmp_path / "s.zarr" / array.path).iterdir())
    assert files == sorted(["zarr.json", *(f"c.{i}.0" for i in range(8))])


def test_a_bed_file_is_copied_with_what_is_not_known(tmp_path: Path) -> None:
    bed, rows = tmp_path / "a.bed", bytes(i & (0x3F if i % 2 else 0xFF) for i in range(200))
    bed.write_bytes(b"\x6c\x1b\x01" + rows)
    (tmp_path / "a.bim").write_text("".join(f"1 s{i} 0 {i} A C\n" for i in range(100)))
    (tmp_path / "a.fam").write_text("".join(f"f p{i} 0 0 0 -9\n" for i in range(7)))
    stored = pack_to_zarr(bed, tmp_path / "a.zarr", rows=33)
    _same(stored, open_genotypes(bed))
    codes = np.frombuffer(rows, np.uint8).reshape(100, 2, 1) >> np.array([0, 2, 4, 6], np.uint8) & 3
    counts = np.array([2, MISSING, 1, 0], np.uint8)[codes].reshape(100, 8)[:, :7]
    np.testing.assert_array_equal(stored.counts().compute(), counts)


def test_packing_uses_the_workers_of_the_current_client(tmp_path: Path) -> None:
    genotypes = _genotypes()
    seen: list[int] = []
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster),
    ):
        _same(pack_to_zarr(genotypes, tmp_path / "s.zarr", progress=lambda n, _: seen.append(n)), genotypes)
        counts = np.zeros((90, 9), "i1")
        counts[70, 3] = 9
        with pytest.raises(BadInputError, match=r"value 9 at variant 70, sample 3 "):
            pack_to_zarr(counts, tmp_path / "wrong.zarr", rows=10)
    assert len(seen) == 9


_PACK = """
import sys, time
from workbench.genotypes import pack_to_zarr, simulate
from workbench.genotypes import simulated

def slow(done, total):
    print(done, flush=True)
    time.sleep(0.3)

g = simulate(1000, 203, missing=0.05, all_missing=0.1, seed=0, rows=16)
import dask
with dask.config.set(scheduler="synchronous"):
    pack_to_zarr(g, sys.argv[1], progress=slow)
"""


def _written(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("c.*.0")}


def test_a_kill_in_mid_pack_loses_nothing_that_was_finished(tmp_path: Path) -> None:
    path = tmp_path / "killed.zarr"
    process = subprocess.Popen([sys.executable, "-c", _PACK, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 100:
            break
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    finished = _written(path / "packed")
    assert 100 // 16 <= len(finished) < 63
    # A block whose writing was cut off lies under another name.
    (path / "packed" / "c.60.0123.partial").write_bytes(b"half")
    with pytest.raises(
        BadInputError, match=r"killed.zarr is not finished: call pack_to_zarr again with the same source"
    ):
        open_genotypes(path)
    with pytest.raises(ConflictError, match=r"killed.zarr holds 1000 variants × 203 samples .* but other genotypes"):
        pack_to_zarr(simulate(1000, 203, missing=0.05, seed=1, rows=16), path)

    time.sleep(0.01)
    genotypes = simulate(1000, 203, missing=0.05, all_missing=0.1, seed=0, rows=16)
    seen: list[int] = []
    stored = pack_to_zarr(genotypes, path, progress=lambda done, _: seen.append(done))
    assert seen[0] == 16 * len(finished)
    again = _written(path / "packed")
    assert len(again) == 63
    assert {name: again[name] for name in finished} == finished
    assert not list((path / "packed").glob("*.partial"))
    np.testing.assert_array_equal(stored.packed.compute(), genotypes.packed.compute())
    pack_to_zarr(genotypes, path)
    assert _written(path / "packed") == again


def test_another_source_or_way_of_packing_is_refused_unless_it_may_replace(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    pack_to_zarr(_genotypes(), path)
    with pytest.raises(ConflictError, match=r"samples of an array in blocks of 128 .*, but other genotypes of"):
        pack_to_zarr(_genotypes(seed=1), path)
    with pytest.raises(ConflictError, match=r"but .* in blocks of 50 variants are to be written. Choose another path"):
        pack_to_zarr(_genotypes(), path, rows=50)
    _same(pack_to_zarr(_genotypes(seed=1), path, rows=50, overwrite=True), _genotypes(seed=1))


def test_files_that_have_changed_since_are_refused_and_new_labels_are_written(tmp_path: Path) -> None:
    counts = np.random.default_rng(0).integers(0, 3, (90, 9)).astype(np.uint8)
    zarr.create_array(tmp_path / "chunked", data=counts, chunks=(10, 9))
    np.save(tmp_path / "whole.npy", counts)
    _plink_files(tmp_path, counts)
    for name in ("chunked", "whole.npy", "study.bed"):
        source, path = tmp_path / name, tmp_path / f"{name}.zarr"
        pack_to_zarr(source, path, rows=10)
        before = _written(path / "packed")
        groups = {"group": [f"g{i % 2}" for i in range(9)]}
        found = pack_to_zarr(source, path, rows=10, labels=groups)
        assert list(found.sample_table["group"]) == groups["group"]
        assert _written(path / "packed") == before
        file = source / "c" / "3" / "0" if source.is_dir() else source
        file.write_bytes(file.read_bytes())
        os.utime(file, ns=(0, 1))
        with pytest.raises(ConflictError, match=r"other genotypes of this size, or from files that have changed since"):
            pack_to_zarr(source, path, rows=10)
        pack_to_zarr(source, path, rows=10, overwrite=True)


def test_a_source_at_a_url_that_has_changed_since_is_refused(tmp_path: Path) -> None:
    url, counts = "memory://genotypes-changed/counts.zarr", np.ones((90, 9), np.uint8)
    with dask.config.set(scheduler="threads"):
        for _ in range(2):
            zarr.create_array(url, data=counts, chunks=(10, 9), overwrite=True)
            pack_to_zarr(url, tmp_path / "s.zarr", overwrite=True, storage_options={})
            pack_to_zarr(url, tmp_path / "s.zarr", storage_options={})
        counts[25] = 2
        zarr.open_array(url)[:] = counts
        with pytest.raises(ConflictError, match="from files that have changed since"):
            pack_to_zarr(url, tmp_path / "s.zarr", storage_options={})


def _plink_files(folder: Path, counts: Any) -> None:
    codes = np.array([3, 2, 0], np.uint8)[np.pad(counts, ((0, 0), (0, 3)), constant_values=2)].reshape(90, 3, 4)
    rows = (codes << np.array([0, 2, 4, 6], np.uint8)).sum(axis=2).astype(np.uint8)
    (folder / "study.bed").write_bytes(b"\x6c\x1b\x01" + rows.tobytes())
    (folder / "study.bim").write_text("".join(f"1 s{i} 0 {i} A C\n" for i in range(90)))
    (folder / "study.fam").write_text("".join(f"f p{i} 0 0 0 -9\n" for i in range(9)))


def test_what_pack_to_zarr_did_not_write_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    (tmp_path / "file").write_text("years")
    zarr.create_array(tmp_path / "array", data=np.zeros(3))
    for name in ("mine", "file", "array"):
        with pytest.raises(ConflictError, match=r"is there already, and pack_to_zarr did not write it"):
            pack_to_zarr(_genotypes(), tmp_path / name, overwrite=True)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years"
    (tmp_path / "empty").mkdir()
    _same(pack_to_zarr(_genotypes(), tmp_path / "empty"), _genotypes())


def test_a_store_is_not_replaced_by_what_is_read_from_it(tmp_path: Path) -> None:
    stored = pack_to_zarr(_genotypes(), tmp_path / "s.zarr")
    (tmp_path / "link.zarr").symlink_to(tmp_path / "s.zarr")
    linked = open_genotypes(tmp_path / "link.zarr")
    for source, path in ((stored, "s.zarr"), (stored, "link.zarr"), (linked, "s.zarr")):
        with pytest.raises(ConflictError, match=r"zarr is what is read from \(.*\). Choose another path"):
            pack_to_zarr(source, tmp_path / path, rows=50, overwrite=True)
    _same(pack_to_zarr(stored, tmp_path / "other.zarr", rows=50), _genotypes())


def test_counts_in_an_array_are_packed_and_a_wrong_value_stops_it(tmp_path: Path) -> None:
    counts = np.zeros((100, 9), "i1")
    counts[70, 3] = -9
    assert pack_to_zarr(counts, tmp_path / "a.zarr", rows=10).counts()[70, 3].compute() == 255
    counts[70, 3] = 9
    with (
        dask.config.set(scheduler="synchronous"),
        pytest.raises(BadInputError, match=r"value 9 at variant 70, sample 3 "),
    ):
        pack_to_zarr(counts, tmp_path / "b.zarr", rows=10, missing=-9)


def test_a_store_at_a_url_is_written_and_read(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/s.zarr"
    _same(pack_to_zarr(_genotypes(), url), _genotypes())
    _same(open_genotypes(url), _genotypes())
    url = "memory://genotypes-store/s.zarr"
    with dask.config.set(scheduler="threads"):
        _same(pack_to_zarr(_genotypes(), url), _genotypes())
        _same(open_genotypes(url), _genotypes())


def test_one_variant_and_a_single_sample_are_packed(tmp_path: Path) -> None:
    for counts in ([[1]], [[2], [0], [3]], [[0, 1, 2, 3, 2]]):
        stored = pack_to_zarr(np.array(counts), tmp_path / "s.zarr", orientation="variants×samples", overwrite=True)
        assert stored.counts(missing=3).compute().tolist() == counts


def test_a_folder_that_can_not_be_written_gives_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FailedError, match=r"s.zarr can't be written \(Not a directory\)\. Choose another path"):
        pack_to_zarr(_genotypes(), tmp_path / "file" / "s.zarr")


def test_a_store_without_an_array_or_of_a_later_version_gives_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    pack_to_zarr(_genotypes(), path)
    os.rename(path / "samples", path / "gone")  # noqa: PTH104
    with pytest.raises(BadInputError, match=r"s.zarr has no array samples/name, expected as pack_to_zarr writes it"):
        open_genotypes(path)
    group = zarr.open_group(path)
    said: Any = group.attrs["dask_workbench"]
    group.attrs["dask_workbench"] = {**said, "version": 2}
    with pytest.raises(BadInputError, match=r"store of version 2, expected 3: update dask-workbench"):
        open_genotypes(path)


def test_a_store_that_lost_a_block_is_not_read_as_zeros(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    pack_to_zarr(_genotypes(), path)
    (path / "packed" / "c.3.0").unlink()
    with pytest.raises(BadInputError, match=r"7 of 8 chunks exist, expected all of them: c.3.0 is missing. Copy"):
        open_genotypes(path)
    for block in (path / "packed").glob("c.*"):
        block.unlink()
    with pytest.raises(BadInputError, match=r"0 of 8 chunks exist"):
        open_genotypes(path)


def test_a_block_that_was_cut_short_gives_a_sentence_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    pack_to_zarr(_genotypes(), path)
    block = path / "packed" / "c.3.0"
    block.write_bytes(block.read_bytes()[:-7])
    sentence = r"Chunk c.3.0 of .*s.zarr/packed can't be decompressed \(\d+ bytes: .*\). Copy"
    with pytest.raises(BadInputError, match=sentence):
        open_genotypes(path).packed.compute()


@pytest.mark.parametrize("row", [1, 77, 500])
def test_a_store_of_an_array_that_has_changed_anywhere_is_not_taken_for_its_own(tmp_path: Path, row: int) -> None:
    counts = np.random.default_rng(0).integers(0, 3, (900, 13)).astype("i1")
    pack_to_zarr(counts, tmp_path / "s.zarr", rows=128)
    counts[row, 5] = (counts[row, 5] + 1) % 3
    with pytest.raises(ConflictError, match="other genotypes of this size"):
        pack_to_zarr(counts, tmp_path / "s.zarr", rows=128)
    given = open_genotypes(counts, rows=300)
    with pytest.raises(ConflictError, match="other genotypes of this size"):
        pack_to_zarr(given, tmp_path / "s.zarr", rows=128)


def test_where_to_pack_has_to_be_told() -> None:
    for to in (None, "", 5):
        with pytest.raises(BadInputError, match=r"A path or URL is needed, not"):
            pack_to_zarr(_genotypes(), to)  # type: ignore[arg-type]
