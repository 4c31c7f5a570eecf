"""Samples of GPUs: read, merged, recorded; with real clusters on simulated devices."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pytest
from pyarrow import parquet

from tests import commands
from tests.simulated import SimulatedNvml
from workbench.hardware.gauges import GpuSample
from workbench.monitor import plugin
from workbench.monitor.energy import Energy, Meter
from workbench.monitor.events import Batch, NoGpus
from workbench.monitor.gpu_record import gpu_path
from workbench.monitor.record import Recorder, finish_recording, read_events
from workbench.monitor.wire import unpack
from workbench.packages import installed_version

needs_dask_cuda = pytest.mark.skipif(
    installed_version("dask-cuda") is None, reason="dask-cuda isn't installed, which starts a worker for each GPU."
)

FIRST = "GPU-00000000-0000-0000-0000-000000000000"

WATCH = """
import dataclasses, json, os, sys, time
from pathlib import Path
from distributed import Client, LocalCluster
from tests.feeds import Feed

def seen(client, enough, seconds=20, act=None):
    samples, nothing, deadline = [], [], time.monotonic() + seconds
    with Feed(client) as feed:
        while time.monotonic() < deadline and not enough(samples, nothing):
            for batch in feed.take():
                samples += batch.gpus
                nothing += batch.no_gpus or ()
            if act is not None:
                act(samples)
            time.sleep(0.05)
    return samples, nothing

def names(samples):
    return {sample.name for sample in samples}

def tell(samples, nothing=()):
    print(json.dumps({"samples": [dataclasses.asdict(each) for each in samples],
                      "nothing": [dataclasses.asdict(each) for each in nothing]}))

if __name__ == "__main__":
"""

CUDA = """
    from dask_cuda import LocalCUDACluster
    with LocalCUDACluster(dashboard_address="127.0.0.1:0", memory_limit="512MiB") as cluster, Client(cluster) as client:
"""

PLAIN = """
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
      with Client(cluster) as client:
