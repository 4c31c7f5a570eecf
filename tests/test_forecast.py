import gc
import json
import math
import time
from importlib.util import find_spec
from pathlib import Path

import dask
import numpy as np
import pytest

from tests import commands
from tests.views import html_of
from workbench.cli.runs import refuse_what_wont_fit
from workbench.clusters import records
from workbench.clusters.connect import connect
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import ConflictError
from workbench.formats import size
from workbench.hardware import inventory
from workbench.jobs import processes
from workbench.runs import store
from workbench.runs.comparing.compare import plan_comparison, read_request
from workbench.runs.forecasting import devices, history, machines
from workbench.runs.forecasting.duration import Point, fit, off_by
from workbench.runs.forecasting.measuring import part_of
from workbench.runs.forecasting.verdicts import size_of
from workbench.runs.run import Imported, Run
from workbench.runs.submit import submit
from workbench.session import Session
from workbench.workloads.builtin import templates
from workbench.workloads.estimates import expected_passes
from workbench.workloads.lookup import template
from workbench.workloads.values import Needs

SPEC = ClusterSpec(profile="cpu", n_workers=2, threads_per_worker=1, memory_limit=2**30)
RANDOM = [found.name for found in templates() if "size" in found.schema()["properties"]]


HERE = {"cpu": devices.processor().model_dump(mode="json")}


def past_run(
    number, seconds, forecast=None, workload="array_sum", size="512MiB", spec=SPEC, on=None, machine=None, **given
):
    chosen = template(workload)
    checked = chosen.validate({"size": size} | given, threads=spec.threads)
    return store.create(
        Run(
            id=f"{workload}-{number}",
            workload=workload,
            parameters=checked.given,
            resolved=checked.resolved,
            cluster="calm-otter",
            status="done",
            spec=spec,
            seconds=seconds,
            created=float(number),
            needs=chosen.needs(checked).model_dump(mode="json"),
            forecast=forecast,
            inventory=HERE if on is None else on,
            imported=None if machine is None else Imported(machine=machine, at=1.0),
        )
    )


# -- memory


def test_a_run_that_may_outlast_its_jobs_says_so(data_folder):
    for number in range(3):
        past_run(number, seconds=100.0)
    jobs = SPEC.model_copy(update={"options": {"walltime": 60}})
    within = jobs.model_copy(update={"options": {"walltime": 36_000}})
    told = [Session().forecast("array_sum", {"size": "512MiB"}, each).sentence for each in (jobs, within)]
    assert ["longer than the walltime of a job, 1 min: ask for more." in each for each in told] == [True, False]


def test_blocks_too_large_for_a_worker_wont_fit_and_the_ones_proposed_would(data_folder):
    session = Session()
    given = {"shape": [50_000, 50_000], "chunks": 20_000, "generator": "RandomState"}
    found = session.forecast("array_sum", given, SPEC)
    assert found.verdict == "won't fit"
    assert f"chunks={found.chunks}" in found.sentence
    assert session.forecast("array_sum", given | {"chunks": found.chunks}, SPEC).verdict == "fits"


@pytest.mark.parametrize("name", ["array_sum", "transpose_sum", "tall_skinny_svd"])
def test_the_chunks_proposed_are_the_largest_power_of_two_that_fits(data_folder, name):
    session = Session()
    small = SPEC.model_copy(update={"memory_limit": 2**29})
    given = {"size": "256MiB"} | ({"generator": "RandomState"} if name == "array_sum" else {})
    found = session.forecast(name, given | {"chunks": "256MiB"}, small)
    assert found.chunks is not None
    larger = f"{2 * int(found.chunks.removesuffix('MiB'))}MiB"
    assert session.forecast(name, given | {"chunks": found.chunks}, small).verdict == "fits"
    assert session.forecast(name, given | {"chunks": larger}, small).verdict != "fits"


def test_what_stays_and_is_too_much_will_spill_and_the_remedy_is_named(data_folder):
    session = Session()
    given = {"size": "3GiB", "dtype": "float64", "method": "dask"}
    found = session.forecast("compressed_svd", given, SPEC)
    assert found.verdict == "will spill"
    assert "With compute=true" in found.sentence
    assert session.forecast("compressed_svd", given | {"compute": True}, SPEC).verdict == "fits"


def test_without_hardware_the_verdict_stays_open(data_folder):
    found = Session().forecast("array_sum", {"size": "2GiB"})
    assert (found.verdict, found.fits, found.seconds, found.memory_per_worker) == (None, None, None, None)


def ready(data_folder, spec=SPEC):
    return ClusterRecord(name="calm-otter", spec=spec, created=time.time(), status="ready", n_workers=spec.n_workers)


def test_memory_that_other_programs_took_since_the_start_is_missing_from_what_fits(data_folder, monkeypatch):
    parameters, four = {"size": "2GiB", "generator": "RandomState"}, SPEC.model_copy(update={"n_workers": 4})
    machine = inventory().memory.model_copy(update={"available": 2 * 2**30})
    monkeypatch.setattr("workbench.runs.forecasting.verdicts.memory", lambda: machine)
    assert Session().forecast("array_sum", parameters, four).verdict == "fits"
    machine = machine.model_copy(update={"available": 2**29})
    found = Session().forecast("array_sum", parameters, four)
    assert (found.verdict, found.fits) == ("won't fit", False)
    assert "other programs leave them 512 MiB of this machine's memory" in found.sentence
    # What the workers hold already is theirs, and workers elsewhere have memory of their own.
    monkeypatch.setattr("workbench.runs.forecasting.verdicts.held", lambda record: 2**30)
    assert Session().forecast("array_sum", parameters, ready(data_folder, four)).verdict == "fits"
    far = four.model_copy(update={"elsewhere": True, "profile": "ssh"})
    assert Session().forecast("array_sum", parameters, far).verdict == "fits"


