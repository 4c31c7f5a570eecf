from __future__ import annotations

import ast
import contextlib
import functools
import http.server
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import cloudpickle
import dask
import dask.array as da
import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

from tests import commands
from workbench.errors import BadInputError, MissingError
from workbench.genotypes import open_genotypes
from workbench.storage import places
from workbench.storage.formats.npy import read_npy, read_npy_url, read_npz
from workbench.storage.places import with_token
from workbench.workloads import contents, template
from workbench.workloads.values import BadParameterError

SVD = template("svd_of_file")
TALL = np.random.default_rng(0).normal(size=(600, 12)) * 0.6 ** np.arange(12)
VALUES = np.linalg.svd(TALL, compute_uv=False)


def _npy(folder: Path) -> dict[str, Any]:
    np.save(folder / "a.npy", TALL)
    return {"path": folder / "a.npy"}


def _fortran_npy(folder: Path) -> dict[str, Any]:
    np.save(folder / "a.npy", np.asfortranarray(TALL))
    return {"path": folder / "a.npy"}


def _npz(folder: Path) -> dict[str, Any]:
    np.savez(folder / "a.npz", x=TALL, other=TALL[:5])
    return {"path": folder / "a.npz", "array": "x"}


def _packed_npz(folder: Path) -> dict[str, Any]:
    np.savez_compressed(folder / "a.npz", TALL)
    return {"path": folder / "a.npz"}


def _hdf5(folder: Path) -> dict[str, Any]:
    with h5py.File(folder / "a.h5", "w") as file:
        file["group/x"] = TALL
        file["other"] = TALL[:5]
    return {"path": folder / "a.h5", "array": "/group/x"}


def _chunked_hdf5(folder: Path) -> dict[str, Any]:
    with h5py.File(folder / "no-suffix", "w") as file:
        file.create_dataset("x", data=TALL, chunks=(7, 5), compression="gzip")
    return {"path": folder / "no-suffix"}


def _zarr(folder: Path, *, zarr_format: int, chunks: tuple[int, int]) -> dict[str, Any]:
    array = zarr.create_array(folder / "a.zarr", shape=TALL.shape, chunks=chunks, dtype="f8", zarr_format=zarr_format)
    array[:] = TALL
    return {"path": folder / "a.zarr"}


def _zarr_group(folder: Path, *, zarr_format: int) -> dict[str, Any]:
    group = zarr.open_group(folder / "g.zarr", mode="w", zarr_format=zarr_format)
    group.create_array("one/x", shape=TALL.shape, chunks=(50, 12), dtype="f8")[:] = TALL
    group.create_array("b", shape=(3, 3), chunks=(3, 3), dtype="f8")
    return {"path": folder / "g.zarr", "array": "one/x"}


def _sharded_zarr(folder: Path) -> dict[str, Any]:
    array = zarr.create_array(folder / "a.zarr", shape=TALL.shape, chunks=(10, 4), shards=(100, 12), dtype="f8")
    array[:] = TALL
    return {"path": folder / "a.zarr"}


def _zipped_zarr(folder: Path) -> dict[str, Any]:
    with zarr.storage.ZipStore(folder / "a.zip", mode="w") as store:
        zarr.create_array(store, shape=TALL.shape, chunks=(100, 12), dtype="f8")[:] = TALL
    return {"path": folder / "a.zip"}


def _zipped_zarr_group(folder: Path) -> dict[str, Any]:
    with zarr.storage.ZipStore(folder / "a.zip", mode="w") as store:
        group = zarr.open_group(store, mode="w", zarr_format=3)
        group.create_array("deep/x", shape=TALL.shape, chunks=(100, 12), dtype="f8")[:] = TALL
    return {"path": folder / "a.zip"}


FORMATS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "npy": _npy,
    "npy by columns": _fortran_npy,
    "npz": _npz,
    "packed npz": _packed_npz,
    "hdf5": _hdf5,
    "chunked hdf5": _chunked_hdf5,
    "zarr 2": functools.partial(_zarr, zarr_format=2, chunks=(100, 12)),
    "zarr 3": functools.partial(_zarr, zarr_format=3, chunks=(100, 12)),
    "zarr in columns": functools.partial(_zarr, zarr_format=3, chunks=(600, 1)),
    "zarr in uneven blocks": functools.partial(_zarr, zarr_format=2, chunks=(37, 5)),
    "zarr 2 group": functools.partial(_zarr_group, zarr_format=2),
    "zarr 3 group": functools.partial(_zarr_group, zarr_format=3),
    "zarr in shards": _sharded_zarr,
    "zarr in a zip": _zipped_zarr,
    "zarr group in a zip": _zipped_zarr_group,
}


