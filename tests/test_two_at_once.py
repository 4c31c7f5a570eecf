"""Two calls on one scheduler never get each other's answers: each answer is bitwise that of the call alone.

First without any clock: whatever two calls name alike has the same value. Then at once, as two people would meet.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray
from dask.base import tokenize
from dask.callbacks import Callback

from workbench import genotypes, linalg
from workbench.clusters import control
from workbench.clusters.connect import connect
from workbench.clusters.launch import launch
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.runs.submit import finish, submit
from workbench.workloads import template, templates

# Some calls are given too few passes; what is asked here is whether they agree, not whether they're accurate.
pytestmark = pytest.mark.filterwarnings("ignore::workbench.linalg.certificate.AccuracyWarning")

ROWS, COLUMNS, SITES, SAMPLES = 300, 90, 600, 70


def matrix() -> da.Array:
    """Return a matrix with a name that all calls share."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, COLUMNS)) * 0.8 ** np.arange(COLUMNS) + 0.3
    return da.from_array(x, chunks=(100, -1))


def counts() -> da.Array:
    """Genotypes as counts in Dask blocks, with a name that all calls share."""
    return genotypes.simulate(SITES, SAMPLES, missing=0.02, seed=1).counts().compute()  # type: ignore[no-any-return]


COUNTS = counts()
HALF = np.arange(SITES) % 2 == 0


def study(**opening: Any) -> genotypes.Genotypes:
    return genotypes.open_genotypes(da.from_array(COUNTS, chunks=(200, -1)), **opening)


# --- what can be called, and how two calls can differ in one argument --------------------------------------------


@dataclass(frozen=True)
class Subject:
    """A public function as a call with keywords, and one other value for each of its parameters.

    `same` names those that change nothing, or are no choice of the caller's, with the reason.
    """

    call: Callable[..., Any]
    given: Mapping[str, Any]
    others: Mapping[str, Any]
    same: Mapping[str, str]
    of: Callable[..., Any]


def values(found: Any) -> Any:
    """All numbers that a result consists of, computed."""
    if isinstance(found, linalg.PCA):
        names = ("components_", "singular_values_", "mean_", "explained_variance_", "noise_variance_")
        return [np.asarray(getattr(found, name)) for name in names]
    if isinstance(found, genotypes.GenotypePCA):
        return [found.scores, found.singular_values, found.kept, found.loadings.compute()]
    return dask.compute(found)


def _fitted(method: str, **given: Any) -> Any:
    scores = given.pop("scores", None)
    found = linalg.PCA(6, random_state=0, **given).fit(matrix())
    return getattr(found, method)(matrix() if scores is None else scores)