def test_what_wont_fit_is_not_started_unless_somebody_insists(data_folder, monkeypatch):
    started = []
    monkeypatch.setattr("workbench.runs.submit._start_runner", lambda run, _: started.append(run) or run)
    large = {"shape": [50_000, 50_000], "chunks": 20_000, "generator": "RandomState"}
    with pytest.raises(ConflictError, match=r"Won't fit: .* force it"):
        submit("array_sum", large, ready(data_folder))
    assert store.select() == ()
    run = submit("array_sum", large, ready(data_folder), force=True)
    assert started == [run]
    assert store.get(run.id).forecast["verdict"] == "won't fit"


ON_GPUS = """
import json
from workbench.clusters.devices import devices_of
from workbench.clusters.spec import ClusterSpec
from workbench.hardware import inventory
from workbench.session import Session
session, found = Session(), devices_of(inventory())
def told(name, parameters, **changes):
    spec = ClusterSpec(profile="gpus", n_workers=2, threads_per_worker=1, devices=tuple(each.uuid for each in found),
                       cupy=True, **({"memory_limit": 32 * 2**30} | changes))
    forecast = session.forecast(name, parameters, spec)
    return [forecast.verdict, forecast.sentence, forecast.device_memory, forecast.memory_per_worker, forecast.chunks]
svd = {"dtype": "float64", "method": "dask"}
print(json.dumps({
    "total": found[0].total,
    "small": told("array_sum", {"size": "4GiB"}),
    "limited": told("compressed_svd", {"size": "20GiB"} | svd, device_memory_limit=6 * 2**30),
    "little host": told("compressed_svd", {"size": "20GiB"} | svd, device_memory_limit=6 * 2**30, memory_limit=2**31),
    "pool": told("array_sum", {"size": "4GiB"}, rmm_pool_size=8 * 2**30),
    "huge block": told("array_sum", {"shape": [400_000, 400_000], "chunks": 100_000}),
    "huge block again": told("array_sum", {"shape": [400_000, 400_000], "chunks": "1GiB"}),
    "genotypes": told("genotype_pca", {"n_variants": 100_000}),
    "large genotypes": told("genotype_pca", {"n_variants": 25_000_000, "n_samples": 20_000}),
    "genotypes and little": told("genotype_pca", {"n_variants": 100_000}, device_memory_limit=2**30),
}))
"""


def test_on_gpus_it_is_the_cards_memory_that_must_hold_it_beside_the_workers(simulated_nvml, data_folder):
    from workbench import config

    told = json.loads(simulated_nvml.python(ON_GPUS, 2, env={"DASK_WORKBENCH__DATA_FOLDER": str(config.data_folder())}))
    card = size(told["total"])
    verdict, sentence, on_gpu, in_worker, _ = told["small"]
    assert verdict == "fits"
    assert f"on a GPU at most, which has {card}, and {size(in_worker)} in its worker" in sentence
    assert on_gpu > 2**29 > in_worker
    assert told["pool"] == told["small"]
    verdict, sentence, *_ = told["limited"]
    assert verdict == "will spill"
    assert f"on a GPU of {card}, and from 6 GiB on its blocks move to the memory of its worker" in sentence
    verdict, sentence, _, in_worker, _ = told["little host"]
    assert (verdict, "go to disk" in sentence, f"what a GPU of {card}" in sentence) == ("will spill", True, True)
    assert in_worker > 2**31
    verdict, sentence, *_, chunks = told["huge block"]
    assert (verdict, "on one GPU at once, and a GPU has" in sentence) == ("won't fit", True)
    assert f"chunks={chunks}" in sentence
    assert told["huge block again"][0] == "fits"
    verdict, sentence, on_gpu, *_ = told["genotypes"]
    # 25 MB packed: twice them, a tile in both precisions, and all of them kept.
    assert (verdict, "on a GPU at most" in sentence, 100_000 * 1024 * 12 < on_gpu < 2**31) == ("fits", True, True)
    verdict, _, on_gpu, *_ = told["large genotypes"]
    # 125 GB packed are more than two of these keep: blocks of 1 GiB are read again, and tiles have 1 GiB.
    assert (verdict, 4 * 2**30 < on_gpu < 6 * 2**30) == ("fits", True)
    assert told["genotypes and little"][0] == "will spill"


AWAY = ClusterSpec(
    profile="gpu", n_workers=1, threads_per_worker=1, memory_limit=2**32, devices=("GPU-away",), cupy=True
)


