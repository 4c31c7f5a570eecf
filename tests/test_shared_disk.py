"""Two machines write into one file of a disk that they share, each with a cache of its own, as over NFS."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from tests.test_saving import read
from workbench.runs.keeping import _Workers
from workbench.storage.targets import target
from workbench.storage.writing import write
from workbench.workloads.values import Labelled

_UNPACKED = Path(sys.prefix) / "sshfs"
_MACHINE = """
set -e
mount --bind {folder}/boot{i} /proc/sys/kernel/random/boot_id
mount --bind {folder}/disk {folder}/disk{i}
sshfs -o kernel_cache,ssh_command={folder}/server here:{folder}/disk{i} {folder}/disk
exec "$@"
"""
_APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Path]]:
    """A client with a worker on each of two machines, and the disk that they share with it."""
    folder = tmp_path_factory.mktemp("machines")
    paths = [str(_UNPACKED / each) for each in ("usr/bin", "bin", "usr/lib/openssh")]
    environment = {**os.environ, "PATH": os.pathsep.join([*paths, "/usr/lib/openssh", os.environ["PATH"]])}
    environment["LD_LIBRARY_PATH"] = ":".join(str(each) for each in (_UNPACKED / "lib").glob("*-linux-gnu"))
    if shutil.which("sshfs", path=environment["PATH"]) is None:
        pytest.skip("There is no sshfs: `make test` unpacks Debian's into .venv/sshfs, without installing it.")
    (folder / "disk").mkdir()
    # sshfs speaks with it as if SSH were between them.
    (folder / "server").write_text("#!/bin/sh\nexec sftp-server\n")
    (folder / "server").chmod(0o700)
    workers = []
    with LocalCluster(n_workers=0, dashboard_address=":0") as cluster, Client(cluster) as client:
        try:
            for i in range(2):
                (folder / f"disk{i}").mkdir()
                (folder / f"boot{i}").write_text(str(uuid.uuid4()))
                worker = [sys.executable, "-m", "dask", "worker", cluster.scheduler_address, "--nthreads=1"]
                machine = [*_APART, "sh", "-c", _MACHINE.format(folder=folder, i=i), "sh", *worker, "--no-dashboard"]
                with (folder / f"log{i}").open("wb") as log:
                    workers.append(subprocess.Popen(machine, env=environment, stdout=log, stderr=log))
            while len(client.scheduler_info()["workers"]) < 2:
                if ended := [i for i, each in enumerate(workers) if each.poll() is not None]:
                    pytest.skip(f"Disks can't be mounted here: {(folder / f'log{ended[0]}').read_text()[-300:]}")
                time.sleep(0.1)
            yield client, folder / "disk"
        finally:
            for each in workers:
                each.kill()  # and with it all of its machine
                each.wait(10)


@pytest.mark.parametrize("chunks", [(70_001, 20), (90_000, 7)])
@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.nc"])
def test_each_machine_writes_what_it_has(disk: tuple[Client, Path], name: str, chunks: tuple[int, int]) -> None:
    client, folder = disk
    x = da.random.default_rng(0).random((1_000_001, 20), chunks=chunks)
    hands = _Workers(client)
    write({"x": Labelled(x, ("a", "b"))}, target(folder / name, replace=True), {}, mark="mine-1", hands=hands)
    assert (hands.on_one_machine, hands.notes) == (False, ())
    np.testing.assert_array_equal(read(folder / name), x.compute())
    assert name in {each.name for each in folder.iterdir()}
    assert not [each for each in folder.iterdir() if each.name.startswith(".")]
