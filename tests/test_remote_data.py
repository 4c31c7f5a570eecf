"""Data on S3, which moto serves on this machine: found, read and written, by this process, workers and a runner."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from socket import socket
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import boto3
import dask.array as da
import dask.config
import h5py
import numpy as np
import pytest
import s3fs
import xarray
import zarr

from tests.test_runs import start_cluster
from tests.waiting import until
from workbench.cli import main
from workbench.credentials import by_command
from workbench.errors import ConflictError, FailedError
from workbench.genotypes import open_genotypes, pack_to_zarr, simulate
from workbench.runs import answer_storage, failures, store
from workbench.runs.run import Run
from workbench.runs.submit import finish, submit
from workbench.session import Session
from workbench.storage.targets import COPYING, target
from workbench.storage.variables import dataset
from workbench.workloads import template
from workbench.workloads.values import BadParameterError

SVD, PCA, PACK = template("svd_of_file"), template("genotype_pca"), template("pack_genotypes")
REDUCE = template("reduce_file")
TALL = np.random.default_rng(0).normal(size=(600, 12)) * 0.6 ** np.arange(12)
VALUES = np.linalg.svd(TALL, compute_uv=False)
COUNTS = np.random.default_rng(0).integers(0, 4, (900, 37)).astype("uint8")


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server of S3, started once, with a bucket `data` in it."""
    with closing(socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (tmp_path_factory.mktemp("moto") / "log.txt").open("w")
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(address, server)
        # s3fs' own mkdir is refused: it names no region.
        client = boto3.client(
            "s3", endpoint_url=address, aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1"
        )
        client.create_bucket(Bucket="data", ACL="public-read")
        yield address
    finally:
        server.terminate()
        server.wait(30)
        log.close()


def _wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert server.poll() is None, "moto's server ended"
        try:
            urlopen(f"{address}/moto-api/", timeout=5).close()
        except (URLError, OSError):
            time.sleep(0.2)
        else:
            return
    pytest.fail("moto's server did not answer")


@pytest.fixture
def keys(s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Provide the same server with keys in the environment, so that no file of the user is read."""
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with by_command():
        yield s3


def _put(folder: Path, s3: str, name: str, **content: Any) -> None:
    """Write the same array to a .npy, .npz, HDF5 and Zarr file of this name."""
    import s3fs

    fs = s3fs.S3FileSystem(endpoint_url=s3, key="a", secret="b", s3_additional_kwargs={"ACL": "public-read"})
    np.save(folder / "x.npy", content["x"])
    np.savez(folder / "x.npz", x=content["x"])
    with h5py.File(folder / "x.h5", "w") as file:
        file["x"] = content["x"]
    zarr.create_array(folder / "x.zarr", data=content["x"], chunks=(100, content["x"].shape[1]))
    for each in ("x.npy", "x.npz", "x.h5", "x.zarr"):
        fs.put(str(folder / each), f"data/{name}/{each}", recursive=each == "x.zarr")


@pytest.fixture(scope="session")
def arrays(s3: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of the server, with arrays on it."""
    _put(tmp_path_factory.mktemp("arrays"), s3, "arrays", x=TALL)
    return s3


@pytest.fixture(scope="module")
def processes() -> Iterator[Any]:
    """Client of a worker process, which shares nothing with this one and has keys of its own."""
    from distributed import Client, LocalCluster

    given = {"n_workers": 1, "threads_per_worker": 2, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    with LocalCluster(**given, env=keys) as cluster, Client(cluster) as client:
        yield client


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.h5", "x.zarr"])
def test_arrays_on_s3_are_read_by_workers_told_of_the_endpoint_by_fields(
    name: str, arrays: str, processes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    given = {"path": f"s3://data/arrays/{name}", "anon": "true", "endpoint_url": arrays}
    parameters = SVD.validate(given)
    summary, check = SVD.compute(parameters, processes)
    np.testing.assert_allclose(summary["singular_values"], VALUES, rtol=1e-12)
    assert check.passed, check.what


def test_a_cell_reads_from_s3(arrays: str) -> None:
    for name in ("x.npy", "x.zarr"):
        given = {"path": f"s3://data/arrays/{name}", "anon": True, "endpoint_url": arrays, "method": "dask"}
        code = SVD.cell(SVD.validate(given))
        found: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(code, "cell", "exec"), found)
        np.testing.assert_allclose(found["s"].compute(), VALUES, rtol=1e-12)


def test_each_chunk_on_s3_takes_one_request_and_the_array_is_searched_once(
    arrays: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"path": "s3://data/arrays/x.zarr", "anon": "true", "endpoint_url": arrays}
    # s3fs writes each request there.
    with caplog.at_level(logging.DEBUG, logger="s3fs"), dask.config.set(scheduler="sync"):
        answer, _ = REDUCE.compute(REDUCE.validate(given))
    assert answer["value"] == pytest.approx(TALL.mean())
    requests = [record.getMessage() for record in caplog.records if "CALL: " in record.getMessage()]
    chunks = [each for each in requests if re.search(r"x\.zarr/(c/)?\d+[./]\d+'", each)]
    assert len(set(chunks)) > 1
    # The mean, and the check that adds up the numbers once more.
    assert all("get_object" in each and chunks.count(each) == 2 for each in chunks)
    assert len(requests) - len(chunks) < 60


def test_genotypes_are_packed_to_s3_and_analysed_from_there(keys: str, processes: Any) -> None:
    import s3fs

    fs = s3fs.S3FileSystem(endpoint_url=keys)
    _write_counts("s3://data/in/x.zarr", keys)
    to = "s3://data/out/packed.zarr"
    given = {"path": "s3://data/in/x.zarr", "endpoint_url": keys, "to": to, "to_endpoint_url": keys}
    parameters = PACK.validate(given)
    for _ in range(2):
        summary, check = PACK.compute(parameters, processes)
        assert check.passed, check.what
        assert summary["bytes_after"] == fs.du(to.removeprefix("s3://")) > 900 * 10
    again = {"path": to, "endpoint_url": keys, "n_components": 3}
    _, check = PCA.compute(PCA.validate(again), processes)
    assert check.passed, check.what
    np.testing.assert_array_equal(
        open_genotypes(to, storage_options={"endpoint_url": keys}).counts().compute(),
        np.where(COUNTS == 3, 255, COUNTS),
    )


def _write_counts(path: str, s3: str) -> None:
    how = {"chunks": (300, 37), "storage_options": {"endpoint_url": s3}}
    zarr.open_array(path, mode="w", shape=COUNTS.shape, dtype="u1", **how)[:] = COUNTS


def test_plinks_three_files_and_a_table_of_labels_are_read_from_s3(keys: str) -> None:
    import s3fs

    fs = s3fs.S3FileSystem(endpoint_url=keys)
    fs.pipe("data/p/a.bed", b"\x6c\x1b\x01" + bytes(i & (0x3F if i % 2 else 0xFF) for i in range(200)))
    fs.pipe("data/p/a.bim", "".join(f"1 s{i} 0 {i} A C\n" for i in range(100)).encode())
    fs.pipe("data/p/a.fam", "".join(f"f p{i} 0 0 0 -9\n" for i in range(7)).encode())
    fs.pipe("data/p/labels.tsv", b"name\tpop\n" + b"".join(b"p%d\tx%d\n" % (i, i % 2) for i in range(7)))
    where = {"path": "s3://data/p/a", "labels": "s3://data/p/labels.tsv", "endpoint_url": keys, "n_components": 2}
    summary, check = PCA.compute(PCA.validate(where))
    assert check.passed, check.what
    assert set(summary["scatter"]["labels"]) == {"x0", "x1"}


def test_packing_goes_on_after_a_stop_and_replaces_what_is_there_on_s3(keys: str) -> None:
    where: dict[str, Any] = {"to_storage_options": {"endpoint_url": keys}}
    genotypes = simulate(1000, 40, rows=100)
    with pytest.raises(_StoppedError):
        pack_to_zarr(genotypes, "s3://data/stopped.zarr", progress=_stop, **where)
    seen: list[int] = []
    stored = pack_to_zarr(genotypes, "s3://data/stopped.zarr", progress=lambda done, _: seen.append(done), **where)
    assert seen[0] > 0
    np.testing.assert_array_equal(stored.counts().compute(), genotypes.counts().compute())
    other = simulate(1000, 40, rows=100, seed=1)
    stored = pack_to_zarr(other, "s3://data/stopped.zarr", overwrite=True, **where)
    np.testing.assert_array_equal(stored.counts().compute(), other.counts().compute())


class _StoppedError(Exception):
    pass


def _stop(done: int, _: int) -> None:
    if done:
        raise _StoppedError


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"path": "x.npy", "anon": True}, "anon of svd_of_file is for s3://, s3a://, "),
        ({"path": "http://127.0.0.1/x.npy", "endpoint_url": "http://a"}, "endpoint_url of svd_of_file is for s3://"),
    ],
)
def test_fields_on_a_server_are_refused_where_there_is_none(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadParameterError) as refused:
        SVD.validate(given)
    assert sentence in str(refused.value)
    assert refused.value.parameter in given