def test_what_can_not_run_is_refused_before_in_the_words_of_the_run(data_folder):
    without = AWAY.model_copy(update={"cupy": False})
    lost = {"can_compute": False, "warning": "GPU 0 is hot."}
    on = ready(data_folder, AWAY)
    for record in (
        ready(data_folder, without),
        on.model_copy(update=lost),
        on.model_copy(update={"status": "starting", "message": None}),
    ):
        found = Session().forecast("array_sum", {"size": "1MiB"}, record)
        with pytest.raises(ConflictError) as refused:
            submit("array_sum", {"size": "1MiB"}, record, force=True)
        assert (found.verdict, found.fits, found.sentence) == ("can't run", False, str(refused.value))
    assert Session().forecast("array_sum", {"size": "1MiB"}, on).verdict == "fits"
    before_any_start = Session().forecast("array_sum", {"size": "1MiB"}, without)
    assert (before_any_start.verdict, before_any_start.fits) == ("can't run", False)
    with pytest.raises(ConflictError, match="Its workers have no CuPy"):
        refuse_what_wont_fit(before_any_start, force=True)


@pytest.mark.skipif(find_spec("cudf") is not None, reason="cuDF is installed here.")
def test_a_join_on_gpus_is_refused_before_in_every_face_where_cudf_is_missing(data_folder, tmp_path, monkeypatch):
    sentence = (
        "On GPUs dataframe_join needs cudf, which isn't installed: install the extra cudf13 "
        "(pip install 'cudf-cu13==26.10.*' 'dask-cudf-cu13==26.10.*') and start the cluster anew."
    )
    on = ready(data_folder, AWAY)
    with pytest.raises(ConflictError) as refused:
        submit("dataframe_join", {}, on, force=True)
    assert str(refused.value) == sentence
    for where in (on, AWAY):
        found = Session().forecast("dataframe_join", {}, where)
        assert (found.verdict, found.fits, found.sentence) == ("can't run", False, sentence)
    records.create(on.model_copy(update={"place": processes.place()}))
    request = read_request({"workload": "dataframe_join", "on": ["--cluster calm-otter", "cpu --workers 1"]})
    rows = plan_comparison(request, inventory(), [on]).rows
    records.remove(on.name)
    assert [row.reason for row in rows] == [sentence, None]
    assert Session().forecast("dataframe_join", {}, SPEC).verdict == "fits"
    # What another Python has is not known here.
    elsewhere = AWAY.model_copy(update={"python": "/opt/python"})
    assert Session().forecast("dataframe_join", {}, elsewhere).verdict == "fits"
    (tmp_path / "cudf.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert Session().forecast("dataframe_join", {}, AWAY).verdict == "fits"


def test_of_a_gpu_that_nobody_sees_here_the_spec_tells_the_memory_or_its_worker_is_judged(data_folder):
    session = Session()
    pool = AWAY.model_copy(update={"rmm_pool_size": 4 * 2**30})
    found = session.forecast("array_sum", {"shape": [30_000, 30_000], "chunks": 30_000}, pool)
    assert (found.verdict, "a GPU has 4 GiB" in found.sentence) == ("won't fit", True)
    limit = AWAY.model_copy(update={"device_memory_limit": 8 * 2**30})
    found = session.forecast("array_sum", {"size": "1GiB"}, limit)
    assert (found.verdict, "which has 8 GiB" in found.sentence) == ("fits", True)
    unknown = session.forecast("array_sum", {"size": "1GiB"}, AWAY)
    assert (unknown.device_memory, "in a worker at most" in unknown.sentence) == (None, True)


def test_what_is_read_for_a_gpu_passes_through_its_workers_memory(data_folder, tmp_path):
    np.save(tmp_path / "m.npy", np.zeros((400_000, 100)))
    given = {"path": str(tmp_path / "m.npy"), "chunks": [200_000, 100]}
    limit = AWAY.model_copy(update={"device_memory_limit": 8 * 2**30})
    found = Session().forecast("svd_of_file", given, limit)
    assert found.memory_per_worker >= 2 * 160_000_000
    found = Session().forecast("svd_of_file", given, limit.model_copy(update={"memory_limit": 2**28}))
    assert (found.verdict, "in one worker at once" in found.sentence) == ("won't fit", True)


# Sizes at which blocks outweigh what a process takes by itself; one case for each way of computing.
CASES = [
    ("transpose_sum", {"size": "256MiB", "chunks": 1600}),
    ("tall_skinny_svd", {"size": "64MiB"}),
    ("compressed_svd", {"size": "128MiB", "tol": 0.05, "dtype": "float64"}),
    ("svd_of_file", {"path": "m.npy", "method": "dask"}),
    ("pack_genotypes", {"path": "x.bed", "to": "x.zarr"}),
]


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    """A worker as a process that has compiled nothing, its client, and a folder for arrays."""
    from distributed import Client, LocalCluster

    folder = tmp_path_factory.mktemp("arrays")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_CACHE_DIR", str(folder))
        made = LocalCluster(n_workers=1, threads_per_worker=1, memory_limit="4GiB", dashboard_address="127.0.0.1:0")
    with made, Client(made) as client:
        yield client, folder


@pytest.fixture(scope="module")
def workers(worker):
    """A second worker, and a folder with an array of 96 MB and 140 million genotypes."""
    client, folder = worker
    np.save(folder / "m.npy", np.random.default_rng(0).random((120_000, 100)))
    _write_bed(folder / "x.bed", n_variants=14_000, n_samples=10_000)
    client.cluster.scale(2)
    client.wait_for_workers(2)
    # What a worker imports for its first run is no part of what the blocks take.
    for name in ("tall_skinny_svd", "compressed_svd"):
        chosen = template(name)
        chosen.compute(chosen.validate({"size": "8MiB"}), client)
    return client, folder


def _write_bed(path, n_variants, n_samples):
    drawn = np.random.default_rng(0).integers(0, 256, n_variants * n_samples // 4, dtype=np.uint8)
    path.write_bytes(b"\x6c\x1b\x01" + drawn.tobytes())
    path.with_suffix(".bim").write_text("".join(f"1\tv{i}\t0\t{i + 1}\tA\tG\n" for i in range(n_variants)))
    path.with_suffix(".fam").write_text("".join(f"f s{i} 0 0 0 -9\n" for i in range(n_samples)))


proc = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks are read from Linux' /proc")


@proc
def test_a_worker_that_has_to_compile_needs_no_more_memory_than_is_said_and_not_half_of_it(worker):
    _check_memory(*worker, "genotype_pca", {"n_variants": 20_000, "tol": 0.05}, n_workers=1)


@proc
@pytest.mark.parametrize(("name", "given"), CASES)
def test_no_worker_needs_more_memory_than_is_said_and_none_half_of_it(workers, name, given):
    _check_memory(*workers, name, given, n_workers=2)


def _check_memory(client, folder, name, given, *, n_workers):
    given = given | {each: str(folder / given[each]) for each in ("path", "to") if each in given}
    chosen = template(name)
    parameters = chosen.validate(given, threads=n_workers, threads_per_worker=1)
    said = chosen.needs(parameters).peak(n_workers) + 8 * 2**20
    most = 0
    for _ in range(3):  # which worker gets which blocks when differs from run to run, and the most is what counts
        measured = _grown(client, lambda: chosen.compute(parameters, client))
        assert measured <= said, f"{measured / 1e6:.0f} MB measured, {said / 1e6:.0f} MB said"
        most = max(most, measured)
        if said <= 2 * most:
            break
    assert said <= 2 * most, f"{most / 1e6:.0f} MB measured, {said / 1e6:.0f} MB said"


def _grown(client, compute):
    """Bytes by which the worker that grows most does, by its peak."""
    pids = list(client.run(_own_pid).values())
    client.run(_trimmed)
    before = [_memory(pid, "VmRSS") for pid in pids]
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="utf-8")
    compute()
    return max(_memory(pid, "VmHWM") - held for pid, held in zip(pids, before, strict=True))


def test_each_template_of_the_catalogue_states_its_memory_and_size():
    for name in RANDOM:
        chosen = template(name)
        needs = chosen.needs(chosen.validate({"size": "256MiB"}))
        assert needs.peak(1) > 0
        assert needs.array_bytes == pytest.approx(2**28, rel=0.01)


def _trimmed():
    """Give back what earlier computations left, as what is taken again of it would not be seen."""
    import ctypes

    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _own_pid():
    import os

    return os.getpid()


def _memory(pid, name):
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


# -- time


def test_a_workload_that_never_ran_has_no_time_and_the_remedy_is_named(data_folder):
    found = Session().forecast("array_sum", {"size": "100GiB"}, SPEC)
    assert found.seconds is None
    assert found.measure == pytest.approx(11, abs=1)
    assert "Time unknown: it never ran on this hardware. Measure it (about 11 s)." in found.sentence


def test_a_workload_that_is_small_or_that_no_parameter_makes_smaller_is_not_measured(data_folder, tmp_path):
    np.lib.format.open_memmap(tmp_path / "m.npy", "w+", "float64", (10_000, 100))
    for name, given in (("svd_of_file", {"path": str(tmp_path / "m.npy"), "k": 5}), ("array_sum", {"size": "100MiB"})):
        found = Session().forecast(name, given, SPEC)
        assert found.measure is None
        assert "Time unknown: it never ran on this hardware. " in found.sentence
        assert "Measure" not in found.sentence


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("array_sum", {"shape": [500_000, 400_000], "chunks": 10_000}),
        ("array_sum", {"preset": "post"}),
        ("transpose_sum", {"size": "50GiB", "dtype": "float32"}),
        ("tall_skinny_svd", {"shape": [200_000_000, 20], "save": "/tmp/u.zarr"}),
        ("compressed_svd", {"preset": "laptop"}),
        ("dataframe_join", {"n_rows": 1_000_000_000}),
        ("genotype_pca", {"n_variants": 40_000_000}),
    ],
)
def test_a_measurement_is_about_a_hundredth_with_the_same_choices_and_saves_nothing(name, given):
    chosen, around = template(name), size_of(SPEC)
    whole = chosen.validate(given, **around)
    part = part_of(chosen, whole, around)
    checked = chosen.validate(part.parameters, **around)
    share = chosen.needs(checked).array_bytes / chosen.needs(whole).array_bytes
    assert 0.005 < share < 0.02
    assert history._choices(chosen, checked.resolved) == history._choices(chosen, whole.resolved)
    assert checked.save is None