@pytest.fixture(scope="module")
def processes() -> Iterator[Any]:
    """Client of two worker processes, which share nothing with this one."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def _given(raw: dict[str, Any]) -> dict[str, Any]:
    return raw | {"path": str(raw["path"])}


@pytest.mark.parametrize("name", FORMATS)
def test_worker_processes_find_the_values_numpy_finds(name: str, tmp_path: Path, processes: Any) -> None:
    method = "dask" if name.startswith("npy") else "workbench"
    raw = _given(FORMATS[name](tmp_path)) | {"chunks": "150", "method": method}
    summary, check = SVD.compute(SVD.validate(raw, threads=2), processes)
    np.testing.assert_allclose(summary["singular_values"], VALUES, rtol=1e-12)
    assert check.passed, check.what


@pytest.mark.parametrize("name", FORMATS)
def test_default_blocks_suit_every_format(name: str, tmp_path: Path) -> None:
    parameters = SVD.validate(_given(FORMATS[name](tmp_path)), threads=2)
    assert parameters.notes
    summary, check = SVD.compute(parameters)
    np.testing.assert_allclose(summary["singular_values"], VALUES, rtol=1e-12)
    assert check.passed, check.what


@pytest.mark.parametrize("name", ["npy", "hdf5", "zarr 3"])
def test_the_first_k_values_are_found_by_worker_processes(name: str, tmp_path: Path, processes: Any) -> None:
    raw = _given(FORMATS[name](tmp_path)) | {"k": "3", "n_power_iter": 3, "chunks": "200, 12"}
    summary, check = SVD.compute(SVD.validate(raw), processes)
    np.testing.assert_allclose(summary["singular_values"], VALUES[:3], rtol=1e-3)
    assert check.passed, check.what


@pytest.mark.parametrize("shape", [(9, 500), (500, 9), (30, 30), (1, 1), (1, 50), (50, 1)])
@pytest.mark.parametrize("center", [False, True])
def test_any_orientation_with_and_without_centring(shape: tuple[int, int], center: bool, tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(3, 1, size=shape)
    np.save(tmp_path / "x.npy", x)
    summary, check = SVD.compute(SVD.validate({"path": str(tmp_path / "x.npy"), "center": center}, threads=2))
    expected = np.linalg.svd(x - x.mean(axis=0) if center else x, compute_uv=False)
    np.testing.assert_allclose(summary["singular_values"], expected, rtol=1e-10, atol=1e-12)
    assert check.passed, check.what


@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize("method", ["workbench", "dask"])
def test_reading_is_told_apart_from_computing(tmp_path: Path, quick_client: Any, k: int | None, method: str) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((300, 20)))
    given = {"path": str(tmp_path / "x.npy"), "k": k, "method": method, "chunks": [100, 20]}
    plain, first = (SVD.validate({**given, "persist": persist}) for persist in (False, True))
    assert "seconds_to_read" not in SVD.compute(plain, quick_client)[0]
    answer, check = SVD.compute(first, quick_client)
    assert answer["seconds_to_read"] > 0
    assert check.passed
    assert SVD.needs(first).held_total >= SVD.needs(plain).held_total


def test_reading_again_at_each_pass_gives_the_same(tmp_path: Path, quick_client: Any) -> None:
    np.save(tmp_path / "x.npy", TALL + 5)
    raw = {"path": str(tmp_path / "x.npy"), "k": 3, "center": True, "chunks": [100, 6]}
    held, again = (
        SVD.compute(SVD.validate(raw | {"compute": compute}), quick_client)[0]["singular_values"]
        for compute in (False, True)
    )
    np.testing.assert_allclose(held, again, rtol=1e-10)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i4", "u8", ">i2", "f2", "f4", ">f4", ">f8", "f8", "longdouble"])
def test_every_kind_of_real_number_is_decomposed(dtype: str, tmp_path: Path) -> None:
    x = np.random.default_rng(2).integers(0, 2, size=(200, 6)).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    parameters = SVD.validate({"path": str(tmp_path / "x.npy"), "k": 3})
    summary, check = SVD.compute(parameters)
    single = np.dtype(dtype).itemsize <= 4 and np.dtype(dtype).kind == "f"
    assert parameters.resolved["dtype"] == ("float32" if single else "float64")
    expected = np.linalg.svd(x.astype("f8"), compute_uv=False)[:3]
    # The bounds also hold for the values as reported, in single precision.
    bounds = 2 * np.array(summary["certificate"]["bound"]) + 1e-15
    assert (np.abs(summary["singular_values"] / expected - 1) <= bounds).all()
    assert check.passed, check.what


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "x.npy", TALL)
    monkeypatch.chdir(tmp_path)
    parameters = SVD.validate({"path": "./x.npy"})
    assert parameters.given["path"] == parameters.resolved["path"] == str(tmp_path / "x.npy")
    assert SVD.validate({"path": Path("x.npy")}).given == parameters.given
    monkeypatch.setenv("HOME", str(tmp_path))
    assert SVD.validate({"path": "~/x.npy"}).resolved["path"] == str(tmp_path / "x.npy")
    assert SVD.validate({"path": f"file://{tmp_path}/x.npy"}).resolved["path"] == str(tmp_path / "x.npy")


def test_a_wrong_answer_of_a_file_fails_its_check(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", TALL)
    for extra in ({}, {"k": 4, "n_power_iter": 3}):
        parameters = SVD.validate({"path": str(tmp_path / "x.npy"), "chunks": 150 if not extra else [150, 12]} | extra)
        collections = SVD.build(parameters)
        certificate = collections.pop("certificate")
        results = dict(zip(collections, dask.compute(*collections.values()), strict=True))
        results["certificate"] = certificate
        as_dask = _as_dask(results)
        assert SVD.check(parameters, as_dask).passed
        assert not SVD.check(parameters, as_dask | {"s": results["s"] * 1.5}).passed
        np.save(tmp_path / "x.npy", np.random.default_rng(9).normal(size=TALL.shape))
        assert not SVD.check(parameters, as_dask).passed
        np.save(tmp_path / "x.npy", TALL)


@pytest.mark.parametrize("scale", [1e200, 1e-200])
@pytest.mark.parametrize("given", [{"k": 3}, {"k": 3, "method": "dask", "n_power_iter": 4}, {"k": None}])
def test_checks_hold_at_any_scale_and_can_fail_there(tmp_path: Path, scale: float, given: dict[str, Any]) -> None:
    values = np.random.default_rng(3).normal(size=(300, 12)) * 2.0 ** -np.arange(12)
    np.save(tmp_path / "x.npy", scale * values)
    parameters = SVD.validate({"path": str(tmp_path / "x.npy"), "chunks": [100, 12], **given})
    built = SVD.build(parameters)
    results = {name: each.compute() if isinstance(each, da.Array) else each for name, each in built.items()}
    np.testing.assert_allclose(results["s"] / scale, np.linalg.svd(values)[1][: len(results["s"])], rtol=1e-3)
    check = SVD.check(parameters, _as_dask(results))
    assert check.passed, (check.what, check.detail)
    for wrong in ({"s": results["s"] * 1.5}, {"u": results["u"][::-1]}, {"v": results["v"][:, ::-1]}):
        assert not SVD.check(parameters, _as_dask(results | wrong)).passed, wrong.keys()


def _as_dask(results: dict[str, Any]) -> dict[str, Any]:
    return {name: da.from_array(value) if name in ("u", "v") else value for name, value in results.items()}


def test_rechunking_is_explained(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "wide.zarr", shape=(200_000, 200), chunks=(200_000, 1), dtype="f8")
    parameters = SVD.validate({"path": str(tmp_path / "wide.zarr"), "missing_chunks": "fill"}, threads=2)
    assert parameters.notes == (
        "0 of 200 chunks exist; the others were never written, or are lost, and count as 0.",
        "Stored in blocks of 200,000 × 1, read in blocks of 200,000 × 20 and rechunked to 20,000 × 200: a full SVD "
        "needs whole rows or columns in each.",
    )
    assert parameters.resolved["blocks"] == [200_000, 20]
    assert array.chunks == (200_000, 1)


def test_blocks_that_suit_are_read_as_they_are_stored(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "x.zarr", shape=(200_000, 200), chunks=(10_000, 200), dtype="f8")
    parameters = SVD.validate({"path": str(tmp_path / "x.zarr"), "missing_chunks": "fill"}, threads=2)
    assert parameters.resolved["blocks"] == parameters.resolved["chunks"]
    assert parameters.resolved["chunks"][0] % 10_000 == 0


def test_an_array_at_a_url_in_memory_is_read(quick_client: Any) -> None:
    import fsspec

    group = zarr.open_group("memory://test/g.zarr", mode="w")
    group.create_array("x", shape=TALL.shape, chunks=(100, 12), dtype="f8")[:] = TALL
    with fsspec.open("memory://test/x.npy", "wb") as file:
        np.save(file, TALL)
    with fsspec.open("memory://test/x.npz", "wb") as file:
        np.savez(file, x=TALL)
    with fsspec.open("memory://test/x.h5", "wb") as file, h5py.File(file, "w") as datasets:
        datasets["x"] = TALL
    for path in ("g.zarr", "x.npy", "x.npz", "x.h5", "g.zarr/x"):
        parameters = SVD.validate({"path": f"memory://test/{path}"}, threads=2)
        summary, check = SVD.compute(parameters, quick_client)
        np.testing.assert_allclose(summary["singular_values"], VALUES, rtol=1e-12)
        assert check.passed, check.what


@contextlib.contextmanager
def _served(handler: Any) -> Iterator[str]:
    """Address of a server whose requests `handler` answers."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """Address of a server for the files in tmp_path."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    with _served(functools.partial(Quiet, directory=tmp_path)) as url:
        yield url


