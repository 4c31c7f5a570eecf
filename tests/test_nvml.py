"""The inventory of GPUs, on simulated devices: each in a process that loads the simulated NVML."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.simulated import GIB, SimulatedNvml
from workbench.hardware import Inventory

NVML_ERRORS = {
    1: "Uninitialized",
    4: "Insufficient Permissions",
    9: "Driver Not Loaded",
    10: "Timeout",
    13: "Function Not Found",
    15: "GPU is lost",
    17: "The operating system has blocked the request",
    18: "RM has detected an NVML/RM version mismatch",
    20: "Insufficient Memory",
    999: "Unknown Error",
}
CAUSES = {
    4: "This account may not use the NVIDIA driver",
    9: "The NVIDIA driver is installed but not loaded",
    15: "A GPU has fallen off the bus",
    18: "The NVIDIA driver was replaced and this machine not restarted since",
}


def uuid(gpu: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{gpu:012d}"


def slice_uuid(gpu: int, number: int) -> str:
    return f"MIG-00000000-0000-0000-{gpu:04d}-{number:012d}"


def none_values(value: Any, name: str) -> set[str]:
    if isinstance(value, dict):
        return set().union(*(none_values(item, f"{name}.{key}") for key, item in value.items()))
    return {name} if value is None else set()


@pytest.mark.parametrize("gpus", [1, 8])
def test_each_device_is_listed_and_says_that_it_is_simulated(simulated_nvml: SimulatedNvml, gpus: int) -> None:
    found = simulated_nvml.inventory(gpus)
    assert [gpu.name for gpu in found.gpus] == [f"SIMULATED GPU {index}" for index in range(gpus)]
    assert [gpu.uuid for gpu in found.gpus] == [uuid(index) for index in range(gpus)]
    assert all(gpu.visible for gpu in found.gpus)


def test_every_value_of_a_gpu_is_read(simulated_nvml: SimulatedNvml) -> None:
    settings = {"preset": "dgx1", "memory": 16 * GIB, "processes": "4:4321:1073741824"}
    gpu = simulated_nvml.inventory(**settings, load="busy").gpus[4]
    assert (gpu.memory_total, gpu.memory_free, gpu.memory_used) == (
        16 * GIB,
        16 * GIB - gpu.memory_used,
        gpu.memory_used,
    )
    assert [(each.pid, each.memory) for each in gpu.processes] == [(4321, GIB)]
    assert (gpu.utilisation, gpu.compute_capability, gpu.power_limit) == (97, "7.0", 300.0)
    assert (gpu.pci_address, gpu.numa_node, gpu.cpu_affinity) == ("0000:85:00.0", 1, "20-39,60-79")
    assert gpu.pcie.model_dump() == {"generation": 3, "width": 16, "max_generation": 3, "max_width": 16}
    assert [(each.to, each.peer, each.count) for each in gpu.nvlinks] == [
        ("gpu", 0, 2),
        ("gpu", 5, 1),
        ("gpu", 6, 1),
        ("gpu", 7, 2),
    ]


def test_the_versions_of_driver_and_cuda_are_read(simulated_nvml: SimulatedNvml) -> None:
    cuda = simulated_nvml.inventory().cuda
    assert cuda.driver_version.startswith("580.")
    assert (cuda.version, cuda.visible_devices) == ("13.0", None)


def test_links_that_end_at_switches_join_all_gpus(simulated_nvml: SimulatedNvml) -> None:
    found = simulated_nvml.inventory(4, preset="nvswitch")
    assert [(each.to, each.peer, each.count) for each in found.gpus[0].nvlinks] == [("switch", None, 18)]
    assert {cell for row in found.topology.rows for cell in row} == {"X", "NV18"}


@pytest.mark.parametrize("code", NVML_ERRORS)
def test_nvml_that_fails_at_init_gives_a_sentence(simulated_nvml: SimulatedNvml, code: int) -> None:
    found = simulated_nvml.inventory(2, errors={"nvmlInitWithFlags": code})
    assert found.gpus == ()
    cause, _, told = found.missing["gpus"].partition(" (NVML: ")
    assert cause == CAUSES.get(code, "The NVIDIA driver doesn't answer")
    assert told.lower() == f"{NVML_ERRORS[code]}).".lower()
    assert found.missing["cuda.driver_version"] == found.missing["gpus"]


def test_nvml_that_finds_no_library_of_the_driver_means_that_there_is_no_driver(simulated_nvml: SimulatedNvml) -> None:
    found = simulated_nvml.inventory(errors={"nvmlInitWithFlags": 12})
    assert found.missing["gpus"] == "No NVIDIA driver was found (NVML: library not found)."


def test_a_library_that_is_no_library_means_that_there_is_no_driver(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    found = SimulatedNvml(tmp_path).inventory()
    assert found.missing["gpus"] == "No NVIDIA driver was found (NVML: library not found)."


VALUES = {
    "nvmlDeviceGetMemoryInfo": ("memory_total", "memory_free", "memory_used"),
    "nvmlDeviceGetUtilizationRates": ("utilisation",),
    "nvmlDeviceGetCudaComputeCapability": ("compute_capability",),
    "nvmlDeviceGetPciInfo_v3": ("pci_address",),
    "nvmlDeviceGetCurrPcieLinkWidth": ("pcie.width",),
    "nvmlDeviceGetMaxPcieLinkGeneration": ("pcie.max_generation",),
    "nvmlDeviceGetNvLinkState": ("nvlinks",),
    "nvmlDeviceGetMemoryAffinity": ("numa_node",),
    "nvmlDeviceGetCpuAffinity": ("cpu_affinity",),
    "nvmlDeviceGetEnforcedPowerLimit": ("power_limit",),
}


@pytest.mark.parametrize("function", VALUES)
def test_a_refused_call_costs_its_own_value_on_its_own_device(simulated_nvml: SimulatedNvml, function: str) -> None:
    found = simulated_nvml.inventory(preset="dgx1", errors={f"{function}@1": 3})
    lacking = VALUES[function]
    assert none_values(found.gpus[1].model_dump(), "") - {".mig"} == {f".{name}" for name in lacking}
    assert none_values(found.gpus[0].model_dump(), "") == {".mig"}
    assert all(found.missing[f"gpus.1.{name}"].startswith(function.removesuffix("_v3")) for name in lacking)


@pytest.mark.parametrize("code", [3, 4, 13, 15, 999])
def test_each_kind_of_refusal_is_kept_as_the_reason(simulated_nvml: SimulatedNvml, code: int) -> None:
    found = simulated_nvml.inventory(1, errors=dict.fromkeys(VALUES, code))
    lacking = {name for names in VALUES.values() for name in names} | {"mig"}
    assert none_values(found.gpus[0].model_dump(), "") == {f".{name}" for name in lacking}
    word = {3: "Not Supported", 4: "Insufficient Permissions", 13: "Function Not Found", 15: "GPU is lost"}
    reasons = [found.missing[f"gpus.0.{name}"] for name in lacking - {"mig"}]
    assert all(reason.endswith(f"(NVML: {word.get(code, 'Unknown Error')}).") for reason in reasons)


def test_chips_with_unified_memory_have_no_memory_of_their_own_to_tell_of(simulated_nvml: SimulatedNvml) -> None:
    found = simulated_nvml.inventory(memory="none")
    assert found.gpus[0].memory_total is None
    assert found.missing["gpus.0.memory_total"] == "nvmlDeviceGetMemoryInfo failed (NVML: Not Supported)."


def test_no_process_is_an_answer_and_not_a_gap(simulated_nvml: SimulatedNvml) -> None:
    found = simulated_nvml.inventory()
    assert found.gpus[0].processes == ()
    assert "gpus.0.processes" not in found.missing


def test_mig_slices_are_listed_by_uuid(simulated_nvml: SimulatedNvml) -> None:
    found = simulated_nvml.inventory(2, mig={1: 3}, memory=80 * GIB)
    assert [gpu.mig for gpu in found.gpus] == [False, True]
    assert [each.uuid for each in found.gpus[1].slices] == [slice_uuid(1, number) for number in range(3)]
    assert found.gpus[1].slices[0].memory_total == 10 * GIB
    assert found.gpus[0].slices == ()


def test_a_gpu_that_cannot_be_cut_says_so(simulated_nvml: SimulatedNvml) -> None:
    found = simulated_nvml.inventory()
    assert found.gpus[0].mig is None
    assert "Not Supported" in found.missing["gpus.0.mig"]


@pytest.mark.parametrize(
    ("shown", "visible"),
    [
        (None, [0, 1, 2, 3]),
        ("2,0", [0, 2]),
        ("", []),
        ("-1", []),
        (f"1, {uuid(3)}", [1, 3]),
        ("0,9,1", [0]),
        ("GPU-", []),
        ("NoDevFiles", []),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it_and_shown(
    simulated_nvml: SimulatedNvml, shown: str | None, visible: list[int]
) -> None:
    env = {} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}
    found = simulated_nvml.inventory(4, env=env)
    assert len(found.gpus) == 4
    assert [gpu.index for gpu in found.visible_gpus()] == visible
    assert found.cuda.visible_devices == shown
    assert ("cuda.visible_devices" in found.missing) == (shown is None)


def test_a_slice_is_chosen_by_its_uuid_and_the_others_are_hidden(simulated_nvml: SimulatedNvml) -> None:
    found = simulated_nvml.inventory(2, mig={1: 2}, env={"CUDA_VISIBLE_DEVICES": slice_uuid(1, 1)})
    assert [gpu.visible for gpu in found.gpus] == [False, True]
    assert [each.visible for each in found.gpus[1].slices] == [False, True]


def test_a_lost_device_stays_in_the_list_with_its_reason(simulated_nvml: SimulatedNvml) -> None:
    found = simulated_nvml.inventory(preset="dgx1", lost={2: 0})
    lost = found.gpus[2]
    assert (lost.index, lost.name, lost.memory_total, lost.nvlinks, lost.processes) == (2, None, None, None, None)
    assert found.missing["gpus.2.name"] == "nvmlDeviceGetHandleByIndex failed (NVML: GPU is lost)."
    assert found.gpus[3].name == "SIMULATED GPU 3"
    assert found.topology.rows[0][2] is None
    assert found.topology.rows[0][3] == "NV2"
    assert "GPU is lost" in found.missing["topology.0.2"]


def test_what_gpus_do_is_read_by_what_their_workers_read_it_with(simulated_nvml: SimulatedNvml, tmp_path: Path) -> None:
    flag = tmp_path / "lost"
    code = (
        "import json\nfrom dataclasses import asdict\nfrom pathlib import Path\n"
        "from workbench.hardware import inventory\nfrom workbench.hardware.gauges import Gauges\n"
        "with Gauges(inventory().gpus) as gauges:\n"
        f"    first = gauges.read()\n    Path({str(flag)!r}).touch()\n    second = gauges.read()\n"
        "print(json.dumps([[asdict(each) for each in read.values()] for read in (first, second)]))"
    )
    told = simulated_nvml.python(code, 3, load="40", processes="0:4321:1073741824", mig={2: 1}, lost={1: flag})
    (one, other, _, part), (again, lost, *_) = json.loads(told)
    assert (one["utilisation"], one["power"], one["temperature"]) == (40, 140, 48)
    assert one["processes"] == [[4321, GIB]]
    assert {each["utilisation"] for each in (other, again)} == {40}
    assert lost["utilisation"] is None
    assert lost["absent"]["utilisation"] == lost["absent"]["memory_used"] == "the GPU has fallen off the bus"
    assert part["uuid"] == slice_uuid(2, 0)
    assert part["memory_total"] > 0
    assert "not for one that is cut into slices" in part["absent"]["power"]


def test_distributed_reads_the_simulated_devices(simulated_nvml: SimulatedNvml) -> None:
    code = (
        "from distributed.diagnostics import nvml\n"
        "print(nvml.device_get_count(), nvml.one_time()['name'], nvml.real_time()['memory-used'])"
    )
    assert simulated_nvml.python(code, 3, used=GIB).split() == ["3", "SIMULATED", "GPU", "0", str(GIB)]


def test_an_inventory_of_an_earlier_release_can_still_be_read(simulated_nvml: SimulatedNvml) -> None:
    now = simulated_nvml.inventory().model_dump(mode="json")
    earlier = {name: now[name] for name in ("cpu", "memory", "ucx", "missing")}
    earlier["gpus"] = [
        {name: gpu[name] for name in ("index", "name", "uuid", "memory_total", "memory_free")} for gpu in now["gpus"]
    ]
    assert Inventory.model_validate(earlier).gpus[0].nvlinks is None


def workbench(simulated_nvml: SimulatedNvml, *arguments: str, **settings: Any) -> str:
    env = simulated_nvml.environment(**settings) | {"COLUMNS": "160"}
    command = [sys.executable, "-m", "workbench", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_command_shows_a_table_of_gpus_and_the_topology(simulated_nvml: SimulatedNvml) -> None:
    env = {"preset": "dgx1", "memory": 16 * GIB, "processes": "3:99:1073741824", "lost": {6: 0}}
    told = workbench(simulated_nvml, "hardware", **env)
    (row,) = (line for line in told.splitlines() if "SIMULATED GPU 3" in line)
    assert row.split()[:8] == ["3", "SIMULATED", "GPU", "3", "16", "GiB", "15", "GiB"]
    assert "used by 99 (1 GiB)" in row
    assert "GPU is lost" in told
    assert "GPU3  NV2   NV1   NV2   X     SYS   SYS   ?     NV1" in told
    assert "NV#: a bonded set of # NVLinks" in told


def test_the_command_gives_network_topology_and_cuda_as_json(simulated_nvml: SimulatedNvml) -> None:
    told = json.loads(workbench(simulated_nvml, "hardware", "--json", gpus=2))
    assert set(told) == {"cpu", "memory", "gpus", "ucx", "profiles", "network", "topology", "cuda"}
    assert told["topology"]["rows"][0][0] == "X"
    assert told["cuda"]["version"] == "13.0"


@pytest.mark.parametrize(
    ("errors", "answered"),
    [
        ({}, True),
        ({"nvmlDeviceGetUtilizationRates": 3}, True),
        ({"nvmlDeviceGetUtilizationRates": 4}, False),
        ({"nvmlInitWithFlags": 4}, False),
    ],
)
def test_dask_asks_nothing_of_a_driver_that_refuses_an_account(
    simulated_nvml: SimulatedNvml, errors: dict[str, int], answered: bool
) -> None:
    told = simulated_nvml.python("from workbench.clusters import cuda; print(cuda.answered())", errors=errors)
    assert told.strip() == str(answered)


def test_a_gpu_that_was_lost_before_anybody_looked_is_the_reason_why_none_is_in_sight(
    simulated_nvml: SimulatedNvml, tmp_path: Path
) -> None:
    lost = tmp_path / "lost"
    lost.touch()
    code = """
import sys, pynvml
from workbench.hardware.sampling import visible
pynvml.nvmlInit()
list(visible(pynvml, sys.argv[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, f"{uuid(1)},{uuid(0)}"],
        env=simulated_nvml.environment(2, lost={1: lost}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "hides all GPUs: the GPU has fallen off the bus." in done.stderr