@pytest.mark.parametrize(("name", "more"), [("svd_of_file", {"k": 5}), ("reduce_file", {"what": "sum"})])
def test_of_a_file_the_first_hundredth_is_measured(tmp_path, name, more):
    np.lib.format.open_memmap(tmp_path / "m.npy", "w+", "float64", (10_000_000, 100))
    chosen, around = template(name), size_of(SPEC)
    whole = chosen.validate({"path": str(tmp_path / "m.npy"), **more}, **around)
    part = part_of(chosen, whole, around)
    assert part.parameters["select"] == "0=:1%"
    checked = chosen.validate(part.parameters, **around)
    assert chosen.needs(checked).array_bytes == pytest.approx(chosen.needs(whole).array_bytes / 100)
    assert history._choices(chosen, checked.resolved) == history._choices(chosen, whole.resolved)


def test_a_measurement_is_a_run_that_gives_the_order_of_magnitude_of_the_whole(data_folder):
    session = Session()
    session.start(
        SPEC.model_copy(update={"protocol": "tcp", "n_workers": 1}), name="calm-otter", force=True, agreed=True
    )
    session.wait("calm-otter", timeout=60)
    done = session.wait_run(session.measure("array_sum", {"size": "1GiB"}, "calm-otter").id, timeout=60)
    assert (done.status, done.measurement, done.bytes) == ("done", True, pytest.approx(2**26, rel=0.01))
    assert done.title == "array_sum (measurement)"
    with connect("calm-otter") as client:
        executed = sum(client.run(lambda dask_worker: dask_worker.state.executed_count).values())
    assert executed >= 2 * done.progress.done  # once before it was timed, so that nothing has to be compiled
    found = session.forecast("array_sum", {"size": "1GiB"}, "calm-otter")
    assert (found.basis, found.rough) == ("history", True)
    assert found.seconds["low"] < 16 * done.seconds < found.seconds["high"]
    assert "Too few runs to say how long; to an order of magnitude" in found.sentence
    asked = ["transpose_sum", "--cluster", "calm-otter", "-p", "size=256MiB"]
    told = commands.answer("forecast", "--measure", *asked)
    assert (told["basis"], told["rough"]) == ("history", True)
    code, out, _ = commands.run("run", *asked)
    assert (code, "Forecast" in out) == (0, True)
    assert commands.run("forecast", "--measure", "svd_of_file", "--cluster", "calm-otter", "-p", "path=x")[0] == 2