"""


@pytest.fixture
def watched(simulated_nvml: SimulatedNvml, tmp_path: Path):
    """Return a function that runs a client on simulated GPUs, and returns its samples by UUID, and reasons."""

    def run(code: str, gpus: int, **settings):
        script = tmp_path / "watch.py"
        script.write_text(WATCH + code)
        done = subprocess.run(
            [sys.executable, str(script)],
            env=simulated_nvml.environment(gpus, **settings),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout.splitlines()[-1])
        by_uuid: dict[str, list] = {}
        for sample in told["samples"]:
            by_uuid.setdefault(sample["uuid"], []).append(sample)
        return by_uuid, told["nothing"]

    return run


# With real clusters


@needs_dask_cuda
def test_each_of_several_gpus_is_seen_once_with_its_load_and_one_that_is_lost_says_so(watched, tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    code = CUDA + (
        "        def lose(samples):\n"
        f"            if len(names(samples)) == 2: Path({str(lost)!r}).touch()\n"
        "        def enough(samples, _):\n"
        "            first = [i for i, each in enumerate(samples) if each.utilisation is None]\n"
        "            return first and len(samples) > first[0] + 6\n"
        "        tell(*seen(client, enough, act=lose))"
    )
    by_uuid, nothing = watched(code, 2, load="40", used=[0, 1 << 20], lost={1: lost})
    assert nothing == []
    assert {samples[0]["name"] for samples in by_uuid.values()} == {f"SIMULATED GPU {index}" for index in range(2)}
    for samples in by_uuid.values():
        index = samples[0]["index"]
        assert samples[0]["memory_used"] - (index << 20) == by_uuid[FIRST][0]["memory_used"] > 2**30
        assert (samples[0]["power"], samples[0]["power_limit"], samples[0]["temperature"]) == (140, 300, 48)
        assert samples[0]["throttle"] == []
        times = [sample["time"] for sample in samples]
        assert times == sorted(set(times))
    well, gone = (by_uuid[f"GPU-00000000-0000-0000-0000-{index:012}"] for index in range(2))
    assert {sample["utilisation"] for sample in well} == {40}
    assert (gone[0]["utilisation"], gone[-1]["utilisation"]) == (40, None)
    assert gone[-1]["name"] == "SIMULATED GPU 1"
    assert set(gone[-1]["absent"].values()) == {"the GPU has fallen off the bus"}
    assert {sample["time"] for sample in well if sample["time"] > gone[-1]["time"] - 1}


def test_two_workers_on_one_gpu_are_one_gpu_and_both_are_ours(watched) -> None:
    # Each process is said to use 1000 bytes, so a reader finds one process: its own.
    code = PLAIN + "        tell(*seen(client, lambda samples, _: len(samples) > 12))"
    by_uuid, nothing = watched(code, 1, load="0,50", processes="0:self:1000")
    ((samples),) = by_uuid.values()
    assert nothing == []
    assert samples[-1]["memory_ours"] in (1000, None)
    times = [sample["time"] for sample in samples]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert min(gaps) > 0.1, "two workers sampled the same GPU"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (9, "The NVIDIA driver is installed but not loaded (NVML: Driver Not Loaded)."),
        (999, "The NVIDIA driver doesn't answer (NVML: Unknown Error)."),
    ],
)
def test_nvml_that_does_not_start_is_a_reason(simulated_nvml: SimulatedNvml, code: int, reason: str) -> None:
    said = simulated_nvml.python(
        "from workbench.hardware.sampling import *\ntry: Devices()\n"
        "except NoGpusError as err: print(err.expected, err)",
        errors={"nvmlInitWithFlags": code},
    )
    assert said.startswith(f"True {reason}")


def test_workers_without_nvml_give_one_reason_for_their_host(watched) -> None:
    code = PLAIN.replace("threads", "processes=False, threads") + (
        "        tell(*seen(client, lambda _, nothing: nothing))"
    )
    by_uuid, (nothing,) = watched(code, 1, errors={"nvmlInitWithFlags": 9})
    assert by_uuid == {}
    assert nothing["expected"]
    assert "installed but not loaded" in nothing["reason"]


# One device


READ = """
import json, sys, time
from workbench.hardware.sampling import Devices
devices = Devices()
device = devices.device(devices.uuids[0])
device.read_slowly()
device.read_pcie("pcie_rx")
first = device.read()
time.sleep(0.1)
print(json.dumps([device.uuid, first, device.read()]))
"""


def reading(simulated_nvml, *, env=None, **settings):
    return json.loads(simulated_nvml.python(READ, env=env, **settings))


def test_every_call_may_be_refused_by_itself(simulated_nvml: SimulatedNvml) -> None:
    refused = {"nvmlDeviceGetPowerUsage": 3, "nvmlDeviceGetTemperature": 4, "nvmlDeviceGetClockInfo": 13}
    _, first, _ = reading(simulated_nvml, errors=refused, load="busy")
    assert first["absent"]["power"] == "not supported by this GPU"
    assert first["absent"]["temperature"] == "this account has no permission to read it"
    assert first["absent"]["clock"] == "the driver is too old to report it"
    assert (first["utilisation"], first["pcie_rx"]) == (97, pytest.approx(0.97 * 4e9, rel=0.01))


def test_a_gpu_without_memory_of_its_own_says_so(simulated_nvml: SimulatedNvml) -> None:
    _, first, _ = reading(simulated_nvml, memory="none")
    assert first["absent"]["memory_used"] == first["absent"]["memory_total"]
    assert "shares the memory of its machine" in first["absent"]["memory_used"]


def test_a_slice_has_memory_and_says_what_it_does_not_tell(simulated_nvml: SimulatedNvml) -> None:
    slice_ = "MIG-00000000-0000-0000-0000-000000000001"
    uuid, first, _ = reading(simulated_nvml, mig={0: 2}, env={"CUDA_VISIBLE_DEVICES": slice_})
    assert (uuid, first["name"], first["index"]) == (slice_, "SIMULATED GPU 0 MIG 1g.10gb", 0)
    assert first["memory_total"] == 80 * 2**30 / 8
    assert "cut into slices (MIG)" in first["absent"]["utilisation"]


def test_nvlink_is_a_rate_over_all_links(simulated_nvml: SimulatedNvml) -> None:
    _, first, second = reading(simulated_nvml, preset="dgx1")
    assert first["absent"]["nvlink_rx"] == "not read yet"
    # The simulated counters grow by a million kibibytes each second.
    assert second["nvlink_rx"] == pytest.approx(1024e6, rel=0.2)
    assert "nvlink_tx" in second


def test_only_the_gpus_in_sight_are_sampled_the_own_one_first(simulated_nvml: SimulatedNvml) -> None:
    code = "from workbench.hardware.sampling import *\nprint([uuid[-1] for uuid in Devices().uuids])"
    for shown, seen in (("2,0", "['2', '0']"), ("1,9,0", "['1']")):
        assert simulated_nvml.python(code, 4, env={"CUDA_VISIBLE_DEVICES": shown}).strip() == seen


# What the scheduler makes of it


class Worker:
    time_delay = 100.0


class Scheduler:
    workers: ClassVar = {"tcp://a:1": Worker(), "tcp://a:2": Worker(), "tcp://b:1": Worker()}


def message(worker="tcp://a:1", pid=1, host="a", watch="w", pids_known=True, **more):
    return {"worker": worker, "pid": pid, "host": host, "watch": watch, "pids_known": pids_known} | more


def raw(time=10.0, **more):
    return {"uuid": "GPU-1", "name": "SIMULATED", "index": 0, "time": time, "absent": {}} | more


@pytest.fixture
def gpus():
    return plugin.Gpus(Scheduler(), "w", b"")


def test_memory_of_all_workers_on_a_host_is_ours(gpus) -> None:
    gpus.take(message())
    gpus.take(message("tcp://a:2", 2))
    gpus.take(message("tcp://b:1", 3, "b"))
    gpus.take(message(samples=[raw(processes=[[1, 10], [2, 20], [3, 40], [4, 80]])]))
    (sample,) = gpus.news()["gpus"]
    assert (sample["memory_ours"], sample["host"], sample["time"]) == (30, "a", 110.0)


def test_inside_a_container_nobody_knows_what_is_ours(gpus) -> None:
    gpus.take(message(pids_known=False, samples=[raw(processes=[])]))
    (sample,) = gpus.news()["gpus"]
    assert "memory_ours" not in sample
    assert sample["absent"] == {"memory_ours": plugin.NO_PIDS}


def test_a_gpu_that_two_workers_read_is_taken_from_one(gpus) -> None:
    gpus.take(message(samples=[raw()]))
    gpus.take(message("tcp://a:2", 2, samples=[raw(10.1)]))
    gpus.take(message(samples=[raw(10.2)]))
    assert [sample["time"] for sample in gpus.news()["gpus"]] == [110.0, 110.2]


def test_samples_for_another_watch_are_left_out(gpus) -> None:
    gpus.take(message(watch="before", samples=[raw()]))
    assert gpus.news() == {}


def test_who_comes_later_is_told_the_reasons_again(gpus) -> None:
    gpus.take(message(nothing="No NVIDIA driver.", expected=False))
    gpus.take(message("tcp://a:2", 2, nothing="No NVIDIA driver.", expected=False))
    told = {"no_gpus": [("a", "No NVIDIA driver.", False)]}
    assert gpus.news() == told
    assert gpus.news() == {}
    gpus.repeat()
    assert gpus.news() == told


def test_what_a_later_version_adds_to_a_sample_is_left_out() -> None:
    batch = unpack({"time": 1.0, "gpus": [raw(host="a", throttle=["idle"], colour="green")]})
    assert batch.gpus == (GpuSample("GPU-1", "SIMULATED", 0, "a", 10.0, throttle=("idle",)),)


# On disk


FULL = GpuSample(
    uuid="GPU-1",
    name="SIMULATED GPU 1",
    index=1,
    host="a",
    time=10.0,
    utilisation=33.3,
    memory_used=2**30,
    memory_total=2**33,
    power=123.4,
    energy=1000.0,
    throttle=("power cap", "idle"),
    absent={"memory_ours": plugin.NO_PIDS},
)
REASON = NoGpus("b", "The NVIDIA driver doesn't answer.", True)


def test_samples_are_recorded_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    with Recorder(path) as recorder:
        recorder.write(Batch(10.0, gpus=(FULL,), no_gpus=(REASON,)))
        recorder.write(Batch(11.0, gpus=(replace(FULL, time=11.0, throttle=()),)))
        assert read_events(path).gpus == (FULL, replace(FULL, time=11.0, throttle=()))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["events.parquet", "gpus.parquet"]
    batch = read_events(path)
    assert batch.gpus == (FULL, replace(FULL, time=11.0, throttle=()))
    assert batch.no_gpus == (REASON,)


def test_without_gpus_there_is_no_file_for_them(tmp_path: Path) -> None:
    with Recorder(tmp_path / "events.parquet") as recorder:
        recorder.write(Batch(10.0, no_gpus=(NoGpus("a", "No NVIDIA driver was found.", False),)))
    assert [file.name for file in tmp_path.iterdir()] == ["events.parquet"]
    assert read_events(tmp_path / "events.parquet").gpus == ()


def test_a_file_from_before_simulated_gpus_were_marked_is_read(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    with Recorder(path) as recorder:
        recorder.write(Batch(10.0, gpus=(replace(FULL, simulated=True),)))
    assert read_events(path).gpus == (replace(FULL, simulated=True),)
    file = gpu_path(path)
    parquet.write_table(parquet.read_table(file).drop_columns("simulated"), file)
    assert read_events(path).gpus == (FULL,)


def test_samples_of_a_killed_recorder_are_finished(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    recorder = Recorder(path)
    recorder.write(Batch(10.0, gpus=(FULL,)))
    finish_recording(path)
    assert read_events(path).gpus == (FULL,)
    recorder.close()


# Energy


def energy(samples: list[GpuSample]) -> Energy | None:
    meter = Meter()
    meter.feed(samples)
    return meter.energy()


def test_energy_comes_from_the_counters() -> None:
    samples = [replace(FULL, time=10.0 + index, energy=1000.0 + 50 * index) for index in range(5)]
    other = [replace(each, uuid="GPU-2", energy=2 * (each.energy or 0)) for each in samples]
    found = energy([*samples, *other])
    assert (found.joules, found.seconds, found.n_gpus, found.source) == (600.0, 4.0, 2, "counters")


def test_energy_of_a_counter_that_begins_anew_misses_one_step() -> None:
    readings = [1000.0, 1100.0, 10.0, 110.0]
    samples = [replace(FULL, time=float(index), energy=joules) for index, joules in enumerate(readings)]
    assert energy(samples).joules == 200.0


def test_energy_is_power_over_time_where_there_is_no_counter() -> None:
    samples = [replace(FULL, time=float(index), energy=None, power=100.0 * index) for index in range(3)]
    found = energy([*samples, replace(FULL, uuid="GPU-2", energy=None, power=None)])
    assert (found.joules, found.source, found.n_gpus, found.n_unknown) == (200.0, "power", 1, 1)


def test_energy_of_one_sample_is_unknown() -> None:
    assert energy([FULL]) is None


# With a run


def test_a_run_keeps_the_energy_and_the_samples_of_the_gpus_that_it_saw(
    simulated_nvml: SimulatedNvml, data_folder: Path
) -> None:
    command = [
        sys.executable,
        "-m",
        "workbench",
        "run",
        "array_sum",
        "--on",
        "cpu --workers 1 --threads 1",
        "-p",
        "size=512MiB",
    ]
    env = simulated_nvml.environment(2, load="busy")
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    run = commands.answer("show", "last")
    assert "by 2 GPUs in" in commands.printed("show", "last")
    # The simulated counters grow by 40 joules each second; samples come late where others compute, too.
    assert run["energy"]["joules"] == pytest.approx(2 * 40 * run["energy"]["seconds"], rel=0.4)
    assert (run["energy"]["n_gpus"], run["energy"]["source"]) == (2, "counters")
    recorded = read_events(data_folder / "runs" / run["id"] / "events.parquet")
    assert {sample.name for sample in recorded.gpus} == {"SIMULATED GPU 0", "SIMULATED GPU 1"}
