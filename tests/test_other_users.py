"""Another user of this machine who takes names in a shared folder first: nothing waits for it, or is given away."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

import workbench
from workbench import config, private
from workbench.clusters import records
from workbench.clusters.launch import launch
from workbench.clusters.profiles import queues
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, FailedError, StorageError
from workbench.storage import writing
from workbench.storage.targets import target
from workbench.storage.variables import dataset

NOBODY = 65534
IS_ROOT = os.geteuid() == 0


def give_away(path: Path) -> None:
    """Give a path to another user, where root runs the tests."""
    if IS_ROOT:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def take(path: Path, kind: str) -> Path:
    """Have something of another user at a path."""
    match kind:
        case "FIFO":
            os.mkfifo(path, 0o666)
        case "link":
            path.with_name(f"{path.name}-target").write_text("")
            path.symlink_to(f"{path.name}-target")
        case "dangling link":
            path.symlink_to("/nowhere")
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(path))
        case "folder":
            path.mkdir(0o777)
        case "file":
            path.write_text("", encoding="utf-8")
            path.chmod(0o666)
    give_away(path)
    return path


KINDS = ("FIFO", "link", "dangling link", "socket", "folder", "file")


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide a folder for temporary files, in which another user has taken all names that we, or Dask, start with."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # short, for a socket's path may have a hundred characters
    folder.chmod(0o1777)
    for prefix in ("workbench-host-", "workbench-spill-", "workbench-worker-", "workbench-job-"):
        for number, kind in enumerate(KINDS):
            path = take(folder / f"{prefix}{number}", kind)
            if kind == "folder":
                take(path / "lock", "FIFO")
    scratch = take(folder / "dask-scratch-space", "folder")
    for name in ("global.lock", "purge.lock"):
        take(scratch / name, "FIFO")
    scratch.chmod(0o777)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    shutil.rmtree(folder)


def readable_by_nobody(folder: Path) -> set[str]:
    """Files in a folder that another user can read."""
    find = ["find", str(folder), "-type", "f", "-readable"]
    done = subprocess.run(find, user=NOBODY, group=NOBODY, extra_groups=[], stdout=subprocess.PIPE, text=True)
    return set(done.stdout.splitlines())


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_cluster_starts_and_spills_where_no_other_user_can_read(
    data_folder: Path, shared: Path, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, disk = {*shared.rglob("*")}, shared / "disk" if elsewhere else shared
    if elsewhere:
        monkeypatch.setenv("DASK_TEMPORARY_DIRECTORY", str(disk))

    def spill(dask_worker: Any) -> str:
        while dask_worker.data.fast:
            dask_worker.data.evict()
        return str(dask_worker.local_directory)

    with workbench.start("cpu", n_workers=1, memory="512MiB") as cluster:
        held = cluster.client.scatter(np.ones(10**6))
        (place,) = map(Path, cluster.client.run(spill).values())
        there = {cluster.client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.local_directory), str(place)}
        spilled = [each for each in place.rglob("*") if each.is_file() and each.stat().st_size > 7e6]
        assert spilled
        ours = disk / place.relative_to(disk).parts[0]
        assert ours.name.startswith("workbench-spill-")
        assert all(Path(each).is_relative_to(ours) for each in there)
        assert (stat.S_IMODE(ours.stat().st_mode), ours.stat().st_uid) == (0o700, os.geteuid())
        assert not IS_ROOT or not readable_by_nobody(shared) - {*map(str, before)}
        assert held.result().sum() == 1e6
    assert {*shared.rglob("*")} - before <= {shared / "disk"}


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_regular_file_of_ones_own_is_opened_and_never_waited_for(tmp_path: Path, kind: str) -> None:
    path = take(tmp_path / "lock", kind)
    began = time.monotonic()
    if kind == "file" and not IS_ROOT:
        os.close(private.open_file(path))
    else:
        with pytest.raises(OSError, match=r"move it away|No such device|Is a directory"):
            private.open_file(path)
    assert time.monotonic() - began < 1


def test_a_folder_that_a_killed_process_left_is_removed_and_no_other(tmp_path: Path) -> None:
    for number, kind in enumerate(KINDS):
        take(tmp_path / f"mine-{number}", kind)
    dead, living = tmp_path / "mine-dead", private.make_folder("mine-", str(tmp_path))
    dead.mkdir()
    others = {*tmp_path.iterdir()} - {dead, *([] if IS_ROOT else [tmp_path / "mine-4"])}
    made = private.make_folder("mine-", str(tmp_path))
    assert {*tmp_path.iterdir()} == others | {made}
    assert living.is_dir()
    private.remove_folders()
    assert {*tmp_path.iterdir()} == others - {living}


@pytest.mark.parametrize("kind", ["FIFO", "link", "folder"])
def test_a_lock_that_cannot_be_had_is_told_at_once(
    data_folder: Path, spec: ClusterSpec, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = take(records.clusters_folder() / ".lock", kind)
    began = time.monotonic()
    with pytest.raises(StorageError, match=r"\.lock can't be locked \(.*\)\. Mend that, then try again\."):
        launch(spec, force=True)
    assert time.monotonic() - began < 5
    path.rmdir() if kind == "folder" else path.unlink()


def test_a_lock_that_another_process_keeps_is_told_after_a_while(
    data_folder: Path, spec: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "_PATIENCE", 0.2)
    with (
        private.locked(records.clusters_folder() / ".lock", 0),
        pytest.raises(StorageError, match=r"another process has locked it for 0\.2 s"),
    ):
        launch(spec, force=True)


@pytest.mark.skipif(not IS_ROOT, reason="Only root can give a folder to another user.")
@pytest.mark.parametrize("owner", [0, NOBODY])
def test_an_answer_is_not_saved_through_a_folder_of_another_user(tmp_path: Path, owner: int) -> None:
    tmp_path.chmod(0o1777)
    os.chown(tmp_path, owner, owner)
    to = target(str(tmp_path / "out.npy"))
    taken = take(Path(writing.unfinished(to.place, "mine-1").path), "folder")
    answer, victim = dataset({"x": (("row",), np.arange(3.0))}), tmp_path / "victim"
    victim.write_text("as it was")
    (taken / "__file").symlink_to(victim)
    with pytest.raises(FailedError, match=r"another user has taken the name \.out\.npy\.mine-1\.part"):
        writing.write(answer, to, mark="mine-1")
    assert victim.read_text() == "as it was"
    assert taken.exists()
    writing.write(answer, to, mark="mine-2")
    assert np.load(tmp_path / "out.npy").tolist() == [0, 1, 2]


@pytest.mark.skipif(not IS_ROOT, reason="Only root can give a folder to another user.")
def test_nothing_is_kept_in_a_folder_whose_owner_could_replace_it(
    tmp_path: Path,
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(0o777)
    give_away(theirs)
    with pytest.raises(PermissionError, match="it is another user's"):
        private.make_folder("mine-", str(theirs))
    private.remove_folders()
    theirs.chmod(0o700)
    with dask.config.set({"workbench.data-folder": str(theirs)}), pytest.raises(BadInputError, match="another user's"):
        config.data_folder()
    job = queues._SPILL.format(disk=theirs)
    done = subprocess.run(["bash", "-c", job], capture_output=True, text=True)
    assert (done.returncode, "is another user's" in done.stderr) == (1, True)
    assert not [*theirs.iterdir()]