SCORES = np.ones((5, 6))
NO_CHOICE = {
    "a": "the input",
    "source": "the input",
    **dict.fromkeys(("autosomes_only", "leave_out"), "of sites with contigs; it is `kept` then"),
    "storage_options": "of files, which each call names anew",
}
SUBJECTS = {
    "svd": Subject(
        lambda **given: linalg.svd(matrix() - 5, **given),
        {},
        {"coerce_signs": False},
        NO_CHOICE | {"full_matrices": "only False can be had"},
        linalg.svd,
    ),
    "svd_compressed": Subject(
        lambda **given: linalg.svd_compressed(matrix(), **given),
        {"k": 5, "seed": 0, "center": 0},
        {
            "k": 6,
            "iterator": "QR",
            "n_power_iter": 3,
            "n_oversamples": 20,
            "seed": 1,
            "compute": True,
            "coerce_signs": False,
            "tol": 1e-9,
            "max_passes": 2,
            "center": None,
            "scale": True,
            "axis": 1,
            "keep": False,
        },
        NO_CHOICE,
        linalg.svd_compressed,
    ),
    "linalg.pca": Subject(
        lambda **given: linalg.pca(matrix(), **given),
        {"n_components": 5, "random_state": 0},
        {
            "n_components": 6,
            "scale": True,
            "whiten": True,
            "tol": 1e-9,
            "max_passes": 2,
            "random_state": 1,
            "keep": False,
        },
        NO_CHOICE,
        linalg.PCA,
    ),
    "PCA.transform": Subject(
        lambda **given: _fitted("transform", **given),
        {},
        {"scale": True, "whiten": True, "tol": 1e-9},
        {"n_components": "", "max_passes": "", "random_state": "", "keep": ""},
        linalg.PCA,
    ),
    "PCA.inverse_transform": Subject(
        lambda **given: _fitted("inverse_transform", scores=da.from_array(SCORES, chunks=2), **given),
        {},
        {"scale": True, "whiten": True, "tol": 1e-9},
        {"n_components": "", "max_passes": "", "random_state": "", "keep": ""},
        linalg.PCA,
    ),
    "genotypes.pca": Subject(
        lambda **given: genotypes.pca(study(), **given),
        {"n_components": 3, "seed": 0},
        {
            "n_components": 5,
            "scaler": "standard",
            "tol": 1e-9,
            "max_passes": 2,
            "maf": 0.2,
            "max_missing": 0.01,
            "hwe": 0.2,
            "keep_samples": [f"sample {i}" for i in range(30)],
            "remove": [f"sample {i}" for i in range(9)],
            "ld_prune": (50, 0.05),
            "kept": HALF,
            "n_oversamples": 25,
            "seed": 1,
            "keep": False,
            "kernel": "numpy",
        },
        NO_CHOICE,
        genotypes.pca,
    ),
    "ld_prune": Subject(
        lambda **given: genotypes.ld_prune(study(), **given),
        {"window": 50, "r2": 0.05},
        {"window": 20, "r2": 0.02, "step": 25, "kept": HALF},
        NO_CHOICE | {"unit": "needs positions", "rule": "as in pca, which gives it"},
        genotypes.ld_prune,
    ),
    "open_genotypes": Subject(
        lambda **given: study(**given).counts(),
        {"orientation": "variants×samples"},
        {
            "orientation": "samples×variants",
            "missing": 255,
            "rows": 128,
            "keep_samples": [f"sample {i}" for i in range(9)],
            "remove": ["sample 3"],
        },
        NO_CHOICE
        | dict.fromkeys(("samples", "variants", "labels"), "labels are in no graph")
        | dict.fromkeys(("array", "multiallelic"), "of files, which each call names anew"),
        genotypes.open_genotypes,
    ),
    "simulate": Subject(
        lambda **given: genotypes.simulate(**{"n_variants": 600, "n_samples": 40, **given}).counts(),
        {},
        {
            "n_variants": 601,
            "n_samples": 41,
            "n_populations": 4,
            "fst": 0.2,
            "missing": 0.1,
            "monomorphic": 0.1,
            "all_missing": 0.1,
            "seed": 1,
            "rows": 256,
        },
        {"on_device": "on GPUs, and there are none"},
        genotypes.simulate,
    ),
}


def _all_calls(subject: str) -> list[Callable[[], Any]]:
    """Return the call as it is, and one for each parameter with another value."""
    chosen = SUBJECTS[subject]
    given = [chosen.given, *({**chosen.given, name: other} for name, other in chosen.others.items())]
    return [lambda each=each: values(chosen.call(**each)) for each in given]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_each_parameter_of_a_public_function_is_varied_here_or_excused(subject: str) -> None:
    chosen = SUBJECTS[subject]
    parameters = set(inspect.signature(chosen.of).parameters)
    assert parameters - set(chosen.others) - set(chosen.same) == set()
    assert set(chosen.others) <= parameters


# --- the workloads -----------------------------------------------------------------------------------------------

# What the form's own bounds don't give: another value, or None where two values can't be had.
_SMALL: dict[str, Any] = {
    "shape": [120, 80],
    "chunks": [60, 80],
    "n_variants": 600,
    "n_samples": 64,
    "n_rows": 900,
    "partition": 300,
    "n_components": 3,
}
_OTHER: dict[str, Any] = {
    **dict.fromkeys(("preset", "scale", "size")),  # the shape is given
    "shape": [160, 80],
    "chunks": [40, 80],
    "path": None,
    "to": None,
    "labels": None,
    **dict.fromkeys(("save", "replace")),  # write: see test_run_answers.py
    "array": None,  # of a file that has several
    "orientation": None,  # of a file of counts
    **dict.fromkeys(("missing", "over", "select")),  # of a file with more dimensions: see test_reduce_file.py
    "ld_window": 30,
    "ld_step": None,  # of ld_window
    "k": 4,
    "n_populations": 3,
    **dict.fromkeys(("anon", "endpoint_url", "token_variable")),  # of files elsewhere
    **dict.fromkeys(("autosomes_only", "leave_out")),  # of sites with contigs
    **dict.fromkeys(("keep_samples", "remove")),  # of files
    "block_size": "1 kB",
    **dict.fromkeys(("variable", "select", "rows", "samples")),  # of files with several of them
    "maf": 0.2,
    "hwe": 0.1,
}
_SKIPPED = {
    "pack_genotypes": "writes: see test_genotypes_store.py",
    "genotype_project": "of a run before: see test_genotypes_projection.py",
}


