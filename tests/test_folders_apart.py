"""Two workers of one address, of which one has another disk where the other has the folder, as in a container."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray
import zarr
from distributed import Client, LocalCluster

from workbench import remote
from workbench.cli import main
from workbench.errors import BadInputError, FailedError
from workbench.genotypes import pack_to_zarr, simulate
from workbench.genotypes.store import _WriteBlock
from workbench.runs import store
from workbench.runs.answer_storage import _Workers
from workbench.runs.runner import _connected
from workbench.storage.places import full
from workbench.storage.targets import target
from workbench.storage.variables import dataset
from workbench.storage.writing import write

_APART = ("unshare", "-rm")
_MOUNTED = 'mount -t tmpfs tmpfs "$1" && shift && exec "$@"'
X = np.random.default_rng(0).random((20_000, 10))
NAMES = ["x.zarr", "x.npy", "x.npz", "x.nc"]


class _Late(_Workers):
    """Asks for the first time before the worker is there that doesn't have the folder."""

    asked = False

    def _lacking(self, path: str) -> tuple[str, str] | None:
        self.asked, before = True, self.asked
        return super()._lacking(path) if before else None


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Path]]:
    """Provide a client with two workers, and a folder that is an empty disk for one of them."""
    if (
        shutil.which("unshare") is None
        or subprocess.run([*_APART, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("No file system can be mounted here: that takes root, or user namespaces.")
    folder = tmp_path_factory.mktemp("apart")
    (folder / "there").mkdir()
    with LocalCluster(n_workers=0, dashboard_address=":0") as cluster, Client(cluster) as client:
        worker = [sys.executable, "-m", "dask", "worker", cluster.scheduler_address, "--nthreads=1", "--no-nanny"]
        worker += ["--no-dashboard", "--local-directory", str(folder)]
        workers = []
        try:
            for before in ((), (*_APART, "sh", "-c", _MOUNTED, "sh", str(folder / "there"))):
                with (folder / f"log{len(workers)}").open("wb") as log:
                    workers.append(subprocess.Popen([*before, *worker], stdout=log, stderr=log))
            client.wait_for_workers(2, timeout=60)
            yield client, folder / "there"
        finally:
            for each in workers:
                each.kill()
                each.wait(10)


def read(path: Path) -> Any:
    if path.suffix == ".nc":
        with xarray.open_dataset(path, engine="h5netcdf") as found:
            return found["x"].values
    if path.suffix == ".zarr":
        return zarr.open_group(path, mode="r")["x"][...]
    found = np.load(path)
    return found if path.suffix == ".npy" else found["x"]


@pytest.mark.parametrize(("writer", "chunks"), [(_Workers, (10_000, 5)), (_Late, (5000, 10))])
@pytest.mark.parametrize("name", NAMES)
def test_no_block_is_lost_where_a_worker_does_not_have_the_folder(
    apart: tuple[Client, Path], name: str, writer: type[_Workers], chunks: tuple[int, int]
) -> None:
    client, folder = apart
    by, x = writer(client), da.from_array(X, chunks=chunks)
    write(dataset({"x": (("a", "b"), x)}), target(folder / name, replace=True), mark="mine-1", writer=by)
    np.testing.assert_array_equal(read(folder / name), X)
    assert f"can't write to {folder} (it doesn't have that folder)" in by.notes[0]
    assert [each.name for each in folder.iterdir() if each.name.startswith(".")] == []


def test_of_a_run_each_row_is_numpys_and_what_came_another_way_is_told(
    apart: tuple[Client, Path], data_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    client, folder = apart
    np.save(tmp_path / "d.npy", X)
    assert main(["up", client.scheduler.address, "--name", "mix"]) == 0
    capfd.readouterr()
    given = ["-p", f"path={tmp_path}/d.npy", "-p", "k=5", "-p", f"save={folder}/out.zarr"]
    with dask.config.set({"workbench.answers.each": "1kiB"}):
        assert main(["run", "svd_of_file", "--cluster", "mix", *given, "--json"]) == 0
    run = json.loads(capfd.readouterr().out)
    assert run["check"]["passed"]
    assert any("doesn't have that folder" in note for note in run["notes"])
    found = zarr.open_group(folder / "out.zarr", mode="r")
    u, s, v = (found[name][...] for name in "usv")
    values = np.linalg.svd(X, compute_uv=False)[:5]
    np.testing.assert_allclose(s, values, rtol=1e-6)
    np.testing.assert_allclose(u.T @ X @ (v if len(v) == 10 else v.T), np.diag(values), atol=1e-4 * values[0])


def test_what_a_worker_cannot_read_is_told_before_and_while_a_run_computes(
    apart: tuple[Client, Path], data_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    client, folder = apart
    np.save(folder / "d.npy", X)
    assert main(["up", client.scheduler.address, "--name", "mix"]) == 0
    assert main(["run", "svd_of_file", "--cluster", "mix", "-p", f"path={folder}/d.npy", "-p", "k=5"]) == 1
    assert f"can't read {folder}/d.npy (No such file or directory). Its workers read it" in capfd.readouterr().err
    later = folder / "later.npy"
    run = store.select(limit=1)[0].model_copy(update={"resolved": {"path": str(later)}})

    def task() -> None:
        # As if the worker came when the run had begun.
        np.save(later, X)
        raise FileNotFoundError(later)

    with pytest.raises(FailedError, match=r"can't read .*later.npy \(No such file"), _connected(store.writer(run)):
        task()


def test_genotypes_are_neither_packed_to_nor_read_from_a_folder_that_a_worker_does_not_have(
    apart: tuple[Client, Path],
) -> None:
    client, folder = apart
    source, path = simulate(2000, 40, seed=1, rows=100), folder / "g.zarr"
    with pytest.raises(FailedError, match=r"can't write to .*g.zarr \(it doesn't have that folder\)"):
        pack_to_zarr(source, path)
    assert not path.exists()
    with dask.config.set(scheduler="threads"):
        packed, counts = pack_to_zarr(source, path), source.counts().compute()
        np.testing.assert_array_equal(packed.counts().compute(), counts)
    # Zarr would read zeros.
    with pytest.raises(BadInputError, match=r"g.zarr, variants .* isn't there"):
        packed.counts().compute()
    there = client.run(os.path.isdir, str(path))
    reached, other = sorted(there, key=lambda address: not there[address])
    # One that came when the packing had begun.
    write, place = _WriteBlock(full(path)), {0: {"array-location": [(0, 100), (0, 10)]}}
    with pytest.raises(FailedError, match=r"can't write to .*g.zarr \(it doesn't have that folder\)"):
        client.submit(write, np.zeros((100, 10), np.uint8), place, workers=[other]).result()
    np.testing.assert_array_equal(client.compute(packed.counts(), workers=[reached]).result(), counts)


def test_why_a_folder_cannot_be_written_to_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert remote.unwritable(str(tmp_path)) is None
    assert remote.unwritable(str(tmp_path / "gone")) == (platform.node(), "it doesn't have that folder")
    # Root may write where others may not.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert remote.unwritable(str(tmp_path)) == (platform.node(), "its workers may only read there")
