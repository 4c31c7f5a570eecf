import os
import platform
import signal

import dask
import pytest

import workbench
from tests.test_backend import device_client
from workbench import remote
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, ConflictError, FailedError
from workbench.hardware import rates
from workbench.runs.forecasting import calibration
from workbench.runs.forecasting.calibration import Calibration
from workbench.travelling import Travelling

__all__ = ["device_client"]  # a fixture


def example(**changes):
    """A calibration of two workers of a thread each, on this machine."""
    cpu = calibration.processor()
    facts = {
        "machine": calibration.host(),
        "processor": cpu.model or "unknown",
        "cores": cpu.usable,
        "profile": "cpu",
        "n_workers": 2,
        "threads_per_worker": 1,
        "protocol": "tls",
        "when": 1.7e9,
        "rates": dict.fromkeys(rates.KINDS, 1e9),
        "one_thread": dict.fromkeys(rates.SERIAL, 5e8),
        "moved": 5e8,
        "task_seconds": 1e-3,
        "start_seconds": 0.05,
        "spread": 0.05,
        "load": 0.0,
    }
    return Calibration(**(facts | changes))


SMALL = {"_ELEMENTS": 40_000, "_SIDE": 64, "_FILE_BYTES": 10_000}


@pytest.fixture
def small_pieces(monkeypatch):
    """Work that is done in no time; what it says is worth nothing."""
    monkeypatch.setattr(calibration, "_SECONDS_OF_A_KIND", 0.0)
    monkeypatch.setattr(calibration, "_SECONDS_OF_A_RUN", 0.0)
    monkeypatch.setattr(calibration, "_RUNS_MEASURED", 1)
    monkeypatch.setattr(calibration, "_LARGE_GRAPH", 4)
    for name, value in SMALL.items():
        monkeypatch.setattr(rates, name, value)


def small_where_it_arrives(client):
    for name, value in SMALL.items():
        client.run(setattr, Travelling(rates), name, value)


@pytest.mark.parametrize("kind", rates.KINDS)
def test_each_kind_of_work_has_a_rate_and_leaves_no_file(kind, tmp_path, small_pieces):
    assert rates.measure(kind, 0.0, tmp_path) > 0
    assert rates.UNITS[kind] in ("numbers", "bytes", "operations")
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_is_measured_in_all_its_threads(quick_client, spec, small_pieces):
    small_where_it_arrives(quick_client)
    found = calibration.measure(quick_client, spec)
    assert set(found.rates) - {"fast"} == set(rates.KINDS)
    assert all(rate > 0 for rate in found.rates.values())
    assert found.moved is not None
    assert found.moved > 0
    assert 0 < found.task_seconds < 1
    assert found.load >= 0
    assert Calibration.model_validate_json(found.model_dump_json()) == found


def test_a_cluster_elsewhere_teaches_nothing_about_this_machine(
    quick_client, spec, data_folder, monkeypatch, small_pieces
):
    small_where_it_arrives(quick_client)
    # To those who ask, all workers are on another machine than this one.
    monkeypatch.setattr(remote, "place", lambda: "here")
    monkeypatch.setattr(calibration, "_rates", lambda *_, **__: [dict.fromkeys(rates.KINDS, 1e9)])
    found = calibration.measure(quick_client, spec)
    assert found.measured == "elsewhere"
    assert found.machine == platform.node()
    calibration.keep(found)
    assert calibration.for_spec(spec) is None
    assert calibration.kept("elsewhere") == (found,)


def test_gpus_are_measured_by_the_same_pieces_made_of_cupys_arrays(device_client, data_folder, small_pieces):
    gpus = ClusterSpec(
        profile="gpu", n_workers=1, threads_per_worker=2, memory_limit=2**30, devices=("GPU-0",), cupy=True
    )
    small_where_it_arrives(device_client)
    found = calibration.measure(device_client, gpus)
    assert set(found.rates) == set(rates.KINDS)
    assert all(rate > 0 for rate in (*found.rates.values(), *found.one_thread.values()))
    assert found.device == "GPU"
    assert "1 × GPU, 2 threads" in found.describe()
    calibration.keep(found)
    assert calibration.for_spec(gpus) == found
    assert calibration.for_spec(ClusterSpec(n_workers=1, threads_per_worker=2, memory_limit=2**30)) is None


def test_a_worker_that_ends_meanwhile_is_told_in_one_sentence(data_folder, small_pieces, monkeypatch):
    with workbench.start("cpu", n_workers=2, threads_per_worker=1, memory="1GiB") as cluster:
        travelling = calibration._travelling

        def killing(client, spec):
            os.kill(min(cluster.record.worker_pids), signal.SIGKILL)
            # What only the worker that is gone may compute never comes.
            return travelling(client, spec)

        monkeypatch.setattr(calibration, "_travelling", killing)
        with pytest.raises(FailedError, match=f"^A worker of {cluster.name} ended while it was measured, .*again"):
            workbench.Session().calibrate(cluster.name)
    assert calibration.kept("here") == ()


