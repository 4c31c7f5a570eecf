"""Runs keep the arrays of their answers, save them where they are asked to, and say what lies where."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import dask.config
import numpy as np
import pytest
import xarray
import zarr

from tests.test_runs import start_cluster
from tests.waiting import until
from workbench.cli import main
from workbench.clusters.connect import connect
from workbench.errors import BadInputError, NotFoundError
from workbench.jobs import folders, processes, records
from workbench.runs import answer_storage, answers, array_budget, background_saves, store
from workbench.runs.answers import FILE, Answers
from workbench.runs.run import Run
from workbench.runs.submit import finish, submit
from workbench.session import Session
from workbench.storage.targets import target
from workbench.storage.variables import combined, dataset
from workbench.storage.writing import write
from workbench.workloads import template
from workbench.workloads.svd import random_matrix

X = np.arange(20_000.0).reshape(1000, 20)
SMALL = {"shape": [2000, 20], "chunks": [500, 20]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Provide a cluster of processes with its own data folder."""
    with dask.config.set({"workbench.data-folder": str(tmp_path_factory.mktemp("data"))}):
        yield start_cluster("keeping-otter", n_workers=2)
        Session().stop("keeping-otter")


@pytest.fixture
def run(data_folder: Path) -> Run:
    return new("mine-1")


def new(run_id: str, **fields: Any) -> Run:
    return store.create(Run(id=run_id, workload="mine", cluster="otter", status="running", **fields))


def matrix() -> xarray.Dataset:
    return dataset({"x": (("row", "column"), da.from_array(X, chunks=(300, 20))), "n": ("count", np.ones(3))})


def left(run: Run, client: Any, path: Path | None = None) -> Run:
    """`run` as it is when its arrays were left."""
    found = answer_storage.leave(run.id, matrix(), None if path is None else target(path), client)
    status = "failed" if found.error else "done"
    return store.update(run.id, answers=found.answers, notes=found.notes, status=status, error=str(found.error))