def _base(name: str, folder: Path) -> dict[str, Any]:
    fields = template(name).schema()["properties"]
    given = {key: value for key, value in _SMALL.items() if key in fields}
    if name == "transpose_sum":
        given["shape"] = [80, 80]
    if name.startswith("genotype_") and "path" in template(name).schema().get("required", ()):
        np.save(folder / "counts.npy", COUNTS)
        given |= {"path": str(folder / "counts.npy")}
    if name == "eofs":
        winds = np.random.default_rng(0).standard_normal((40, 5, 6))
        grid = {"time": np.arange("2000-01", "2003-05", dtype="datetime64[M]"), "lat": np.linspace(-60, 60, 5)}
        found = xarray.DataArray(winds, {**grid, "time": grid["time"].astype("datetime64[ns]")}, ("time", "lat", "lon"))
        # xarray asks for Dask's scheduler, which these clients aren't outside of `using`.
        with dask.config.set(scheduler="sync"):
            found.to_dataset(name="u").to_netcdf(folder / "winds.nc", engine="h5netcdf")
        given |= {"path": str(folder / "winds.nc"), "k": 3}
    if name in ("svd_of_file", "reduce_file"):
        path = folder / "x.npy"
        np.save(path, np.random.default_rng(0).standard_normal((120, 80)))
        given |= {"path": str(path)} | ({"k": 3} if "k" in fields else {})
    return given


def _other(schema: Mapping[str, Any], name: str, now: Any) -> Any:
    if name in _OTHER:
        return [120, 120] if name == "shape" and now == [80, 80] else _OTHER[name]
    field = schema[name]
    value = now if now is not None else field.get("default")
    if "enum" in field:
        return next(each for each in field["enum"] if each != value)
    if field.get("type") == "boolean":
        return not value
    if field.get("type") == "integer":
        return value + 1
    if field.get("type") == "number":
        return value / 2
    raise AssertionError(f"Say in _OTHER what another {name} is.")


WORKLOADS = [chosen.name for chosen in templates() if chosen.name not in _SKIPPED]


def _workload_calls(name: str, folder: Path) -> dict[str, Callable[..., Any]]:
    """Return a call of the workload as it is, under "", and one for each field with another value."""
    chosen = template(name)
    schema, base = chosen.schema()["properties"], _base(name, folder)
    given = {"": base}
    for field in schema:
        other = _other(schema, field, base.get(field))
        if other is not None:
            given[field] = base | {field: other}

    def call(raw: Mapping[str, Any], client: Any = None) -> Any:
        answer, check = chosen.compute(chosen.validate(raw, memory=2**30, threads=2), client)
        assert check.passed, check.what
        for name in ("seconds_to_make", "seconds_to_read"):
            answer.pop(name, None)
        return answer

    return {field: lambda client=None, raw=raw: call(raw, client) for field, raw in given.items()}


# --- keys --------------------------------------------------------------------------------------------------------


def _recorded(call: Callable[[], Any]) -> dict[Any, str]:
    """Return the result of every task of a call, by its key."""
    found: dict[Any, str] = {}

    def note(key: Any, value: Any, *_: Any) -> None:
        found[key] = tokenize(value)

    with dask.config.set(scheduler="sync"), Callback(posttask=note):
        call()
    assert found
    return found


def _disagreeing(one: Mapping[Any, str], other: Mapping[Any, str]) -> list[Any]:
    return [key for key in one.keys() & other.keys() if one[key] != other[key]]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_what_two_calls_name_alike_has_one_value(subject: str) -> None:
    one, *others = map(_recorded, _all_calls(subject))
    for name, other in zip(SUBJECTS[subject].others, others, strict=True):
        assert _disagreeing(one, other) == [], name


@pytest.mark.parametrize("name", WORKLOADS)
def test_what_two_runs_of_a_workload_name_alike_has_one_value(name: str, tmp_path: Path) -> None:
    calls = _workload_calls(name, tmp_path)
    recorded = {field: _recorded(call) for field, call in calls.items()}
    for field, found in recorded.items():
        assert _disagreeing(recorded[""], found) == [], field


def test_a_file_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    chosen = template("svd_of_file")
    calls = []
    for seed in (0, 1):
        np.save(path, np.random.default_rng(seed).standard_normal((300, 20)))
        calls.append(_recorded(lambda: chosen.compute(chosen.validate({"path": str(path)}))))
    assert _disagreeing(*calls) == []


def test_pcas_that_differ_only_in_their_mean_stay_apart_in_one_compute() -> None:
    x = matrix()
    p, q = linalg.PCA(3, random_state=0).fit(x), linalg.PCA(3, random_state=0).fit(x)
    q.mean_ = q.mean_ + 1
    together = dask.compute(p.transform(x), q.transform(x))
    for found, alone in zip(together, (p.transform(x).compute(), q.transform(x).compute()), strict=True):
        np.testing.assert_array_equal(found, alone)
    assert not np.array_equal(*together)