def test_what_is_not_on_s3_or_not_permitted_gets_a_sentence(keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("s3://data/gone.zarr", "s3://nowhere/x.npy"):
        with pytest.raises(BadParameterError, match="isn't there"):
            SVD.validate({"path": path, "endpoint_url": keys})
    with pytest.raises(BadParameterError, match="isn't there"):
        PCA.validate({"path": "s3://data/gone.zarr", "endpoint_url": keys})
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(BadParameterError, match="there are no keys for it"):
        SVD.validate({"path": "s3://data/x.npy", "endpoint_url": keys})


def test_runs_reach_s3_by_fields_alone_and_what_one_killed_while_it_saves_leaves_is_removed_by_the_next(
    keys: str, data_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    s3fs.S3FileSystem.clear_instance_cache()  # of another test, without keys
    cluster = start_cluster("killed-otter")
    _write_counts("s3://data/in/r.zarr", keys)
    given = ["--cluster", cluster.name, "--json", "-p", f"endpoint_url={keys}", "-p", f"to_endpoint_url={keys}"]
    to = ["-p", "path=s3://data/in/r.zarr", "-p", "to=s3://data/out/r.zarr"]
    assert main(["run", "pack_genotypes", *given, *to]) == 0
    assert json.loads(capsys.readouterr().out)["check"]["passed"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", keys)
    s3fs.S3FileSystem.clear_instance_cache()
    fs, x = s3fs.S3FileSystem(use_listings_cache=False), np.random.default_rng(0).standard_normal((8000, 20))
    np.save(tmp_path / "x.npy", x)
    name = f"{tmp_path.name}.zarr"
    asked = {"path": str(tmp_path / "x.npy"), "chunks": [100, 20], "save": f"s3://data/{name}"}
    killed = submit("svd_of_file", asked, cluster)
    # Not more often: each look is several requests to a server that shares the cores.
    until(lambda: time.sleep(0.2) or len(fs.glob(f"data/.{name}.*.part/u/c/*/0")) > 2, 180)
    os.kill(store.get(killed.id).pid or 0, signal.SIGKILL)
    assert (finish(killed.id, timeout=20).status, fs.exists(f"data/{name}")) == ("lost", False)
    # In fewer blocks: each is a handful of requests.
    run = finish(submit("svd_of_file", asked | {"chunks": [4000, 20]}, cluster).id, timeout=180)
    assert run.status == "done", run.error
    assert fs.glob(f"data/.{name}*") == []
    assert run.answers is not None
    there = store.update(run.id, answers=run.answers.model_copy(update={"kept": ()})).arrays
    u, s, v = (there[array] for array in "usv")
    np.testing.assert_allclose((u * s) @ v, x, atol=1e-10)
    Session().stop(cluster.name)


def test_an_answer_is_saved_to_s3_whole_or_not_at_all(
    keys: str, quick_client: Any, monkeypatch: pytest.MonkeyPatch, data_folder: Path
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", keys)
    s3fs.S3FileSystem.clear_instance_cache()
    store.create(Run(id="mine-1", workload="mine", cluster="otter", status="running"))
    x = da.from_array(TALL, chunks=(max(1, len(TALL) // 3), -1))
    broken = dataset({"x": (("row", "column"), x.map_blocks(lambda block: block @ block, meta=x._meta))})
    whole = dataset({"x": (("row", "column"), x)})
    with dask.config.set({"workbench.answers.each": "0B"}):
        with pytest.raises(ValueError, match="matmul"):
            answer_storage.leave("mine-1", broken, target("s3://data/out.npz"), quick_client)
        left = answer_storage.leave("mine-1", whole, target("s3://data/out.npz"), quick_client)
    assert left.error is None
    run = store.update("mine-1", answers=left.answers, status="done")
    np.testing.assert_array_equal(run.arrays["x"], TALL)
    with pytest.raises(ConflictError, match="is there already"):
        target("s3://data/out.npz")
    fs, twice = s3fs.S3FileSystem(), dataset({"x": (("row", "column"), 2 * x)})
    with dask.config.set({"workbench.answers.each": "0B"}):
        again = target("s3://data/out.npz", replace=True)
        with pytest.raises(ValueError, match="matmul"):
            answer_storage.leave("mine-1", broken, again, quick_client)
        np.testing.assert_array_equal(run.arrays["x"], TALL)  # what was there stays until then
        left = answer_storage.leave("mine-1", twice, again, quick_client)
    assert left.error is None
    run = store.update("mine-1", answers=left.answers)
    np.testing.assert_array_equal(run.arrays["x"], 2 * TALL)
    assert [each for each in fs.ls("data") if "out.npz" in each] == ["data/out.npz"]


def test_a_store_on_s3_of_which_a_part_was_copied_when_its_runner_was_killed_is_replaced(
    keys: str, quick_client: Any, monkeypatch: pytest.MonkeyPatch, data_folder: Path
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", keys)
    s3fs.S3FileSystem.clear_instance_cache()
    store.create(Run(id="mine-2", workload="mine", cluster="otter", status="running"))
    answer = dataset({"x": (("row", "column"), da.from_array(TALL, chunks=(max(1, len(TALL) // 3), -1)))})
    fs, copied = s3fs.S3FileSystem(use_listings_cache=False), []

    def die(paths: list[str], to: list[str]) -> None:
        copied.append(paths)
        if len(copied) == 2:
            raise KeyboardInterrupt
        copy(paths, to)

    def leave(path: Any, **how: Any) -> None:
        if path != "data/half.zarr":
            remove(path, **how)

    used = target("s3://data/half.zarr").place.storage()[0]
    copy, remove = used.copy, used.rm
    with dask.config.set({"workbench.answers.each": "0B"}):
        with monkeypatch.context() as patched:
            patched.setattr(used, "copy", die)
            patched.setattr(used, "rm", leave)
            with pytest.raises(KeyboardInterrupt):
                answer_storage.leave("mine-2", answer, target("s3://data/half.zarr"), quick_client)
        assert fs.find("data/half.zarr")
        with pytest.raises(ConflictError, match="is there already"):
            target("s3://data/half.zarr")
        left = answer_storage.leave("mine-2", answer, target("s3://data/half.zarr", replace=True), quick_client)
    assert left.error is None
    np.testing.assert_array_equal(store.update("mine-2", answers=left.answers).arrays["x"], TALL)
    assert not [path for path in fs.find("data/half.zarr") if path.endswith(COPYING)]


def test_of_a_copy_on_s3_that_fails_nothing_is_left_but_what_was_to_replace_a_store(
    keys: str, quick_client: Any, monkeypatch: pytest.MonkeyPatch, data_folder: Path
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", keys)
    s3fs.S3FileSystem.clear_instance_cache()
    store.create(Run(id="mine-3", workload="mine", cluster="otter", status="running"))
    answer = dataset({"x": (("row", "column"), da.from_array(TALL, chunks=(max(1, len(TALL) // 3), -1)))})
    fs, to = s3fs.S3FileSystem(use_listings_cache=False), target("s3://data/cut.zarr")
    copied: list[Any] = []

    def copy(paths: list[str], there: list[str]) -> None:
        copied.append(paths)
        if len(copied) % 2 == 0:
            raise OSError(errno.ENETDOWN, os.strerror(errno.ENETDOWN))
        whole(paths, there)

    used = to.place.storage()[0]
    whole = used.copy
    with dask.config.set({"workbench.answers.each": "0B"}):
        with monkeypatch.context() as patched:
            patched.setattr(used, "copy", copy)
            left = answer_storage.leave("mine-3", answer, to, quick_client)
            assert "can't be written (Network is down)" in str(left.error)
            assert [path for path in fs.find("data") if "cut.zarr" in path] == []
        assert answer_storage.leave("mine-3", answer, to, quick_client).error is None
        with monkeypatch.context() as patched:
            patched.setattr(used, "copy", copy)
            left = answer_storage.leave("mine-3", answer, target("s3://data/cut.zarr", replace=True), quick_client)
    assert "can't be written (Network is down)" in str(left.error)
    assert "The old target was removed" in str(left.error)
    lies = str(left.error).partition("are complete in ")[2].removesuffix(".")
    np.testing.assert_array_equal(zarr.open(lies)["x"][:], TALL)


def test_workers_save_to_the_server_that_the_environment_names_where_the_run_is(
    keys: str, processes: Any, monkeypatch: pytest.MonkeyPatch, data_folder: Path
) -> None:
    assert processes.submit(os.environ.get, "AWS_ENDPOINT_URL").result() is None
    monkeypatch.setenv("AWS_ENDPOINT_URL", keys)
    s3fs.S3FileSystem.clear_instance_cache()
    store.create(Run(id="mine-4", workload="mine", cluster="otter", status="running"))
    answer = dataset({"x": (("row", "column"), da.from_array(TALL, chunks=(200, -1)))})
    with dask.config.set({"workbench.answers.each": "0B"}):
        left = answer_storage.leave("mine-4", answer, target("s3://data/named.zarr"), processes)
    assert (left.error, left.notes) == (None, ())
    np.testing.assert_array_equal(zarr.open("s3://data/named.zarr")["x"][:], TALL)
    with xarray.open_zarr("s3://data/named.zarr") as found:
        assert found["x"].dims == ("row", "column")


def test_a_bucket_that_does_not_exist_is_told_of_before_anything_is_computed(
    keys: str, quick_client: Any, monkeypatch: pytest.MonkeyPatch, data_folder: Path
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", keys)
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(FailedError, match=r"s3://nobucket/out\.zarr can't be written \(.*bucket does not exist"):
        answer_storage.chosen_target("s3://nobucket/out.zarr", replace=False)
    assert answer_storage.chosen_target("s3://data/out-there.zarr", replace=False) is not None
    assert not [path for path in s3fs.S3FileSystem(use_listings_cache=False).find("data") if "out-there" in path]


def test_what_a_task_hears_of_a_server_is_told_in_a_sentence() -> None:
    from botocore.exceptions import EndpointConnectionError, NoCredentialsError

    run = Run(id="mine-5", workload="svd_of_file", cluster="otter", resolved={"path": "s3://data/x.npy"})
    told = failures.sentence(NoCredentialsError(), run, None)
    assert told.startswith("s3://data/x.npy can't be opened: there are no keys for it. Give anon=true if it is public")
    told = failures.sentence(EndpointConnectionError(endpoint_url="http://127.0.0.1:1"), run, None)
    assert told.startswith("s3://data/x.npy can't be read (Could not connect to the endpoint URL")
    assert "traceback" not in told