def test_the_factors_of_an_svd_are_kept_saved_and_rebuild_the_array(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.zarr"
    run = finish(submit("tall_skinny_svd", {**SMALL, "save": str(path)}, cluster).id, timeout=60)
    assert run.status == "done", run.error
    x = random_matrix((2000, 20), (500, 20), "float64", 0).compute()
    saved = zarr.open(path)
    np.testing.assert_allclose((saved["u"][...] * saved["s"][...]) @ saved["v"][...], x, atol=1e-12)
    u, s, v = (run.arrays[name] for name in "usv")
    assert isinstance(u, np.ndarray)
    np.testing.assert_allclose((u * s) @ v, x, atol=1e-12)
    with monkeypatch.context() as patched:
        patched.setattr(answers, "_IN_MEMORY", 8 * 2000 * 20)
        large = run.arrays
        assert isinstance(large["u"], da.Array)
        np.testing.assert_allclose(large["u"].compute(scheduler="threads"), u)
        assert repr(large) == "\n".join(
            (
                f"Arrays of {run.id}",
                f"u: 2,000 × 20 float64, 312 kiB: {', '.join(f'{each:.6g}' for each in u[0, :3])}, …",
                f"s: 20 float64, 160 B: {', '.join(f'{each:.6g}' for each in s[:3])}, …",
                f"v: 20 × 20 float64, 3.12 kiB: {', '.join(f'{each:.6g}' for each in v[0, :3])}, …",
            )
        )
    assert run.answers is not None
    assert (run.answers.kept, run.answers.saved) == (("u", "s", "v"), str(path))
    assert run.answers.arrays["u"].dims == ("row", "component")
    assert f"saved to {path} and kept with the run" in run.answers.sentence
    assert run.dataset["u"].dims == ("row", "component")
    assert run.dataset.attrs["workload"] == "tall_skinny_svd"
    assert run.check is not None
    assert f"{run.check.what} {run.check.detail}" == run.dataset.attrs["check"]
    assert [each.name for each in tmp_path.iterdir()] == ["out.zarr"]


def test_a_path_that_is_taken_is_refused_before_the_run_begins(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "out.npz").write_text("somebody's")
    before = len(store.select(limit=None))
    with pytest.raises(BadInputError, match="is there already"):
        submit("tall_skinny_svd", {**SMALL, "save": str(tmp_path / "out.npz")}, cluster)
    assert len(store.select(limit=None)) == before
    assert (tmp_path / "out.npz").read_text() == "somebody's"


@pytest.mark.parametrize("stage", [".a.zarr.*.part/u/c/*", ".a.npz.*.part/__file"])
def test_a_run_killed_while_it_saves_leaves_nothing_and_the_next_clears_away(
    cluster: Any, tmp_path: Path, stage: str
) -> None:
    path = tmp_path / stage.partition(".*")[0][1:]
    asked = {"shape": [1_200_000, 20], "chunks": [300_000, 20], "save": str(path)}
    run = submit("tall_skinny_svd", asked, cluster)
    until(lambda: list(tmp_path.glob(stage)))
    pid = store.get(run.id).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert finish(run.id, timeout=20).status == "lost"
    assert (path.exists(), len(list(tmp_path.iterdir()))) == (False, 1)
    with connect(cluster.name) as client:
        # A worker ends the block that it writes, also where the scheduler has forgotten that.
        until(lambda: not any(client.run(lambda dask_worker: len(dask_worker.state.tasks)).values()))
    assert finish(submit("tall_skinny_svd", {**SMALL, "save": str(path)}, cluster).id, timeout=60).status == "done"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_store_that_a_killed_process_had_set_aside_is_put_back_by_the_next_that_saves(
    run: Run, quick_client: Any, tmp_path: Path
) -> None:
    (folder := tmp_path / "here").mkdir()
    path = folder / "out.zarr"
    run = left(run, quick_client, path)
    # It was killed after the first of two renames: the new store isn't at its place yet.
    path.rename(folder / ".out.zarr.mine-1.old")
    (folder / ".out.zarr.mine-1.part").mkdir()
    other = left(new("mine-2"), quick_client, path)
    assert "was created meanwhile" in str(other.error)
    assert [each.name for each in folder.iterdir()] == ["out.zarr"]
    np.testing.assert_array_equal(run.arrays["x"], X)
    # Once both renames are done, what was set aside is of no use.
    (folder / ".out.zarr.mine-1.old").mkdir()
    answer_storage.sweep(target(path, replace=True))
    assert [each.name for each in folder.iterdir()] == ["out.zarr"]


def test_a_comparison_saves_nothing_under_one_name(tmp_path: Path) -> None:
    from workbench.runs.comparing.compare import plan_comparison, read_request

    given = {"workload": "tall_skinny_svd", "parameters": {"save": str(tmp_path / "out.npz")}, "on": ["cpu"]}
    with pytest.raises(BadInputError, match="workbench save RUN FILE"):
        plan_comparison(read_request(given), Session().hardware(), ())


def test_workers_write_their_blocks_and_what_they_cannot_reach_comes_through_one_process(
    run: Run, quick_client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = left(run, quick_client, tmp_path / "a.zarr")
    monkeypatch.setattr(answer_storage._Workers, "_lacking", lambda *_: ("node-2", "it doesn't have that folder"))
    here = left(new("mine-2"), quick_client, tmp_path / "b.zarr")
    assert (there.notes, len(here.notes)) == ((), 1)
    assert f"node-2 can't write to {tmp_path}" in here.notes[0]
    for name in ("a.zarr", "b.zarr"):
        np.testing.assert_array_equal(zarr.open(tmp_path / name)["x"][...], X)


@pytest.mark.parametrize("name", ["out.zarr", "out.nc", "out.npz"])
def test_what_was_only_saved_is_read_from_there(name: str, run: Run, quick_client: Any, tmp_path: Path) -> None:
    with dask.config.set({"workbench.answers.each": "1kiB"}):
        run = left(run, quick_client, tmp_path / name)
    assert run.answers is not None
    assert run.answers.kept == ("n",)
    np.testing.assert_array_equal(run.arrays["x"], X)
    with run.dataset as found:
        assert isinstance(found, xarray.Dataset)
        np.testing.assert_array_equal(found["x"].values, X)


@pytest.mark.parametrize("name", ["out.zarr", "out.nc", "out.npz", "x.npy"])
def test_what_replaced_the_arrays_of_a_run_is_never_shown_as_its_own(
    name: str, run: Run, quick_client: Any, tmp_path: Path
) -> None:
    path, answer = tmp_path / name, matrix()[["x"]] if name == "x.npy" else matrix()
    with dask.config.set({"workbench.answers.each": "1kiB"}):
        answers = answer_storage.leave(run.id, answer, target(path), quick_client).answers
        run = store.update(run.id, answers=answers, status="done")
        path.rename(tmp_path / "away")
        (tmp_path / "away").rename(path)
        np.testing.assert_array_equal(run.arrays["x"], X)
        answer_storage.leave(new("mine-2").id, answer + 1, target(path, replace=True), quick_client)
    who = "the run mine-2 replaced them" if name in ("out.zarr", "out.nc") else "something else is there"
    for ask in (lambda: run.arrays["x"], lambda: run.dataset):
        with pytest.raises(NotFoundError, match=f"mine-1 are no longer at {path}: {who}"):
            ask()
    # Of a record that tells nothing of the file, its shape does.
    shorter = answer.assign(x=(("row", "column"), X)).isel(row=slice(5))
    answer_storage.leave("mine-2", shorter, target(path, replace=True), quick_client)
    store.update(run.id, answers=answers.model_copy(update={"mark": ("mine-2",) if who.startswith("the") else ()}))
    with pytest.raises(NotFoundError, match="5 × 20 float64 where 1,000 × 20 float64 was saved"):
        store.get(run.id).arrays["x"]


def test_what_is_kept_with_a_run_is_there_whatever_becomes_of_what_was_saved(
    run: Run, quick_client: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with dask.config.set({"workbench.answers.each": "1kiB"}):
        run = left(run, quick_client, tmp_path / "out.zarr")
    zarr.open(tmp_path / "out.zarr")["n"][...] = 7
    np.testing.assert_array_equal(run.arrays["n"], np.ones(3))
    (tmp_path / "out.zarr").rename(tmp_path / "moved.zarr")
    np.testing.assert_array_equal(run.arrays["n"], np.ones(3))
    assert main(["save", run.id, str(tmp_path / "n.npy"), "--only", "n"]) == 0
    assert main(["save", run.id, str(tmp_path / "x.npy"), "--only", "x"]) == 2
    assert "no longer at" in capsys.readouterr().err
    with pytest.raises(NotFoundError, match=r"no longer at .*out.zarr\. Kept with the run: n\. Run it again"):
        assert run.dataset


def test_labels_along_dimensions_come_back_from_npz(run: Run, quick_client: Any, tmp_path: Path) -> None:
    days = np.arange("2001-01-01", "2001-01-21", dtype="datetime64[D]")
    coords = {"x": days, "y": [f"s{i}" for i in range(1000)], "season": ("y", np.arange(1000) % 4)}
    answer = dataset({"sst": (("y", "x"), da.from_array(X, chunks=(300, 20)))}, coords)
    with dask.config.set({"workbench.answers.each": "1kiB"}):
        answers = answer_storage.leave(run.id, answer, target(tmp_path / "a.npz"), quick_client).answers
    with store.update(run.id, answers=answers, status="done").dataset as found:
        np.testing.assert_array_equal(found["sst"], X)
        np.testing.assert_array_equal(found["x"], days)
        assert list(found["y"].values) == coords["y"]
    with np.load(tmp_path / "a.npz") as plain:
        np.testing.assert_array_equal(plain["x"], days)


@pytest.mark.parametrize("name", ["out.zarr", "out.nc", "out.npz", None])
@pytest.mark.parametrize("labels", [(None, None), (np.arange(3), np.arange(5)), (np.arange(3), np.arange(3) + 1)])
def test_dimensions_that_only_share_a_name_are_told_apart(
    name: str | None, labels: Any, run: Run, quick_client: Any, tmp_path: Path
) -> None:
    coords = [{} if each is None else {"x": each, "half": ("x", each / 2)} for each in labels]
    values = [np.zeros(3), np.ones(5 if labels[1] is None else len(labels[1]))]
    answer = combined({key: xarray.DataArray(*each, "x") for key, *each in zip("ab", values, coords, strict=True)})
    with dask.config.set({"workbench.answers.each": "1B" if name else "1MiB"}):
        answers = answer_storage.leave(run.id, answer, target(tmp_path / name) if name else None, quick_client).answers
    with store.update(run.id, answers=answers, status="done").dataset as found:
        np.testing.assert_array_equal(found["b"], values[1])
        assert (found["a"].dims, found["b"].dims) == (("x",), ("x_b",))
        if labels[1] is not None:
            np.testing.assert_array_equal(found["x_b"], labels[1])


@pytest.mark.parametrize("name", ["out.zarr", "out.nc", None])
def test_a_dataset_of_a_run_has_coordinates_along_several_dimensions(
    name: str | None, run: Run, quick_client: Any, tmp_path: Path
) -> None:
    lat = np.linspace(-80, 80, X.size).reshape(X.shape)
    months = xarray.date_range("2000-01", periods=1000, freq="MS", calendar="360_day", use_cftime=True)
    coords = {"lat": (("y", "x"), lat), "y": months, "season": (("y",), np.arange(1000) % 4), "height": ((), 2.0)}
    sst = (("y", "x"), da.from_array(X, chunks=(300, 20)), {"units": "K"})
    answer = dataset({"sst": sst, "at": ("y", months)}, coords)
    with dask.config.set({"workbench.answers.each": "1kiB" if name else "1MiB"}):
        answers = answer_storage.leave(run.id, answer, target(tmp_path / name) if name else None, quick_client).answers
    with store.update(run.id, answers=answers, status="done").dataset as found:
        np.testing.assert_array_equal(found["sst"], X)
        assert found["sst"].attrs["units"] == "K"
        np.testing.assert_array_equal(found["lat"], lat)
        write(found, target(tmp_path / "again.nc"), mark="again")
        with xarray.open_dataset(tmp_path / "again.nc", engine="h5netcdf") as again:
            assert list(found["y"].values) == list(again["at"].values) == list(months)
        assert {key: each.dims for key, each in found.coords.items()} == {
            "lat": ("y", "x"),
            "y": ("y",),
            "season": ("y",),
            "height": (),
        }


@pytest.mark.parametrize("name", ["out.zarr", "out.nc"])
def test_a_dataset_and_the_file_that_is_saved_have_the_certificate_of_the_run(
    name: str, run: Run, quick_client: Any, tmp_path: Path
) -> None:
    certificate = {"sentence": "s is right to 3 digits.", "bound": [1e-3, None], "passes": 2}
    run = store.update(run.id, result={"certificate": certificate}, resolved={"k": 2})
    run = left(run, quick_client, tmp_path / name)
    saved = xarray.open_dataset(tmp_path / name, engine="h5netcdf" if name == "out.nc" else "zarr")
    for attrs in (run.dataset.attrs, saved.attrs):
        assert (attrs["run"], attrs["certificate"]) == ("mine-1", certificate["sentence"])
        assert (json.loads(attrs["certificate_details"]), json.loads(attrs["parameters"])) == (certificate, {"k": 2})
    saved.close()
    assert run.dataset["x"].chunks is not None
    np.testing.assert_array_equal(run.dataset["x"], run.arrays["x"])


def test_what_is_too_large_is_not_kept_and_says_how_to_have_it(run: Run, quick_client: Any) -> None:
    with dask.config.set({"workbench.answers.each": "1kiB"}):
        run = left(run, quick_client)
    assert list(run.arrays) == ["n"]
    with pytest.raises(NotFoundError, match=r"x \(1,000 × 20 float64\).*n kept with the run.*save=PATH"):
        run.arrays["x"]
    with pytest.raises(NotFoundError, match=r"has no array 'y'\. It has x, n"):
        run.arrays["y"]


def test_an_answer_that_cannot_be_saved_is_still_kept(run: Run, quick_client: Any, tmp_path: Path) -> None:
    to = target(tmp_path / "out.npy")
    found = answer_storage.leave(run.id, matrix(), to, quick_client)
    assert "one array, and there are 2" in str(found.error)
    assert (found.answers.kept, found.answers.saved) == (("x", "n"), None)


def test_the_oldest_answers_are_named_before_they_are_dropped_and_a_star_keeps_them(
    data_folder: Path, quick_client: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with dask.config.set({"workbench.answers.all": "480kB"}):
        for number in range(3):
            left(new(f"mine-{number}", created=float(number)), quick_client)
        store.mark("mine-0", star=True)
        with dask.config.set({"workbench.answers.all": f"{int(array_budget.room().used * 1.05)}B"}):
            assert array_budget.room().next == ("mine-1",)
            assert main(["runs"]) == 0
            assert "Dropped next are those of mine-1; a star" in " ".join(capsys.readouterr().out.split())
            found = left(new("mine-3", created=3.0), quick_client)
    assert found.notes[0].startswith("To keep these arrays, those of mine-1")
    assert [run.id for run in store.select() if run.answers and run.answers.kept] == ["mine-3", "mine-0"]
    assert not (store.folder("mine-1") / FILE).exists()
    dropped = store.get("mine-1").answers
    assert dropped is not None
    assert "no longer kept" in dropped.sentence


def test_a_run_that_is_deleted_meanwhile_is_no_error_of_the_one_that_needs_room(
    data_folder: Path, quick_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dask.config.set({"workbench.answers.all": "480kB"}):
        for number in range(2):
            left(new(f"mine-{number}", created=float(number)), quick_client)
        listed = store.listed()
        store.delete("mine-0")
        monkeypatch.setattr(store, "listed", lambda: listed)
        assert array_budget.make_room(int(480e3)) == ("mine-1",)


def test_what_a_person_saved_is_never_dropped(run: Run, quick_client: Any, tmp_path: Path) -> None:
    run = left(run, quick_client, tmp_path / "out.zarr")
    array_budget.drop(run.id)
    np.testing.assert_array_equal(store.get(run.id).arrays["x"], X)


def test_an_answer_is_saved_for_other_programs_by_a_command(
    run: Run, quick_client: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left(run, quick_client)
    assert main(["save", "last", str(tmp_path / "out.nc")]) == 0
    with xarray.open_dataset(tmp_path / "out.nc", engine="h5netcdf") as found:
        np.testing.assert_array_equal(found["x"].values, X)
        assert found.attrs["run"] == "mine-1"
    assert main(["save", "last", str(tmp_path / "x"), "--as", "npy", "--only", "x"]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "x"), X)
    assert main(["save", "last", str(tmp_path / "out.nc")]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["save", "last", str(tmp_path / "y.npy"), "--only", "y"]) == 2
    assert "has no array 'y'. It has x, n" in capsys.readouterr().err
    new("mine-2", created=9.0)
    assert main(["save", "mine-2", str(tmp_path / "z.npz")]) == 2
    assert "has no arrays" in capsys.readouterr().err


def test_a_table_has_all_arrays_with_its_rows_in_whatever_order_they_are_named_or_is_refused(
    run: Run, quick_client: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = dataset({"norm": ("row", X[:, 0]), "x": (("row", "column"), X), "n": ("count", np.ones(3))})
    found = answer_storage.leave(run.id, arrays, None, quick_client)
    store.update(run.id, answers=found.answers, status="done")
    assert main(["save", "last", str(tmp_path / "x.tsv"), "--only", "norm", "--only", "x"]) == 0
    assert (tmp_path / "x.tsv").read_text().splitlines()[0].split("\t")[-2:] == ["column20", "norm"]
    assert main(["save", "last", str(tmp_path / "n.tsv"), "--only", "n", "--only", "x"]) == 2
    assert "x and n don't fit into one table: their rows differ" in capsys.readouterr().err


def test_a_record_of_arrays_reads_as_a_sentence() -> None:
    assert Answers(arrays={}).sentence.endswith("not kept: save=PATH saves them.")


def test_only_workloads_with_arrays_can_save() -> None:
    assert template("tall_skinny_svd").has_arrays
    assert not template("array_sum").has_arrays


def test_a_saving_whose_process_is_stopped_before_it_begins_is_not_lost(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asleep: dict[str, Any]
) -> None:
    monkeypatch.setattr(processes, "start_detached", lambda *_, **__: asleep["pid"])
    monkeypatch.setattr(answer_storage, "wanted", lambda *_, **__: (target(str(tmp_path / "x.npz")), ()))
    saving = background_saves.start(run, tmp_path / "x.npz")
    old = saving.model_copy(update={"created": saving.created - 2 * folders.START_GRACE})
    records.write(background_saves.folder(run.id), old)
    assert background_saves.get(run.id).status == "starting"


def test_a_saver_that_is_killed_before_it_begins_is_lost_at_once_and_leaves_no_part(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    monkeypatch.setattr(processes, "start_detached", lambda *_, **__: ended.pid)
    monkeypatch.setattr(answer_storage, "wanted", lambda *_, **__: (target(str(tmp_path / "x.npz")), ()))
    for pid in (ended.pid, 2**22):
        (tmp_path / f".x.npz.{run.id}+abc-{pid}-0-ffff.part").mkdir()
    background_saves.start(run, tmp_path / "x.npz")
    assert background_saves.get(run.id).status == "lost"
    assert [path.name for path in tmp_path.glob(".*.part")] == [f".x.npz.{run.id}+abc-{2**22}-0-ffff.part"]