def test_a_gpu_cluster_without_cupy_is_not_measured_and_the_remedy_is_named(data_folder):
    spec = ClusterSpec(profile="gpu", n_workers=1, threads_per_worker=1, memory_limit=2**30, devices=("GPU-0",))
    record = ClusterRecord(name="calm-otter", spec=spec, status="ready", n_workers=1)
    with pytest.raises(ConflictError, match=r"have no CuPy, with which its GPUs are measured\. Install it"):
        calibration.calibrate(record)


def test_two_gpus_do_twice_as_much_as_one_and_more_threads_nothing_more():
    from workbench.runs.forecasting.duration import model_seconds
    from workbench.workloads.registry import template

    found = example(profile="gpu", n_workers=1, device="A card", task_seconds=0.0, start_seconds=0.0)
    chosen = template("array_sum")
    needs = chosen.needs(chosen.validate({"shape": [8000, 8000], "chunks": 2000}, on_gpu=True))
    one, threads, two = (model_seconds(needs, found, workers, many) for workers, many in ((1, 1), (1, 4), (2, 2)))
    assert one == threads == pytest.approx(2 * two)


def test_what_was_measured_is_found_again_for_clusters_of_that_shape(data_folder):
    spec = ClusterSpec(n_workers=2, threads_per_worker=1, memory_limit=2**30)
    assert calibration.for_spec(spec) is None
    calibration.keep(example())
    calibration.keep(example(n_workers=8, moved=1e9))
    found = calibration.for_spec(spec)
    assert found == example()
    assert calibration.distance(found, spec) == 0
    near = calibration.for_spec(spec.model_copy(update={"n_workers": 6}))
    assert near is not None
    assert near.n_workers == 8
    assert calibration.distance(near, spec) > 0


def test_a_newer_calibration_takes_the_place_of_the_older(data_folder):
    calibration.keep(example())
    calibration.keep(example(when=1.8e9))
    assert [one.when for one in calibration.kept("here")] == [1.8e9]


def test_another_machine_in_the_same_data_folder_is_not_this_one(data_folder, spec):
    calibration.keep(example(machine="other", processor="Another processor"))
    assert calibration.for_spec(spec) is None


def test_a_colleagues_file_becomes_a_machine_measured_elsewhere(data_folder, tmp_path, spec):
    path = tmp_path / "colleague.json"
    path.write_text(example(machine="bigbox", cores=64, n_workers=8, threads_per_worker=8).model_dump_json())
    assert calibration.load(path).measured == "elsewhere"
    assert [(each.machine, each.threads) for each in calibration.kept("elsewhere")] == [("bigbox", 64)]
    assert calibration.for_spec(spec) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not JSON", "Invalid JSON"),
        ('{"machine": "x"}', "processor: Field required"),
        (None, "No such file"),
        ("nothing measured", "no positive number"),
        ("from the future", "in format 99"),
    ],
)
def test_a_file_that_is_no_calibration_is_refused_in_one_sentence(data_folder, tmp_path, text, said):
    path = tmp_path / "file.json"
    made = {"nothing measured": example(rates={}), "from the future": example(format=99)}
    if text is not None:
        path.write_text(made[text].model_dump_json() if text in made else text)
    with pytest.raises(BadInputError, match=rf"can't be used as a calibration \(.*{said}.*\)\. Give a file"):
        calibration.load(path)
    assert calibration.kept("elsewhere") == ()


def test_a_broken_file_among_the_kept_is_passed_over(data_folder):
    path = calibration.keep(example())
    path.with_name("broken.json").write_text("{")
    assert calibration.kept("here") == (example(),)


def test_a_calibration_on_a_busy_machine_says_so():
    quiet, busy = example(cores=2), example(cores=2, load=1.8)
    assert "busy" not in quiet.describe()
    assert "1.8 of its 2 cores were busy with something else meanwhile" in busy.describe()


def test_forecasts_of_a_cluster_elsewhere_are_of_the_machines_it_is_on(data_folder):
    from workbench.clusters.plan import plan
    from workbench.hardware import inventory
    from workbench.runs.forecasting.forecast import forecast
    from workbench.runs.forecasting.machines import price_per_hour
    from workbench.workloads.registry import template

    spec = ClusterSpec(n_workers=2, threads_per_worker=4, memory_limit=2**30, profile="ssh", elsewhere=True)
    machine = {"host": "a, b", "cpu": {"model": "Big", "usable": 8}, "memory": {"total": 2**31}, "load": 0.0}
    there = ClusterRecord(name="far", spec=spec, status="ready", n_workers=2, machine=machine)
    chosen, size = template("array_sum"), {"size": "64MiB"}
    calibration.keep(example(profile="ssh"))
    assert forecast(chosen, size, there).seconds is None
    found = example(profile="ssh", machine="a, b", processor="Big", cores=8, measured="elsewhere")
    calibration.keep(found)
    assert calibration.for_spec(spec, machine) == found
    with dask.config.set({"workbench.prices": {"a": 2, "b": 1, "ssh": 7}}):
        told = forecast(chosen, size, there)
        assert (told.basis, told.verdict) == ("measured elsewhere", "fits")
        assert told.cost == pytest.approx(3 / 3600 * (told.seconds["low"] * told.seconds["high"]) ** 0.5)
        assert price_per_hour(spec, "a, c") == 7
    unknown = plan("ssh", inventory(), hosts="a,b")
    assert forecast(chosen, size, unknown).verdict is None