def test_tiny_stored_chunks_are_read_many_to_a_task(data_folder, tmp_path):
    import xarray
    import zarr

    path = str(tmp_path / "tiny.zarr")
    zarr.create_array(path, shape=(1500, 1500), chunks=(50, 50), dtype="float32")[:] = 1.0
    named = xarray.Dataset({"t": (("time", "x"), np.random.default_rng(0).random((1500, 1500), "float32"))})
    named.to_zarr(tmp_path / "named.zarr", consolidated=False, encoding={"t": {"chunks": (50, 50)}})
    for name, given in (
        ("reduce_file", {}),
        ("eofs", {"k": 10, "path": str(tmp_path / "named.zarr")}),
    ):
        chosen = template(name)
        checked = chosen.validate({"path": path} | given, threads=2, memory=2**32)
        assert chosen.needs(checked).peak(2) < 2**27
        built = chosen.collections(chosen.build(checked))
        # 9 MiB in 900 chunks.
        assert sum(len(each.__dask_graph__()) for each in built.values()) < 400, name


@pytest.mark.parametrize(
    ("tol", "rows", "columns", "passes"),
    # As workbench.linalg.svd_compressed went through random numbers, with blocks of 20 columns.
    [(0.01, 36651, 1831, 11), (0.01, 25910, 1295, 10), (0.003, 18335, 915, 13), (0.05, 18335, 915, 3),
     (0.01, 3000, 3000, 12), (0.01, 200_000, 200, 3), (1e-3, 240_000, 100, 5), (1e-3, 200_000, 200, 7)],
)  # fmt: skip
def test_the_passes_that_an_accuracy_takes_are_foreseen_to_a_quarter(tol, rows, columns, passes):
    assert expected_passes(tol, rows, columns, 20) == pytest.approx(passes, rel=0.25)


def test_one_run_gives_the_order_of_magnitude_and_two_a_range(data_folder):
    past_run(1, 2.0)
    found = Session().forecast("array_sum", {"size": "512MiB"}, SPEC)
    assert (found.basis, found.rough) == ("history", True)
    assert found.seconds["low"] < 2.0 < found.seconds["high"]
    # One run doesn't tell how far the next may be off.
    assert found.seconds["high"] / found.seconds["low"] == pytest.approx(10)
    told = "Too few runs to say how long; to an order of magnitude 632 ms to 6.3 s (1 run). Measure it"
    assert told in found.sentence
    past_run(2, 2.1)
    found = Session().forecast("array_sum", {"size": "512MiB"}, SPEC)
    assert not found.rough
    assert found.measure is None
    assert "Takes " in found.sentence


def test_the_time_of_another_size_is_in_proportion_until_runs_tell_otherwise(data_folder):
    for number in range(3):
        past_run(number, 2.0)
    double, far = (Session().forecast("array_sum", {"size": size}, SPEC) for size in ("1GiB", "64GiB"))
    assert math.sqrt(double.seconds["low"] * double.seconds["high"]) == pytest.approx(4.0, rel=1e-3)
    # Of two seconds most may be what any size takes.
    assert far.seconds["high"] / far.seconds["low"] > 2 * double.seconds["high"] / double.seconds["low"]
    for number in range(3, 6):
        past_run(number, 200.0, size="64GiB")
    learned = Session().forecast("array_sum", {"size": "64GiB"}, SPEC)
    assert learned.seconds["low"] < 200 < learned.seconds["high"] < 250


