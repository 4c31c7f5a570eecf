"""Workers with Dask and NumPy, and nothing of ours or of what only our forms and files need."""

from __future__ import annotations

import importlib
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client
from distributed.client import CancelledFuturesGroup, FutureCancelledError, FuturesCancelledError

import workbench
from tests import bare as bare_workers, other_python
from tests.every_option import failures, of_files, of_formats, on_bare_workers, unwritten, with_options
from tests.test_genotypes_pca import bed_file
from tests.waiting import until
from tests.winds import winds_of
from workbench import genotypes, linalg, remote, sent_code
from workbench.errors import BadInputError, ConflictError
from workbench.hardware import inventory
from workbench.runs import failures as failing, store, submit
from workbench.runs.comparing import compare
from workbench.runs.run import Run
from workbench.sent_code import _packed, ask, make_ready
from workbench.workloads.generators import normal

pytestmark = pytest.mark.filterwarnings("ignore:Mismatched versions")
"""Dask compares pandas as well, which isn't there."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of a Python like ours that has Dask, distributed and NumPy, and nothing of ours."""
    return bare_workers.environment(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def cluster(bare: dict[str, str]) -> Iterator[Client]:
    with (
        other_python.cluster(sys.executable, environment=bare) as address,
        Client(address, set_as_default=False) as client,
    ):
        client.wait_for_workers(2)
        assert {each.revision for each in ask(client)} == {None}
        yield client


@pytest.fixture
def client(cluster: Client) -> Iterator[Client]:
    with cluster.as_current():
        yield cluster


def test_every_workload_computes_with_every_option_on_workers_with_dask_and_numpy_alone(
    client: Client, tmp_path: Path
) -> None:
    def imported_there() -> list[str]:
        import sys

        return [name for name in sys.modules if name.partition(".")[0] == "workbench"]

    found = failures(with_options(on_bare_workers(tmp_path)), client)
    refused = [each for each in found if "numba isn't installed on the workers (2 of 2), and array_" in each]
    assert (found, len(refused)) == (refused, 1)
    imported = {*client.run_on_scheduler(imported_there), *itertools.chain(*client.run(imported_there).values())}
    assert {"workbench.linalg", "workbench.genotypes", "workbench.storage.reading"} < imported
    # Another Python has the same modules to import, of other versions of these packages.
    python = other_python.python_or_skip()
    code = f"import sys; sys.path.insert(0, {_packed(tmp_path)!r})\n" + "\n".join(
        f"import {each}" for each in sorted(imported)
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def test_files_are_read_and_written_on_workers_that_have_what_their_format_needs_and_nothing_of_ours(
    tmp_path: Path,
) -> None:
    formats = ("zarr", "xarray", "h5netcdf", "h5py", "pandas", "pyarrow", "tifffile")
    (tmp_path / "links").mkdir()
    bare = bare_workers.environment(tmp_path / "links", *formats)
    alone = other_python.cluster(sys.executable, n_workers=1, environment=bare)
    with alone as address, Client(address) as client:
        client.wait_for_workers(1)
        # Of other files, the test above has each option of these.
        files = with_options(of_files(tmp_path), but=("reduce_file", "svd_of_file"))
        assert failures([*files, *of_formats(tmp_path)], client) == []
        assert unwritten(client, tmp_path) == []


def test_workers_with_another_revision_that_was_sent_must_be_restarted(
    bare: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with other_python.cluster(sys.executable, n_workers=1, environment=bare) as address, Client(address) as client:
        client.wait_for_workers(1)
        monkeypatch.setattr(sent_code, "revision", lambda: "of-old")
        make_ready(client)
        assert {each.revision for each in ask(client)} == {"of-old"}
        monkeypatch.undo()
        with pytest.raises(ConflictError, match=r"revision of-old .* Restart scheduler and workers"):
            make_ready(client)
        assert {each.revision for each in ask(client)} == {"of-old"}


def test_another_revision_that_is_installed_gives_way_to_ours_unless_it_is_in_use(
    bare: dict[str, str], tmp_path: Path
) -> None:
    """All revisions have the same version, and tasks of one fail with another, or compute something else."""
    package = Path(workbench.__file__).parent
    not_in_wheels = shutil.ignore_patterns("labextension", "__pycache__", "*.js")
    same = shutil.copytree(package, tmp_path / "same" / "workbench", ignore=not_in_wheels)
    assert remote.revision_of(str(same / "__init__.py")) == sent_code.revision()
    other = shutil.copytree(same, tmp_path / "other" / "workbench")
    (other / "linalg" / "arrays.py").write_text("raise ImportError('another revision')\n")
    theirs = remote.revision_of(str(other / "__init__.py"))
    x = da.random.default_rng(0).random((300, 40), chunks=(100, 40))
    paths = {"PYTHONPATH": os.pathsep.join([bare["PYTHONPATH"], str(tmp_path / "other")])}
    with other_python.cluster(sys.executable, n_workers=1, environment=paths) as address, Client(address) as client:
        client.wait_for_workers(1)
        assert {(each.revision, each.loaded) for each in ask(client)} == {(theirs, False)}
        np.testing.assert_allclose(linalg.svd(x)[1], np.linalg.svd(x.compute(), compute_uv=False))
        assert {(each.revision, each.loaded) for each in ask(client)} == {(sent_code.revision(), True)}
    with other_python.cluster(sys.executable, n_workers=1, environment=paths) as address, Client(address) as client:
        client.wait_for_workers(1)
        client.run(lambda: __import__("workbench"))
        told = f"dask-workbench is revision {theirs} on .*, and revision {sent_code.revision()} here"
        with pytest.raises(ConflictError, match=f"nothing was sent: {told}. Restart scheduler"):
            make_ready(client)


def test_what_workers_lack_is_said_before_anything_runs_and_a_run_computes_with_what_they_have(
    client: Client, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    winds_of(n_times=12).to_netcdf(tmp_path / "winds.nc", engine="h5netcdf")
    zarr.save_array(str(tmp_path / "x.zarr"), np.eye(30))
    with workbench.attach(client.scheduler.address) as there:
        record = there.record
        for workload, module, given in (
            ("array_sum", "numba", {"size": "1MiB", "generator": "fast"}),
            ("eofs", "xarray", {"path": f"{tmp_path}/winds.nc", "variable": "u", "k": 2}),
            ("svd_of_file", "zarr", {"path": f"{tmp_path}/x.zarr"}),
        ):
            told = f"{module} isn't installed on the workers of {record.name} (2 of 2, on {socket.gethostname()}), and "
            forecast = workbench.Session().forecast(workload, given, record.name)
            assert (forecast.verdict, forecast.fits) == ("can't run", False)
            assert forecast.sentence.startswith(told)
            with pytest.raises(ConflictError, match=re.escape(told)):
                submit.submit(workload, given, record)
        asked = {"workload": workload, "parameters": given, "on": [f"--cluster {record.name}"]}
        planned = compare.plan_comparison(compare.read_request(asked), inventory(), [record])
        assert [row.reason for row in planned.rows] == [forecast.sentence]
        # What writes a store has to be there.
        bed = bed_file(tmp_path, np.zeros((50, 6), "int8"), ["1"] * 50)
        with pytest.raises(ConflictError, match=r"^zarr isn't installed on .* pack_genotypes needs it"):
            submit.submit("pack_genotypes", {"path": bed, "to": str(tmp_path / "packed.zarr")}, record)
        assert store.select() == ()
        some = record.spec.model_copy(update={"missing": {"zarr": {"far": 1}}, "n_workers": 3})
        forecast = workbench.Session().forecast("svd_of_file", given, some)
        assert forecast.sentence.startswith(
            "zarr isn't installed on the workers (1 of 3, on far), and svd_of_file needs"
        )
        large = {"n_variants": 20_000, "n_components": 2, "tol": 0.1}
        run = submit.finish(submit.submit("genotype_pca", large, record).id, timeout=200)
        assert (run.status, run.error, run.check and run.check.passed) == ("done", None, True)
        assert "numba isn't installed on all workers, so NumPy multiplies, which is slower." in run.notes
    # A notebook's code asks, too.
    monkeypatch.setattr(importlib.import_module("workbench.genotypes.pca"), "LARGE", 1000)
    assert genotypes.pca(genotypes.simulate(2000, 60, n_populations=2, seed=0), 2).scores.shape == (60, 2)
    with pytest.raises(BadInputError, match="needs numba where it computes"):
        normal(0, 1, chunks=((4,), (4,)), engine="fast")


def test_a_worker_that_joins_while_a_persons_function_runs_stays_and_computes(
    bare: dict[str, str], data_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        "import dask\nimport time\nfrom pathlib import Path\n\n\n"
        "def nap(n, there):\n    from distributed import get_worker\n\n"
        "    while not Path(there).exists():\n        time.sleep(0.05)\n    time.sleep(0.2)\n"
        "    return get_worker().address\n\n\n"
        "def naps(there='', n=20):\n"
        "    return dask.delayed(set)([dask.delayed(nap)(each, there) for each in range(n)])\n"
    )
    with other_python.cluster(sys.executable, environment=bare, n_workers=1) as address, Client(address) as client:
        with workbench.attach(address) as there:
            given = {"there": str(tmp_path / "go")}
            run = submit.submit(f"{tmp_path}/mine.py:naps", given, there.record)
            until(lambda: client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) > 0, 60)
            joins = [sys.executable, "-m", "dask", "worker", address, "--no-nanny", "--nthreads", "1", "--no-dashboard"]
            with subprocess.Popen(joins, env={**os.environ, **bare}, cwd=tmp_path, stderr=subprocess.DEVNULL) as worker:
                client.wait_for_workers(2, timeout=60)
                (tmp_path / "go").touch()
                run = submit.finish(run.id, timeout=100)
                assert worker.poll() is None
                worker.terminate()
        assert (run.status, run.error) == ("done", None)
        assert str(run.result).count("tcp://") == 2


def test_a_persons_function_runs_with_its_classes_and_nothing_is_left_of_one_killed_but_the_source_that_was_sent(
    bare: dict[str, str], data_folder: Path, tmp_path: Path
) -> None:
    sent = f"workbench-{sent_code.revision()}.zip"

    def left(dask_scheduler: Any = None, dask_worker: Any = None) -> list[str]:
        """Return our plugins, paths and files that are left on a scheduler or a worker."""
        import sys
        from pathlib import Path

        there = dask_scheduler or dask_worker
        names = [
            *there.plugins,
            *getattr(there, "worker_plugins", ()),
            *sys.path,
            *Path(there.local_directory).iterdir(),
        ]
        return [str(each) for each in names if "workbench" in str(each) and Path(str(each)).name != sent]

    (tmp_path / "mine.py").write_text(
        "import dask\nimport beside\n\n\ndef nap(there=''):\n    return dask.delayed(beside.nap)(beside.Place(there))\n"
    )
    (tmp_path / "beside.py").write_text(
        "import os\n\n\nclass Place:\n    def __init__(self, path):\n        self.path = path\n\n\n"
        "def nap(there):\n    while not os.path.exists(there.path):\n        os.sched_yield()\n"
        "    return int(isinstance(there, Place))\n"
    )
    function = f"{tmp_path}/mine.py:nap"
    with other_python.cluster(sys.executable, n_workers=1, environment=bare) as address:
        there = workbench.attach(address)
        with Client(address) as client:
            run = submit.submit(function, {"there": str(tmp_path / "go")}, there.record)
            until(lambda: client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) > 0, 60)
            os.kill(store.get(run.id).pid or 0, signal.SIGKILL)
            (tmp_path / "go").touch()
            there.stop()
            with workbench.attach(address) as there:
                run = submit.finish(submit.submit(function, {"there": str(tmp_path)}, there.record).id, timeout=200)
            assert (run.error, run.result) == (None, {"value": 1})
            assert (client.run_on_scheduler(left), [*client.run(left).values()]) == ([], [[]])


def test_what_went_wrong_is_said_in_whole_sentences() -> None:
    run = Run(id="r-1", workload="array_sum", cluster="calm-otter", created=0.0)
    dask_says = "Error during deserialization of the task graph. This frequently\noccurs if the environments differ."
    said = failing.sentence(RuntimeError(dask_says), run, None)
    assert said.startswith(
        "RuntimeError: Error during deserialization of the task graph. This frequently occurs if the"
    )
    group = CancelledFuturesGroup([FutureCancelledError("svd-1", "lost dependencies")], "lost dependencies")
    assert "lost dependencies" in failing.sentence(FuturesCancelledError([group]), run, None)
    sent = CancelledFuturesGroup([FutureCancelledError("svd-1", "already forgotten")], "already forgotten")
    assert "Workers of calm-otter were lost" in failing.sentence(FuturesCancelledError([sent]), run, None)
    gone = CancelledFuturesGroup([FutureCancelledError("svd-1", "scheduler-connection-lost")], "")
    assert "The connection to the cluster calm-otter was lost" in failing.sentence(
        FuturesCancelledError([gone]), run, None
    )
    error = RuntimeError(dask_says)
    error.__cause__ = ModuleNotFoundError("No module named 'zarr.core'", name="zarr.core")
    assert failing.sentence(error, run, None).startswith("The package zarr isn't installed where it was needed")


def test_a_file_that_only_the_runs_own_process_can_read_is_said_to_be_so_with_the_host(tmp_path: Path) -> None:
    class Far:
        class scheduler:  # noqa: N801
            identity = None

        def sync(self, asked: object, n_workers: int) -> dict[str, object]:
            return {"workers": {"tcp://far:1": {"host": "far"}}}

        def run(self, *given: object, **others: object) -> dict[str, tuple[str, str]]:
            return {"tcp://far:1": ("node-3", "No such file or directory")}

    run = Run(id="r-1", workload="mine.py:f", cluster="calm-otter", created=0.0)
    path = tmp_path / "data.csv"
    errors = [FileNotFoundError(2, "No such file", str(path)), OSError(f"Unable to open file (name = '{path}')")]
    assert [failing.out_of_reach(each, run, cast(Client, Far())) for each in errors] == [None, None]
    path.touch()
    for each in errors:
        said = failing.out_of_reach(each, run, cast(Client, Far()))
        assert said is not None
        assert said.startswith(f"node-3 can't read {path} (No such file or directory). Its workers read it themselves")