def test_a_zarr_array_is_read_over_http(served: str, tmp_path: Path, processes: Any) -> None:
    pytest.importorskip("aiohttp")
    _zarr(tmp_path, zarr_format=2, chunks=(200, 12))
    summary, check = SVD.compute(SVD.validate({"path": f"{served}/a.zarr"}), processes)
    np.testing.assert_allclose(summary["singular_values"], VALUES, rtol=1e-12)
    assert check.passed, check.what


class _Odd(http.server.SimpleHTTPRequestHandler):
    """Lists no folder; `failing` says of the how manieth request it answers 503."""

    failing: Any = staticmethod(lambda number: False)
    asked: list[str]

    def log_message(self, *_: Any) -> None: ...

    def list_directory(self, path: Any) -> None:
        self.send_error(404)

    def send_head(self) -> Any:
        self.asked.append(self.path)
        if self.failing(len(self.asked)):
            self.send_error(503)
            return None
        return super().send_head()


@contextlib.contextmanager
def _odd(folder: Path, failing: Any = lambda number: False) -> Iterator[str]:
    kind = type("Odd", (_Odd,), {"failing": staticmethod(failing), "asked": []})
    with _served(functools.partial(kind, directory=folder)) as url:
        yield url


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_arrays_of_a_server_that_lists_nothing_are_known_by_consolidated_metadata(
    tmp_path: Path, zarr_format: Any
) -> None:
    pytest.importorskip("aiohttp")
    group = zarr.open_group(tmp_path / "g.zarr", mode="w", zarr_format=zarr_format)
    group.create_array("a/x", data=TALL)
    group.create_array("y", data=TALL)
    with _odd(tmp_path) as url:
        bare = contents.look(f"{url}/g.zarr")
        assert (bare.arrays, bare.remarks) == ((), ("Its server can't list what is in it: name the array.",))
        with pytest.raises(BadInputError, match="its server can't list what is in it: name the array"):
            SVD.validate({"path": f"{url}/g.zarr"})
        zarr.consolidate_metadata(tmp_path / "g.zarr")
        held = contents.look(f"{url}/g.zarr")
    assert [(each.name, each.shape) for each in held.arrays] == [("a/x", TALL.shape), ("y", TALL.shape)]
    assert held.choices["array"] == ("a/x", "y")
    assert held.n_bytes is None