def test_runs_on_another_number_of_threads_count_less_and_twice_the_threads_take_about_half(data_folder):
    four = SPEC.model_copy(update={"n_workers": 4})
    for number in range(4):
        past_run(number, 10.0 + 0.1 * number)
    found = Session().forecast("array_sum", {"size": "512MiB"}, four)
    assert math.sqrt(found.seconds["low"] * found.seconds["high"]) == pytest.approx(5.4, rel=0.1)
    for number in range(4, 8):
        past_run(number, 8.0 + 0.1 * number, spec=four)
    found = Session().forecast("array_sum", {"size": "512MiB"}, four)
    assert found.seconds["low"] < 8.5 < found.seconds["high"]
    assert math.sqrt(found.seconds["low"] * found.seconds["high"]) == pytest.approx(8.5, rel=0.05)
    one_process = SPEC.model_copy(update={"n_workers": 1, "threads_per_worker": 2})
    other = Session().forecast("array_sum", {"size": "512MiB"}, one_process)
    same = Session().forecast("array_sum", {"size": "512MiB"}, SPEC)
    assert other.seconds["high"] / other.seconds["low"] > same.seconds["high"] / same.seconds["low"]


def test_runs_of_another_method_or_type_tell_nothing_of_this_one(data_folder):
    for number, given in enumerate(({"generator": "RandomState"}, {"dtype": "float32"}, {"reduction": "mean"})):
        past_run(number, 100.0, **given)
    found = Session().forecast("array_sum", {"size": "512MiB"}, SPEC)
    assert found.seconds is None
    found = Session().forecast("array_sum", {"size": "512MiB", "reduction": "mean"}, SPEC)
    assert found.seconds["low"] < 100 < found.seconds["high"]