def test_lazy_answers_of_several_calls_stay_apart_in_one_compute() -> None:
    calls: list[Callable[[], Any]] = [
        lambda: linalg.svd(matrix()),
        lambda: linalg.svd(matrix(), coerce_signs=False),
        *(lambda k=k: linalg.svd_compressed(matrix(), k, seed=0) for k in (3, 4)),
        *(lambda s=s: linalg.svd_compressed(matrix(), 3, seed=0, center=0, scale=s) for s in (False, True)),
        lambda: linalg.svd_compressed(matrix() * 1e200, 3, seed=0),
        *(lambda n=n: genotypes.pca(study(), n).loadings for n in (3, 5)),
        lambda: genotypes.pca(study(), 3, kept=HALF).loadings,
        *(lambda m=m: study(missing=m).counts() for m in (None, 255)),
    ]
    lazy = [call() for call in calls]
    for together, alone in zip(dask.compute(*lazy), lazy, strict=True):
        _equal(together, dask.compute(alone)[0])


def _equal(one: Any, other: Any) -> None:
    assert tokenize(one) == tokenize(other)


# --- at once -----------------------------------------------------------------------------------------------------


def _at_once(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return the results of calls that start together in different threads."""
    ready = threading.Barrier(len(calls))

    def together(call: Callable[[], Any]) -> Any:
        ready.wait(60)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(together, calls))


@pytest.fixture
def two_clients(quick_cluster: Any) -> Iterator[tuple[Any, Any]]:
    from distributed import Client

    # as_current sets the scheduler for all threads, and back to what it was before: several at once need it set anyway.
    with (
        Client(quick_cluster, set_as_default=False) as one,
        Client(quick_cluster, set_as_default=False) as other,
        dask.config.set(scheduler="dask.distributed"),
    ):
        yield one, other


def _same_at_once(calls: Sequence[Callable[[], Any]]) -> None:
    for together, alone in zip(_at_once(calls), [call() for call in calls], strict=True):
        _equal(together, alone)


def test_calls_at_once_in_threads_give_what_they_give_alone() -> None:
    _same_at_once(_all_calls("genotypes.pca"))


# What calls name alike is the same for all of them, above; here are some that compute in several ways.
@pytest.mark.parametrize("subject", ["linalg.pca", "open_genotypes"])
def test_calls_of_two_clients_at_once_give_what_they_give_alone(subject: str, two_clients: tuple[Any, Any]) -> None:
    def using(client: Any, call: Callable[[], Any]) -> Any:
        with client.as_current():
            return call()

    _same_at_once(
        [partial(using, client, call) for client, call in zip(cycle(two_clients), _all_calls(subject), strict=False)]
    )


@pytest.mark.parametrize("name", ["genotype_relatedness", "reduce_file", "transpose_sum"])
def test_runs_of_two_clients_at_once_give_what_they_give_alone(
    name: str, tmp_path: Path, two_clients: tuple[Any, Any]
) -> None:
    def using(client: Any, call: Callable[..., Any]) -> Any:
        with client.as_current():
            return call(client)

    calls = _workload_calls(name, tmp_path).values()
    _same_at_once([partial(using, client, call) for client, call in zip(cycle(two_clients), calls, strict=False)])


def test_runs_from_terminals_at_once_on_one_cluster_give_what_they_give_alone(
    data_folder: Path, spec: ClusterSpec
) -> None:
    one = spec.model_copy(update={"n_workers": 1})
    record = asyncio.run(control.wait(launch(one, name="shared", force=True).name, timeout=60))
    runs = [["compressed_svd", "size=2MiB", f"k={k}"] for k in (3, 10)]
    try:
        together = _at_once([partial(_answer, *run) for run in runs])
        assert together[1] == _alone(record, *runs[1])
        with connect("shared") as client:
            # As it is while it takes in somebody's large graph.
            silent = threading.Thread(target=client.run_on_scheduler, args=(time.sleep, 16))
            silent.start()
            assert together[0] == _alone(record, *runs[0])
            silent.join()
    finally:
        asyncio.run(control.stop(record))


def _alone(record: ClusterRecord, workload: str, *given: str) -> Any:
    """Run a workload from this process, and return its result: a new terminal would import everything again."""
    run = finish(submit(workload, dict(each.split("=") for each in given), record).id, timeout=200)
    assert (run.status, run.check is not None and run.check.passed) == ("done", True), run.error
    return run.result["singular_values"]


def _answer(workload: str, *given: str) -> Any:
    parameters = [part for each in given for part in ("-p", each)]
    command = [sys.executable, "-m", "workbench", "run", workload, "--cluster", "shared", "--json", *parameters]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    run = json.loads(done.stdout)
    assert (run["status"], run["check"]["passed"]) == ("done", True)
    return run["result"]["singular_values"]