def test_a_busy_server_is_asked_again_and_one_that_stays_so_is_named(
    tmp_path: Path, processes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(places, "_PAUSES", (0.01,) * 4)
    np.save(tmp_path / "x.npy", TALL)
    zarr.create_array(str(tmp_path / "x.zarr"), data=TALL, chunks=(450, 12))
    expected = np.linalg.svd(TALL, compute_uv=False)
    with _odd(tmp_path, lambda number: number % 3 != 0) as url:
        for name in ("x.npy", "x.zarr"):
            summary, _ = SVD.compute(SVD.validate({"path": f"{url}/{name}"}), processes)
            np.testing.assert_allclose(summary["singular_values"], expected, rtol=1e-9)
    with _odd(tmp_path, lambda number: True) as url, pytest.raises(BadInputError) as caught:
        contents.look(f"{url}/x.npy")
    assert str(caught.value) == f"{url}/x.npy can't be read: its server answers 503. Try again later."


@pytest.mark.parametrize("name", ["x.npy", "x.zarr"])
def test_what_breaks_off_in_the_middle_is_asked_for_again(
    tmp_path: Path, processes: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(places, "_PAUSES", (0.01,) * 4)
    array = np.random.default_rng(0).normal(size=(300, 40))
    np.save(tmp_path / "x.npy", array)
    zarr.create_array(str(tmp_path / "x.zarr"), data=array, chunks=(100, 40), compressors=None)
    asked: list[str] = []

    class Breaking(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None: ...

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = tmp_path / self.path[1:]
            if not path.is_file():
                return self.send_error(404)
            body = path.read_bytes()
            first, last = 0, len(body) - 1
            if part := re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
                first, last = int(part[1]), min(int(part[2]), last)
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(body)}")
            else:
                self.send_response(200)
                self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(last + 1 - first))
            self.end_headers()
            if self.command == "GET":
                asked.append(self.path)
                self.close_connection = breaks = len(asked) % 2 == 1
                self.wfile.write(body[first : (first + last) // 2 if breaks else last + 1])
            return None

    with _served(Breaking) as url:
        summary, _ = SVD.compute(SVD.validate({"path": f"{url}/{name}", "k": 4}), processes)
    np.testing.assert_allclose(summary["singular_values"], np.linalg.svd(array, compute_uv=False)[:4], rtol=1e-6)
    assert len(asked) > 4


def test_a_large_file_is_not_sent_to_who_asks_what_there_is(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    np.save(tmp_path / "x.npy", np.ones((3_000_000, 1)))
    sent: list[str | None] = []

    class Counting(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def copyfile(self, source: Any, outputfile: Any) -> None:
            with contextlib.suppress(OSError):
                super().copyfile(source, outputfile)
                sent.append(self.headers["Range"])

    with _served(functools.partial(Counting, directory=tmp_path)) as url:
        place = places.full(f"{url}/x.npy")
        assert (place.kind(), place.size()) == ("file", (tmp_path / "x.npy").stat().st_size)
        assert sent == []
        assert len(place.read()) == place.size()
        assert sent == [None]


def test_a_server_that_sends_files_as_a_whole_only_is_named(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    np.savez(tmp_path / "x.npz", a=np.random.default_rng(0).normal(size=(3000, 1000)))
    with _odd(tmp_path) as url, pytest.raises(BadInputError, match=r"can't send parts of it\. Download"):
        contents.look(f"{url}/x.npz")


def test_a_server_that_asks_for_a_token_gets_that_of_a_variable(
    tmp_path: Path, quick_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("aiohttp")

    class Guarded(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def send_head(self) -> Any:
            if self.headers["Authorization"] == "Bearer secret":
                return super().send_head()
            self.send_error(401)
            return None

    np.save(tmp_path / "x.npy", TALL)
    zarr.create_array(str(tmp_path / "x.zarr"), data=TALL, chunks=(450, 12))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = TALL
    counts = np.random.default_rng(0).integers(0, 3, (40, 12)).astype("int8")
    zarr.create_array(str(tmp_path / "g.zarr"), data=counts, chunks=(20, 12))
    monkeypatch.setenv("MY_TOKEN", "secret")
    monkeypatch.delenv("NO_TOKEN", raising=False)
    with _served(functools.partial(Guarded, directory=tmp_path)) as url:
        for added, status, told in (
            ((), 2, "asks who you are. Put a token into a variable of the environment.*as token_variable"),
            (("--token-variable", "NO_TOKEN"), 2, "the environment has no NO_TOKEN, which token_variable names"),
            (("--token-variable", "MY_TOKEN"), 0, f"{len(TALL)} × "),
        ):
            code, out, err = commands.run("look", f"{url}/x.npy", *added)
            assert code == status, err
            assert re.search(told, " ".join((out + err).split()))
        for name in ("x.npy", "x.zarr", "x.h5"):
            parameters = SVD.validate({"path": f"{url}/{name}", "token_variable": "MY_TOKEN"})
            assert "secret" not in f"{parameters.resolved} {SVD.cell(parameters)}"
            summary, check = SVD.compute(parameters, quick_client)
            np.testing.assert_allclose(summary["singular_values"], VALUES, rtol=1e-12)
            assert check.passed, check.what
            cell: dict[str, Any] = {}
            exec(SVD.cell(parameters), cell)
            np.testing.assert_allclose(cell["s"], VALUES, rtol=1e-12)
        genotypes = open_genotypes(f"{url}/g.zarr", storage_options={"token_variable": "MY_TOKEN"})
        np.testing.assert_array_equal(genotypes.counts().compute(), counts)
        assert b"secret" not in cloudpickle.dumps(dict(genotypes.packed.__dask_graph__()))
        with pytest.raises(BadParameterError, match="token_variable of svd_of_file is for http://, https://, abfs://"):
            SVD.validate({"path": str(tmp_path / "x.npy"), "token_variable": "MY_TOKEN"})
        with pytest.raises(BadParameterError, match="the name of a variable, such as EARTHDATA_TOKEN"):
            SVD.validate({"path": f"{url}/x.npy", "token_variable": "Bearer secret"})
    # Of files that are read together one may be elsewhere.
    elsewhere = with_token("https://b.org/x", {"token_variable": "MY_TOKEN", "token_server": "a.org"})
    assert "secret" not in str(elsewhere)
    with pytest.raises(BadInputError, match=r"token_variable is for http://.*, not for s3://data/x: leave it out"):
        with_token("s3://data/x", {"token_variable": "MY_TOKEN"})
    assert with_token("hf://datasets/x", {"token_variable": "MY_TOKEN"}) == {"token": "secret"}


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("k", [None, 3])
def test_values_that_are_not_finite_are_named(center: bool, k: int | None, tmp_path: Path, quick_client: Any) -> None:
    x = TALL.copy()
    x[417, 3] = np.nan
    np.savez(tmp_path / "x.npz", first=x)
    parameters = SVD.validate({"path": str(tmp_path / "x.npz"), "center": center} | ({"k": k} if k else {}))
    with pytest.raises(ValueError, match="are missing") as failed:
        SVD.compute(parameters, quick_client)
    assert str(failed.value) == (
        f"{tmp_path}/x.npz (first) has values that are missing: 1 of the 7,200 in rows 0 to 599 and "
        "columns 0 to 11, the first at row 417, column 3: nan. Replace them, or choose missing=mean, rows or columns."
    )


def test_that_other_blocks_may_have_more_missing_values_is_said(tmp_path: Path) -> None:
    x = TALL.copy()
    x[[417, 500], 3] = np.nan
    zarr.create_array(str(tmp_path / "x.zarr"), data=x, chunks=(450, 12))
    with pytest.raises(ValueError, match=r"nan\. Other blocks, which were not looked at, may have more\. Replace"):
        SVD.compute(SVD.validate({"path": str(tmp_path / "x.zarr"), "chunks": [450, 12]}))


@pytest.mark.parametrize("missing", ["refuse", "rows", "mean"])
def test_infinity_is_refused_and_never_taken_as_missing(tmp_path: Path, missing: str) -> None:
    x = TALL.copy()
    x[2, 1] = -np.inf
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(ValueError, match=r"infinite, which is not missing: 1 of .* column 1: -inf\. Replace them\.$"):
        SVD.compute(SVD.validate({"path": str(tmp_path / "x.npy"), "missing": missing}))


def _save(folder: Path, name: str, x: Any) -> str:
    np.save(folder / name, x)
    return str(folder / name)


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of invalid files."""
    folder = tmp_path_factory.mktemp("bad")
    _save(folder, "good.npy", TALL)
    _save(folder, "0d.npy", np.float64(3))
    _save(folder, "1d.npy", np.arange(5.0))
    _save(folder, "3d.npy", np.zeros((4, 5, 3)))
    _save(folder, "complex.npy", np.zeros((4, 5), complex))
    np.save(folder / "object.npy", np.array([[1, "a"]], dtype=object), allow_pickle=True)
    _save(folder, "text.npy", np.array([["a", "b"]]))
    _save(folder, "dates.npy", np.zeros((3, 3), "M8[s]"))
    _save(folder, "records.npy", np.zeros((3, 3), [("a", "f8"), ("b", "i4")]))
    _save(folder, "empty.npy", np.zeros((0, 5)))
    _save(folder, "no-columns.npy", np.zeros((5, 0)))
    whole = (folder / "good.npy").read_bytes()
    (folder / "cut.npy").write_bytes(whole[:-100])
    (folder / "cut-header.npy").write_bytes(whole[:40])
    (folder / "only-magic.npy").write_bytes(whole[:6])
    (folder / "nothing.npy").touch()
    (folder / "broken.npy").write_bytes(b"no NumPy file")
    (folder / "table.txt").write_text("a,b\n1,2\n")
    np.savez(folder / "two.npz", x=TALL, y=TALL)
    np.savez(folder / "none.npz")
    (folder / "cut.npz").write_bytes((folder / "two.npz").read_bytes()[:-50])
    with h5py.File(folder / "two.h5", "w") as file:
        file["g/x"], file["y"] = TALL, TALL
        file["words"] = ["a", "b"]
        file["nothing"] = h5py.Empty("f8")
    with h5py.File(folder / "none.h5", "w") as file:
        file.create_group("g")
    (folder / "cut.h5").write_bytes((folder / "two.h5").read_bytes()[:600])
    _zarr_group(folder, zarr_format=3)
    zarr.create_array(folder / "3d.zarr", shape=(2, 3, 4), chunks=(2, 3, 4), dtype="f8")
    zarr.create_array(folder / "plain.zarr", shape=(20, 4), chunks=(20, 4), dtype="f8")
    zarr.open_group(folder / "empty.zarr", mode="w")
    (folder / "broken.zarr").mkdir()
    (folder / "broken.zarr" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "array"')
    (folder / "folder").mkdir()
    _save(folder, "wide.npy", np.lib.stride_tricks.as_strided(np.zeros(1), (1, 1)))
    array = np.lib.format.open_memmap(folder / "huge.npy", mode="w+", dtype="u1", shape=(6000, 6000))
    del array
    return folder


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({}, "path", "svd_of_file needs path. Give the path or URL"),
    ({"path": ""}, "path", "path of svd_of_file is ''. Give the path or URL"),
    ({"path": 3}, "path", "path of svd_of_file is 3. Give the path or URL"),
    ({"path": None}, "path", "path of svd_of_file is None. Give the path or URL"),
    ({"path": "gone.npy"}, "path", "gone.npy isn't there. Expected .npy, .npz, HDF5, NetCDF, Zarr"),
    ({"path": "folder/gone.npy"}, "path", "folder/gone.npy isn't there."),
    ({"path": "good.npy/x"}, "path", "can't be read"),
    ({"path": "a\0b"}, "path", "can't be read"),
    ({"path": "nothing.npy"}, "path", "nothing.npy is empty. Give the path of .npy"),
    ({"path": "broken.npy"}, "path", "broken.npy begins with b'no NumPy', as no .npy file does. It is damaged"),
    ({"path": "table.txt"}, "path", "table.txt is in no format that can be read here. Give the path of .npy"),
    ({"path": "folder"}, "path", "There is no array in "),
    ({"path": "0d.npy"}, "path", "has 0 dimensions. Give an array with 2"),
    ({"path": "1d.npy"}, "path", "has 1 dimension (5). Give an array with 2"),
    (
        {"path": "3d.npy"},
        "path",
        "has 3 dimensions (4 × 5 × 3). Give an array with 2, rows and columns. Save it as 4 × 15",
    ),
    ({"path": "3d.zarr"}, "path", "has 3 dimensions (2 × 3 × 4)"),
    ({"path": "complex.npy"}, "path", "holds complex numbers (complex128). Give an array of real numbers"),
    ({"path": "object.npy"}, "path", "holds Python objects (object)"),
    ({"path": "text.npy"}, "path", "holds text (<U1)"),
    ({"path": "dates.npy"}, "path", "holds dates (datetime64[s])"),
    ({"path": "records.npy"}, "path", "holds records ("),
    ({"path": "empty.npy"}, "path", "is empty (0 × 5)"),
    ({"path": "no-columns.npy"}, "path", "is empty (5 × 0)"),
    ({"path": "cut.npy"}, "path", "is cut short: an array of 600 × 12 float64 needs 57728 bytes and it has 57628."),
    ({"path": "cut-header.npy"}, "path", "can't be read"),
    ({"path": "only-magic.npy"}, "path", "can't be read"),
    ({"path": "cut.npz"}, "path", "can't be read"),
    ({"path": "cut.h5"}, "path", "can't be read"),
    ({"path": "broken.zarr"}, "path", "can't be read"),
    ({"path": "none.npz"}, "path", "There is no array in "),
    ({"path": "none.h5"}, "path", "There is no array in "),
    ({"path": "empty.zarr"}, "path", "There is no array in "),
    ({"path": "good.npy", "array": "x"}, "array", "holds one array, which has no name; array was given as 'x'."),
    ({"path": "plain.zarr", "array": "x"}, "array", "holds one array, which has no name; array was given as 'x'."),
    ({"path": "two.npz"}, "array", "holds 2 arrays. Name one of them as array: x, y."),
    ({"path": "two.npz", "array": "z"}, "array", "There is no array 'z' in"),
    ({"path": "two.h5"}, "array", "holds 4 arrays. Name one of them as array: g/x, nothing, words, y."),
    ({"path": "two.h5", "array": "g"}, "array", "There is no array 'g' in"),
    ({"path": "two.h5", "array": "words"}, "path", "two.h5 (words) holds Python objects"),
    ({"path": "two.h5", "array": "nothing"}, "path", "two.h5 (nothing) holds no value (h5py.Empty)"),
    ({"path": "g.zarr"}, "array", "holds 2 arrays. Name one of them as array: b, one/x."),
    ({"path": "g.zarr", "array": "two"}, "array", "There is no array 'two' in"),
    ({"path": "g.zarr", "array": 5}, "array", "array of svd_of_file is 5. Give the name of an array in the file."),
    ({"path": "g.zarr/zarr.json"}, "path", "belongs to a Zarr array. Give the folder that it is in."),
    ({"path": "huge.npy"}, "k", "is too wide for a full SVD: one worker would decompose a factor of 6,000 × 6,000"),
    ({"path": "good.npy", "k": 13}, "k", "k of svd_of_file is 13. Give a whole number from 1 to 12"),
    ({"path": "good.npy", "k": 0}, "k", "k of svd_of_file is 0. Give a whole number"),
    ({"path": "good.npy", "k": "few"}, "k", "k of svd_of_file is 'few'. Give a whole number"),
    ({"path": "good.npy", "center": "maybe"}, "center", "center of svd_of_file is 'maybe'. Give true or false."),
    ({"path": "good.npy", "chunks": 601}, "chunks", "chunks of svd_of_file is 601. Give at most 600, 12"),
    ({"path": "good.npy", "chunks": [100, 6]}, "chunks", "blocks that hold all 12 columns, such as 100, 12"),
    ({"path": "good.npy", "chunks": "tiny"}, "chunks", "chunks of svd_of_file is 'tiny'. Give 'auto'"),
    ({"path": "good.npy", "n_power_iter": 99}, "n_power_iter", "n_power_iter of svd_of_file is 99."),
    ({"path": "good.npy", "seed": -1}, "seed", "seed of svd_of_file is -1."),
    ({"path": "good.npy", "shape": [3, 4]}, "shape", "svd_of_file has no parameter 'shape'."),
    ({"path": "good.npy", "format": "npy"}, "format", "svd_of_file has no parameter 'format'."),
    ({"path": "nowhere://x.npy"}, "path", "can't be read"),
    ({"path": "memory://gone/x.npy"}, "path", "memory://gone/x.npy isn't there. Each process has a memory: of its own"),
    ({"path": "http://127.0.0.1:9/x.npy"}, "path", "can't be read"),
]


@pytest.mark.parametrize(("raw", "parameter", "sentence"), BAD, ids=[f"{raw!r:.60}" for raw, _, _ in BAD])
def test_a_bad_file_gets_one_sentence(
    raw: dict[str, Any], parameter: str, sentence: str, bad: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bad)
    with pytest.raises(BadInputError) as refused:
        SVD.validate(raw)
    assert sentence in str(refused.value)
    assert parameter in str(refused.value)
    assert "svd_of_file" in str(refused.value)
    assert refused.value.parameter == parameter  # type: ignore[attr-defined]
    assert "\n" not in str(refused.value)
    assert str(refused.value).endswith((".", ")."))


def test_a_file_without_permission_says_so(bad: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.npy"
    path.write_bytes((bad / "good.npy").read_bytes())
    path.chmod(0)
    try:
        path.open("rb").close()
    except PermissionError:
        with pytest.raises(BadInputError, match="you have no permission"):
            SVD.validate({"path": str(path)})
    else:
        pytest.skip("this user may read everything")


@pytest.mark.parametrize(("scheme", "package"), [("gs", "gcsfs"), ("abfs", "adlfs")])
def test_a_url_whose_package_is_missing_says_what_to_install(scheme: str, package: str) -> None:
    import importlib.util

    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    with pytest.raises(MissingError, match=f"Try: pip install .*{package}"):
        SVD.validate({"path": f"{scheme}://bucket/x.npy"})


def test_a_wide_array_needs_k_and_works_with_it(bad: Path) -> None:
    parameters = SVD.validate({"path": str(bad / "huge.npy"), "k": 3}, threads=2)
    assert parameters.resolved["chunks"][1] <= 5000
    assert SVD.needs(parameters).input_bytes == 6000 * 6000 * 8


@pytest.mark.parametrize("name", ["npy", "packed npz", "chunked hdf5", "zarr 3", "zarr in a zip"])
def test_a_cell_gives_the_same(name: str, tmp_path: Path, processes: Any) -> None:
    parameters = SVD.validate(_given(FORMATS[name](tmp_path)) | {"chunks": 200, "center": True, "method": "dask"})
    expected, _ = SVD.compute(parameters, processes)
    code = SVD.cell(parameters)
    found: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, "cell", "exec"), found)
    np.testing.assert_allclose(found["s"].compute(), expected["singular_values"], rtol=1e-12)


def _to_zarr(path: Path, x: np.ndarray[Any, Any], chunks: tuple[int, int]) -> str:
    zarr.create_array(path, shape=x.shape, chunks=chunks, dtype=x.dtype)[:] = x
    return str(path)


def test_digits_from_zarr_have_the_known_principal_components(tmp_path: Path, quick_client: Any) -> None:
    from sklearn.datasets import load_digits

    digits = load_digits().data
    assert digits.shape == (1797, 64)
    path = _to_zarr(tmp_path / "digits.zarr", digits, (250, 64))
    summary, check = SVD.compute(SVD.validate({"path": path, "center": "true"}, threads=2), quick_client)
    np.testing.assert_allclose(summary["singular_values"][:3], [567.0066, 542.2519, 504.6306], atol=5e-5)
    expected = np.linalg.svd(digits - digits.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(summary["singular_values"], expected, rtol=1e-12, atol=1e-9)
    assert check.passed, check.what
    first, check = SVD.compute(
        SVD.validate({"path": path, "center": True, "k": 3, "n_power_iter": 6}, threads=2), quick_client
    )
    np.testing.assert_allclose(first["singular_values"], expected[:3], rtol=1e-4)
    assert check.passed, check.what


def test_the_retina_photograph_from_zarr_has_the_values_numpy_finds(tmp_path: Path, quick_client: Any) -> None:
    import skimage
    from skimage.io import imread

    # skimage.data.retina() reads this same file after copying it to a cache; it comes with the package.
    retina = imread(Path(skimage.__file__).parent / "data" / "retina.jpg")
    assert retina.shape == (1411, 1411, 3)
    matrix = retina.reshape(1411, 4233)
    path = _to_zarr(tmp_path / "retina.zarr", matrix, (256, 512))
    parameters = SVD.validate({"path": path, "k": 10, "n_power_iter": 3}, threads=2)
    assert "Stored in blocks of 256 × 512" in parameters.notes[0]
    summary, check = SVD.compute(parameters, quick_client)
    values = np.sqrt(np.linalg.eigvalsh(matrix.astype("f8") @ matrix.T.astype("f8"))[::-1])
    np.testing.assert_allclose(summary["singular_values"], values[:10], rtol=1e-3)
    assert check.passed, check.what


def test_what_travels_to_a_gpu_is_as_it_is_stored(tmp_path, monkeypatch):
    from workbench.linalg import backend
    from workbench.workloads.svd_of_file import _matrix_of_file

    sent = []
    onto = backend.CupyOnWorkers.to_backend.__func__
    recorded = classmethod(lambda cls, data, **more: sent.append(data.dtype.name) or onto(cls, data, **more))
    monkeypatch.setattr(backend.CupyOnWorkers, "to_backend", recorded)
    for kind, order in (("uint8", "="), ("float32", ">"), ("int16", "<")):
        stored = np.arange(60, dtype=np.dtype(kind).newbyteorder(order)).reshape(12, 5)
        np.save(tmp_path / "x.npy", stored)
        checked = template("svd_of_file").validate({"path": str(tmp_path / "x.npy")}, on_gpu=True)
        with backend.on_workers():
            x = _matrix_of_file(checked.resolved)
        assert sent.pop() == kind
        assert x.dtype == ("float32" if kind == "float32" else "float64")


def _fields(dtype: str = "float64") -> xr.Dataset:
    values = np.random.default_rng(1).normal(size=(40, 3, 5, 6)).astype(dtype)
    coords = {"time": np.arange(1990, 2030), "level": [200, 500, 850]}
    return xr.Dataset({"u": (("time", "level", "y", "x"), values, {}), "v": (("y", "x"), values[0, 0])}, coords)


@pytest.mark.parametrize("kind", ["NetCDF 3", "NetCDF 4", "Zarr"])
def test_a_variable_of_many_dimensions_becomes_rows_and_columns(tmp_path: Path, kind: str) -> None:
    path, fields = str(tmp_path / "fields"), _fields()
    if kind == "Zarr":
        fields.chunk(time=7, y=2).to_zarr(path, zarr_format=3, consolidated=False)
    else:
        fields.to_netcdf(path, engine={"NetCDF 3": "scipy", "NetCDF 4": "h5netcdf"}[kind])  # type: ignore[call-overload]
    expected = fields.u.sel(level=500, time=slice(1995, 2014)).values.reshape(20, 30)

    given = {"path": path, "array": "u", "select": "level=500, time=1995:2014", "rows": "time"}
    parameters = SVD.validate({**given, "chunks": [7, 13], "k": 4})
    answer, check = SVD.compute(parameters)

    np.testing.assert_allclose(answer["singular_values"], np.linalg.svd(expected, compute_uv=False)[:4], rtol=1e-3)
    assert check.passed, check.what
    assert "Rows are time, columns y × x." in check.what
    # Named or not, rows are the times and columns all others.
    assert SVD.validate({"path": path, "array": "u", "k": 4}).resolved["shape"] == [40, 90]


@pytest.mark.parametrize("missing", ["mean", "rows", "columns"])
def test_missing_values_are_filled_or_their_rows_or_columns_left_out(tmp_path: Path, missing: str) -> None:
    x = np.random.default_rng(2).normal(size=(50, 8))
    x[[3, 17], [2, 5]] = np.nan
    np.save(tmp_path / "gaps.npy", x)
    without = {
        "mean": np.where(np.isnan(x), np.nanmean(x, axis=0), x),
        "rows": np.delete(x, [3, 17], axis=0),
        "columns": np.delete(x, [2, 5], axis=1),
    }[missing]

    parameters = SVD.validate({"path": str(tmp_path / "gaps.npy"), "missing": missing, "chunks": [20, 8]})
    answer, check = SVD.compute(parameters)
    arrays = SVD.arrays(SVD.build(parameters))

    np.testing.assert_allclose(answer["singular_values"], np.linalg.svd(without, compute_uv=False), rtol=1e-10)
    assert check.passed, check.what
    if missing != "mean":
        assert f"2 of {50 if missing == 'rows' else 8} {missing} hold missing values and were left out." in check.what
        kept = {"rows": arrays["u"].coords.get("row"), "columns": arrays["v"].coords.get("column")}[missing]
        assert kept is not None
        assert set(range(50 if missing == "rows" else 8)) - set(kept.values.tolist()) == (
            {3, 17} if missing == "rows" else {2, 5}
        )


def test_rows_that_are_no_dimensions_of_a_variable_are_told(tmp_path: Path) -> None:
    _fields().to_netcdf(tmp_path / "fields.nc", engine="h5netcdf")

    for rows in ("month", "time, level, y, x"):
        with pytest.raises(BadInputError, match=r"Name some of the dimensions of .* but not all: time, level, y, x"):
            SVD.validate({"path": str(tmp_path / "fields.nc"), "array": "u", "rows": rows, "k": 2})


CUBE = np.random.default_rng(6).normal(size=(6, 7, 8))


def _cube(folder: Path, kind: str) -> str:
    path = str(folder / kind.replace(" ", "."))
    if kind == "h5":
        with h5py.File(path, "w") as file:
            file["x"], file["soft"] = CUBE, h5py.SoftLink("/x")
    else:
        zarr.create_array(path, shape=CUBE.shape, dtype="f8", zarr_format=int(kind[-1]))[:] = CUBE  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("kind", ["zarr 2", "zarr 3", "h5"])
@pytest.mark.parametrize(("rows", "order"), [("0", (0, 1, 2)), ("1", (1, 0, 2))])
def test_rows_of_an_array_without_names_are_given_by_number(
    tmp_path: Path, kind: str, rows: str, order: tuple[int, ...]
) -> None:
    path = _cube(tmp_path, kind)
    answer, check = SVD.compute(SVD.validate({"path": path, "k": 2, "rows": rows}))
    x = CUBE.transpose(order).reshape(CUBE.shape[order[0]], -1)
    np.testing.assert_allclose(answer["singular_values"], np.linalg.svd(x, compute_uv=False)[:2], rtol=1e-3)
    assert check is not None
    assert check.passed, check.what
    with pytest.raises(BadInputError, match=r"Name some of the dimensions of .* but not all: 0, 1, 2"):
        SVD.validate({"path": path, "array": "x" if kind == "h5" else None, "k": 2, "rows": "time"})


def test_a_soft_link_and_a_virtual_dataset_are_read_with_what_they_lead_to(tmp_path: Path) -> None:
    path = _cube(tmp_path, "h5")
    layout = h5py.VirtualLayout((12, 7, 8), "f8")
    layout[:6] = layout[6:] = h5py.VirtualSource("h5", "x", CUBE.shape)
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_virtual_dataset("v", layout)
    largest = np.linalg.svd(CUBE.reshape(6, -1), compute_uv=False)[0]
    for given, times in (({"path": path, "array": "soft"}, 1), ({"path": str(tmp_path / "v.h5")}, 2)):
        answer, _ = SVD.compute(SVD.validate({**given, "k": 1, "rows": "0"}))
        np.testing.assert_allclose(answer["singular_values"], largest * np.sqrt(times), rtol=1e-3)
    Path(path).unlink()
    with pytest.raises(BadInputError, match=r"v\.h5 \(v\) is made of other files, of which h5 isn't on this machine"):
        SVD.validate({"path": str(tmp_path / "v.h5"), "k": 1, "rows": "0"})


def test_threads_read_headers_of_npy_one_after_the_other(tmp_path: Path, monkeypatch: Any) -> None:
    array, parse, inside, most = np.arange(12.0).reshape(4, 3), ast.literal_eval, [0], [0]
    np.save(tmp_path / "x.npy", array)
    np.savez(tmp_path / "x.npz", x=array)

    def counted(text: str) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        sleep(0.01)
        found = parse(text)
        inside[0] -= 1
        return found

    monkeypatch.setattr(ast, "literal_eval", counted)
    path = str(tmp_path / "x.npy")
    readers: list[Any] = [functools.partial(read_npy, path, None, {})]
    readers += [functools.partial(read_npy_url, str(tmp_path / "x.npy"), None, {})]
    readers += [functools.partial(read_npz, str(tmp_path / "x.npz"), "x", {})]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda read: read(slice(1, 3), slice(0, 2)), readers * 4))

    np.testing.assert_array_equal(found, [[[3, 4], [6, 7]]] * 12)
    assert most == [1]