def test_a_comparison_says_how_many_runs_it_makes_and_how_long_they_take(data_folder):
    asked = {"workload": "array_sum", "parameters": {"size": "512MiB"}}
    lines = [f"cpu --workers {n_workers} --threads 1" for n_workers in (1, 2)]
    chosen = {"workload": "array_sum", "run.array_sum.size": "512MiB", "compare.on.one-core": False}
    chosen |= {"compare.on.cpu": False, "compare.lines": ";".join(lines)}
    for number in range(8):
        past_run(number, seconds=10.0, spec=SPEC.model_copy(update={"n_workers": 1 + number // 4}))
        if number == 0:
            told = Session().forecast_comparison(**asked, on=lines)
            assert told.endswith("Expected time: roughly 29 s to 4.9 min, plus the start of the clusters.")
    told = Session().forecast_comparison(**asked, on=lines)
    expected = "Expected time: 1.9 to 2.1 min, plus the start of the clusters."
    assert told == f"12 runs, 2 of them to warm up. {expected}"
    assert told in html_of("compare", chosen)
    alone = Session().forecast_comparison(**asked, on=lines[:1], repeats=3, warmup=0)
    assert alone.startswith("3 runs. Expected time")
    assert alone.endswith("is measured: add what to compare it with.")
    assert "add what to compare" not in told


def test_runs_that_tell_nothing_give_no_forecast(data_folder):
    for number, seconds in enumerate((0.01, 300.0, 0.02, 500.0)):
        past_run(number, seconds)
    found = Session().forecast("array_sum", {"size": "512MiB"}, SPEC)
    assert found.seconds is None
    assert "Time unknown: past runs are too different." in found.sentence


def test_how_far_earlier_forecasts_missed_is_told(data_folder):
    for number, told in enumerate((0.8, 1.0, 1.5)):
        past_run(number, 1.0, forecast={"seconds": {"low": told / 2, "high": told * 2}})
    assert off_by(store.select()) == pytest.approx(0.2)
    found = Session().forecast("array_sum", {"size": "512MiB"}, SPEC)
    assert found.off_by == pytest.approx(0.2)
    assert "so far off by 20 %" in found.sentence


def on_gpus(*names, **changes):
    """Return a spec with GPUs, and a machine on which they have these names."""
    uuids = tuple(f"GPU-{n}" for n in range(len(names)))
    about = [{"uuid": uuid, "name": name} for uuid, name in zip(uuids, names, strict=True)]
    return SPEC.model_copy(update={"devices": uuids, "cupy": True, "profile": "gpus"} | changes), HERE | {"gpus": about}


@pytest.mark.parametrize(
    ("spec", "machine"),
    [
        (SPEC, {"cpu": {"model": "another", "usable": 64}}),
        (SPEC, HERE | {"cpu": HERE["cpu"] | {"usable": 64}}),
        # Somebody sent a run of which nothing is known.
        (SPEC, {}),
        (SPEC.model_copy(update={"profile": "ssh"}), HERE),
        on_gpus("A card", "A card"),
        # The same number of workers and threads, as the profile of a saved one may have.
        on_gpus("A card", "A card", profile="cpu"),
    ],
)
def test_a_run_on_other_hardware_teaches_nothing_about_this(data_folder, spec, machine):
    past_run(1, 2000.0, spec=spec, on=machine)
    past_run(2, 2000.0, spec=spec, on=machine)
    found = Session().forecast("array_sum", {"size": "1GiB"}, SPEC)
    assert found.seconds is None
    assert f"Time unknown: it ran on other hardware only ({spec.profile}). Measure it" in found.sentence
    for number in (3, 4):
        past_run(number, 2.0)
    found = Session().forecast("array_sum", {"size": "1GiB"}, SPEC)
    assert found.seconds["high"] < 10


def test_runs_on_gpus_tell_of_gpus_of_the_same_name_only(data_folder):
    spec, machine = on_gpus("A card", "A card")
    run = past_run(1, 2.0, spec=spec, on=machine)
    assert devices.ran_on(run, spec, machine)
    assert not devices.ran_on(run, *on_gpus("A card", "Another card"))
    assert not devices.ran_on(run, *on_gpus("A card"))
    assert not devices.ran_on(run, *on_gpus("A card", "A card", "A card"))
    assert not devices.ran_on(run, SPEC, machine)


def drawn(source, size, threads, noise):
    """Return a run of a workload with a part that is the same for all sizes, relative to a request of 1 GiB."""
    seconds = (0.2 + 4 * size / threads**0.8) * math.exp(noise * source.standard_normal())
    return Point(math.log(seconds), {"size": math.log(size), "threads": math.log(threads)}, 0.15 * abs(math.log(size)))


@pytest.mark.parametrize("n_runs", [1, 2, 10])
@pytest.mark.parametrize("noise", [0.06, 0.3])
def test_four_in_five_times_lie_in_the_range_of_runs_of_the_same(n_runs, noise):
    source, within, rough = np.random.default_rng(n_runs), 0, 0
    for _ in range(400):
        *past, following = (drawn(source, 1, 1, noise) for _ in range(n_runs + 1))
        found = fit(past, "runs")
        # A range wider than a factor of a hundred isn't reported.
        within += found is None or found.low <= math.exp(following.log) <= found.high
        rough += found is not None and found.rough
    # One run doesn't claim "four in five": it gives the order of magnitude, and says so.
    assert rough == (400 if n_runs == 1 else 0)
    assert n_runs == 1 or 0.75 <= within / 400 <= 0.9


@pytest.mark.parametrize("n_runs", [5, 10])
def test_at_least_three_in_four_times_lie_in_the_range_of_runs_of_other_sizes_and_threads(n_runs):
    source, within, told = np.random.default_rng(n_runs), 0, 0
    for _ in range(400):
        past = [drawn(source, 2.0 ** source.integers(-4, 3), 2.0 ** source.integers(0, 3), 0.1) for _ in range(n_runs)]
        found = fit(past, "runs")
        if found is not None and not found.rough:
            told += 1
            within += found.low <= math.exp(drawn(source, 1, 1, 0.1).log) <= found.high
    assert told > 100
    assert within / told >= 0.75


def test_time_grows_with_the_work_that_a_workload_names_instead_of_its_bytes():
    def needs(n, *, named=True):
        return Needs(sentence="", input_bytes=n, work=float(n) ** 2 if named else None)

    def run(n, of):
        facts = {"workload": "f", "cluster": "c", "spec": SPEC, "status": "done", "inventory": HERE}
        return Run(id=f"f-{n}", seconds=1e-4 * n**2, resolved={}, needs=of.model_dump(), **facts)

    runs = [run(n, needs(n)) for n in (100, 200, 300)]
    found = history.seconds_of(runs, {}, needs(1000), SPEC, None)
    assert found.low <= 100 <= found.high
    assert found.middle == pytest.approx(100, rel=0.2)
    # Runs that were recorded before the work was named tell nothing of it.
    assert history.seconds_of([run(100, needs(100, named=False))], {}, needs(1000), SPEC, None) is None


def test_as_many_runs_as_unknowns_give_no_range_that_four_in_five_lie_in():
    def runs(*sizes):
        facts = {"workload": "f", "cluster": "c", "spec": SPEC, "status": "done", "inventory": HERE}
        return [Run(id=f"f-{n}", seconds=n / 10 + 1e-3 * i, resolved={"n": n}, **facts) for i, n in enumerate(sizes)]

    two, three = (
        history.seconds_of(runs(*sizes), {"n": 1200}, None, SPEC, None) for sizes in ((400, 800), (400, 800, 900))
    )
    assert two.rough
    assert two.high / two.low >= 10
    assert two.source == "2 runs on such a cluster; too few to say how far it may be off"
    assert not three.rough
    assert three.low < 120 < three.high


# -- elsewhere, and what it costs


def test_the_post_is_told_for_its_own_workload_and_marked_as_published(data_folder):
    found = Session().forecast("array_sum", {"shape": [500_000, 500_000], "chunks": 10_000}, SPEC)
    told = {one["machine"]: (one["seconds"]["low"], one["basis"]) for one in found.elsewhere}
    assert told["one V100 (2019)"] == (pytest.approx(97), "published")
    assert told["eight V100 (2019)"] == (pytest.approx(19), "published")
    assert told["forty CPU cores (2019)"] == (pytest.approx(690), "published")
    assert told["one CPU core (2019)"] == (pytest.approx(9540), "published")
    assert all("post" in one["source"] for one in found.elsewhere)


def test_an_imported_run_counts_for_its_own_machine_and_not_for_this(data_folder):
    theirs = {"cpu": {"model": "another", "usable": 64}}
    for number in range(3):
        past_run(number, 1.0, spec=SPEC.model_copy(update={"n_workers": 64}), on=theirs, machine="bigbox")
    found = Session().forecast("array_sum", {"size": "1GiB"}, SPEC)
    assert found.seconds is None
    there = found.elsewhere[0]
    assert (there["machine"], there["basis"]) == ("bigbox", "imported")
    assert there["source"] == "3 imported runs with 64 workers × 1 thread, 64 GiB (1 GiB each)"
    assert there["seconds"]["low"] < 2.0 < there["seconds"]["high"]


def test_a_price_of_an_hour_gives_the_cost_of_a_forecast_and_of_a_run(data_folder):
    for number in (3, 4):
        past_run(number, 2.0)
    with dask.config.set({"workbench.prices": {"cpu": 36.0}}):
        found = Session().forecast("array_sum", {"size": "1GiB"}, SPEC)
    middle = math.sqrt(found.seconds["low"] * found.seconds["high"])
    assert found.cost == pytest.approx(middle / 100)
    assert "at a cost of about" in found.sentence
    run = past_run(1, 50.0, forecast={"price_per_hour": 36.0})
    assert run.cost == pytest.approx(0.5)
    assert json.loads(run.model_dump_json())["cost"] == pytest.approx(0.5)
    assert past_run(2, 50.0).cost is None
    assert [machines.cost_text(each) for each in (0.0, 4.73e-5, 0.5, 1234.5)] == ["0", "0.0000473", "0.5", "1234"]


def test_a_machine_has_a_price_of_its_own_which_goes_before_its_profiles(data_folder, capsys):
    from workbench.cli import main

    past_run(1, 2.0)
    past_run(2, 2.0, on={"cpu": {"model": "another", "usable": 64}}, machine="bigbox")
    prices = {"cpu": 36.0, devices.host(): 72.0, "bigbox": 7.2, "one V100 (2019)": 3.6}
    with dask.config.set({"workbench.prices": prices}):
        found = Session().forecast("array_sum", {"size": "1GiB"}, SPEC)
        on = ["--on", "cpu --workers 2 --threads 1 --memory 2GiB"]
        assert main(["forecast", "array_sum", "-p", "size=1GiB", *on]) == 0
    assert found.cost == pytest.approx(math.sqrt(found.seconds["low"] * found.seconds["high"]) / 50)
    there = {one["machine"]: one for one in found.elsewhere}
    for machine, of_a_second in (("bigbox", 1 / 500), ("one V100 (2019)", 1 / 1000)):
        middle = math.sqrt(there[machine]["seconds"]["low"] * there[machine]["seconds"]["high"])
        assert there[machine]["cost"] == pytest.approx(middle * of_a_second)
    assert there["eight V100 (2019)"]["cost"] is None
    told = capsys.readouterr().out
    assert "cost" in told
    assert next(line for line in told.splitlines() if "one V100" in line).count(
        machines.cost_text(there["one V100 (2019)"]["cost"], 2)
    )


# -- the faces


def test_the_command_line_forecasts_in_json_and_refuses_what_wont_fit(data_folder, capsys):
    from workbench.cli import main

    on = "cpu --workers 2 --memory 2GiB"
    assert main(["forecast", "array_sum", "--on", on, "-p", "size=1GiB", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["fits"] is True
    assert {"seconds", "memory_per_worker", "verdict", "sentence", "basis", "off_by"} <= told.keys()
    large = ["-p", "shape=50000,50000", "-p", "chunks=20000", "-p", "generator=RandomState"]
    assert main(["run", "array_sum", "--on", on, *large]) == 2
    said = capsys.readouterr().err
    assert "Won't fit" in said
    assert "--force" in said
    assert Session().clusters() == ()
    assert main(["forecast", "array_sum", "--on", on, *large]) == 0
    assert "won't fit" in capsys.readouterr().out


def test_a_cluster_that_a_command_starts_for_itself_and_that_fails_is_in_no_list(data_folder, capsys):
    from workbench.cli import main

    with dask.config.set({"workbench.start-timeout": "50ms"}):
        assert main(["run", "array_sum", "--on", "cpu --workers 1 --memory 1GiB"]) == 1
    assert "failed to start. After 50 ms" in capsys.readouterr().err
    assert records.names() == ()


@pytest.mark.parametrize("value", [10**20, 10**400, 0, -3, math.nan, math.inf, True, None, "text", [1], {"a": 1}])
def test_no_value_of_a_parameter_of_ones_own_breaks_a_forecast(value):
    given, there = (value, 7, value, 2**70), {"spec": SPEC, "inventory": HERE}
    runs = [
        Run(id=f"f-{n}", workload="f", cluster="c", status="done", seconds=1.0, resolved={"n": each}, **there)
        for n, each in enumerate(given)
    ]
    assert all(devices.ran_on(run, SPEC, None) for run in runs)
    for wanted in (value, 3, 10**30, math.nan, "other"):
        found = history.seconds_of(runs, {"n": wanted}, None, SPEC, None)
        assert found is None or found.middle > 0


def test_a_run_begins_also_where_what_would_tell_its_time_fails(data_folder, monkeypatch, caplog):
    monkeypatch.setattr(history, "runs_of", lambda *_: 1 / 0)
    told = Session().forecast("array_sum", {"size": "1MiB"}, SPEC)
    assert (told.verdict, told.seconds) == ("fits", None)
    assert "Past runs of array_sum can't be used for a forecast: ZeroDivisionError" in caplog.text
