"""Inventory and profiles, on machines made of files and fakes."""

from __future__ import annotations

import resource
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.clusters.profiles import registered
from workbench.clusters.profiles.lookup import profiles
from workbench.hardware import Inventory, Sources, inventory, memory
from workbench.hardware.sources import UnreadableError

GIB = 2**30
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw,nsdelegate\n"
V1 = (
    "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


class NVMLError(Exception):
    pass


class LibraryNotFoundError(NVMLError):
    pass


class FakeNvml:
    """NVML of a list of GPUs; a function named in `refused` answers NOT_SUPPORTED."""

    NVMLError = NVMLError
    NVMLError_LibraryNotFound = LibraryNotFoundError

    def __init__(self, gpus: int, *, refused: tuple[str, ...] = (), init: Exception | None = None) -> None:
        self.gpus, self.refused, self.init, self.is_open = gpus, refused, init, False

    def _answer(self, name: str, value: Any) -> Any:
        if name in self.refused:
            raise NVMLError("Not Supported")
        return value

    def nvmlInit(self) -> None:
        if self.init:
            raise self.init
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:
        return self._answer("nvmlDeviceGetCount", self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return self._answer("nvmlDeviceGetHandleByIndex", index)

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:
        return self._answer("nvmlDeviceGetName", b"SIMULATED GPU" if handle else "SIMULATED GPU")

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return self._answer("nvmlDeviceGetUUID", f"GPU-{handle}")

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return self._answer("nvmlDeviceGetMemoryInfo", SimpleNamespace(total=80 * GIB, free=79 * GIB, used=GIB))


def no_driver() -> FakeNvml:
    return FakeNvml(0, init=LibraryNotFoundError("NVML Shared Library Not Found"))


def write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def machine(folder: Path, files: dict[str, str] | None = None, **fakes: Any) -> Sources:
    """Eight threads, 64 GiB, nothing readable but `files` below proc/ and sys/."""
    write(folder, files or {})
    return Sources(
        **{
            "proc": folder / "proc",
            "sys": folder / "sys",
            "system": "Linux",
            "affinity": lambda: 8,
            "virtual_memory": lambda: SimpleNamespace(total=64 * GIB, available=60 * GIB),
            "cpu_count": lambda logical: 8 if logical else None,
            "nvml": no_driver,
            "version": lambda package: None,
            "environ": {},
        }
        | fakes
    )


def v2(group: str, files: dict[str, str]) -> dict[str, str]:
    below = {f"sys/fs/cgroup/{name}": content for name, content in files.items()}
    return {"proc/self/cgroup": f"0::{group}\n", "proc/self/mountinfo": V2, **below}


def v1(group: str, files: dict[str, str], mountinfo: str = V1) -> dict[str, str]:
    below = {f"sys/fs/cgroup/{name}": content for name, content in files.items()}
    lines = f"4:memory:{group}\n3:cpu,cpuacct:{group}\n1:name=systemd:/\n"
    return {"proc/self/cgroup": lines, "proc/self/mountinfo": mountinfo, **below}


def leaves_without_value(value: Any, name: str = "") -> list[str]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves_without_value(item, f"{name}.{key}".lstrip("."))]
    if isinstance(value, list | tuple):
        items = [leaf for i, item in enumerate(value) for leaf in leaves_without_value(item, f"{name}.{i}")]
        return items or ([] if value else [name])
    return [name] if value is None else []


def test_this_machine_is_read_and_every_value_that_is_not_there_has_its_reason() -> None:
    found = inventory()
    assert found.cpu.usable >= 1
    assert 0 < found.memory.limit <= found.memory.total
    # Of values within a topology and of cards the reasons have names of their own.
    about = found.model_dump(
        exclude={"missing": True, "topology": found.topology is not None, "network": bool(found.network)}
    )
    assert set(leaves_without_value(about)) - {"ucx.reason"} <= set(found.missing)


def test_on_a_machine_that_tells_nothing_every_value_has_a_reason_and_one_core_is_usable(tmp_path: Path) -> None:
    def refuse() -> int:
        raise UnreadableError("Not told.")

    found = inventory(machine(tmp_path, affinity=refuse, cpu_count=lambda logical: None))
    assert found.cpu.usable == 1
    assert set(found.missing) == {
        "cpu.model",
        "cpu.physical_cores",
        "cpu.threads",
        "cpu.affinity",
        "cpu.quota",
        "memory.cgroup_limit",
        "gpus",
        "cuda.driver_version",
        "cuda.version",
        "cuda.visible_devices",
        "network",
        "topology",
        "ucx.version",
    }
    assert all(reason.endswith(".") for reason in found.missing.values())
    assert found.missing["cpu.affinity"] == "Not told."


def test_the_model_comes_from_proc_and_physical_cores_are_counted(tmp_path: Path) -> None:
    counted = {"cpu_count": lambda *, logical: 8 if logical else 4}
    cpuinfo = "processor\t: 0\nmodel name\t: Fast Chip 9000\n\nprocessor\t: 1\nmodel name\t: Fast Chip 9000\n"
    cpu = inventory(machine(tmp_path, {"proc/cpuinfo": cpuinfo}, **counted)).cpu
    assert (cpu.model, cpu.physical_cores, cpu.threads, cpu.usable) == ("Fast Chip 9000", 4, 8, 8)


def test_a_chip_without_a_name_has_none_and_says_so(tmp_path: Path) -> None:
    found = inventory(machine(tmp_path, {"proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 50.00\n"}))
    assert found.cpu.model is None
    assert found.missing["cpu.model"].endswith("cpuinfo names no model.")


def test_on_macos_the_model_comes_from_sysctl_and_there_are_no_control_groups(tmp_path: Path) -> None:
    found = inventory(machine(tmp_path, system="Darwin", sysctl=lambda name: f"Apple {name}"))
    assert found.cpu.model == "Apple machdep.cpu.brand_string"
    assert found.missing["cpu.quota"] == "Darwin has no control groups."


def test_affinity_bounds_what_is_usable(tmp_path: Path) -> None:
    cpu = inventory(machine(tmp_path, affinity=lambda: 3)).cpu
    assert (cpu.affinity, cpu.usable, cpu.threads) == (3, 3, 8)


@pytest.mark.parametrize(
    ("quota", "usable"), [("250000 100000", 2), ("50000 100000", 1), ("max 100000", 8), ("9900000 100000", 8)]
)
def test_a_quota_of_version_2_is_rounded_down_to_at_least_one(tmp_path: Path, quota: str, usable: int) -> None:
    cpu = inventory(machine(tmp_path, v2("/job", {"job/cpu.max": quota}))).cpu
    assert cpu.usable == usable
    assert cpu.quota == (None if quota.startswith("max") else int(quota.split()[0]) / 100_000)


def test_in_nested_groups_of_version_2_the_tightest_limit_up_the_hierarchy_counts(tmp_path: Path) -> None:
    files = {
        "user/memory.max": str(4 * GIB),
        "user/job/memory.max": str(16 * GIB),
        "user/job/step/memory.max": "max",
        "user/job/cpu.max": "500000 100000",
        "user/cpu.max": "300000 100000",
    }
    found = inventory(machine(tmp_path, v2("/user/job/step", files)))
    assert (found.memory.cgroup_limit, found.memory.limit) == (4 * GIB, 4 * GIB)
    assert (found.cpu.quota, found.cpu.usable) == (3.0, 3)


def test_the_throttle_below_the_limit_counts_as_the_limit(tmp_path: Path) -> None:
    files = {"job/memory.max": str(8 * GIB), "job/memory.high": str(6 * GIB)}
    assert inventory(machine(tmp_path, v2("/job", files))).memory.limit == 6 * GIB


def test_a_limit_above_the_memory_of_the_machine_leaves_the_memory(tmp_path: Path) -> None:
    memory = inventory(machine(tmp_path, v2("/", {"memory.max": str(100 * GIB)}))).memory
    assert (memory.cgroup_limit, memory.limit) == (100 * GIB, 64 * GIB)


def test_limits_of_version_1_are_read_up_the_hierarchy(tmp_path: Path) -> None:
    files = {
        "memory/job/memory.limit_in_bytes": str(10 * GIB),
        "memory/job/step/memory.limit_in_bytes": "9223372036854771712",
        "cpu,cpuacct/job/step/cpu.cfs_quota_us": "-1",
        "cpu,cpuacct/job/step/cpu.cfs_period_us": "100000",
        "cpu,cpuacct/job/cpu.cfs_quota_us": "450000",
        "cpu,cpuacct/job/cpu.cfs_period_us": "100000",
    }
    found = inventory(machine(tmp_path, v1("/job/step", files)))
    assert (found.memory.limit, found.cpu.quota, found.cpu.usable) == (10 * GIB, 4.5, 4)


def test_no_limit_of_version_1_is_none_with_its_reason(tmp_path: Path) -> None:
    found = inventory(machine(tmp_path, v1("/", {"memory/memory.limit_in_bytes": "9223372036854771712"})))
    assert found.memory.cgroup_limit is None
    assert found.missing["memory.cgroup_limit"] == "No control group of this process sets a memory limit."


def test_in_a_container_that_shows_the_path_of_its_host_the_mount_itself_is_read(tmp_path: Path) -> None:
    mountinfo = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    files = {"memory/memory.limit_in_bytes": str(2 * GIB), "memory/inner/memory.limit_in_bytes": str(GIB)}
    assert inventory(machine(tmp_path, v1("/docker/abc", files, mountinfo))).memory.limit == 2 * GIB
    assert inventory(machine(tmp_path, v1("/docker/abc/inner", files, mountinfo))).memory.limit == GIB
    assert inventory(machine(tmp_path, v1("/../other", files, mountinfo))).memory.limit == 2 * GIB


def test_a_path_that_leads_out_of_the_namespace_is_not_followed(tmp_path: Path) -> None:
    files = {"memory.max": str(2 * GIB), "../other/memory.max": str(GIB)}
    assert inventory(machine(tmp_path, v2("/../other", files))).memory.limit == 2 * GIB


def test_where_both_versions_are_mounted_the_one_that_holds_the_limit_is_found(tmp_path: Path) -> None:
    hybrid = V1 + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    files = v1("/job", {"memory/job/memory.limit_in_bytes": str(3 * GIB)}, hybrid)
    files["proc/self/cgroup"] += "0::/\n"
    files["sys/fs/cgroup/unified/cgroup.procs"] = ""
    assert inventory(machine(tmp_path, files)).memory.limit == 3 * GIB


HYBRID = V1 + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(
    ("files", "unused"),
    [
        (v2("/job", {"job/memory.max": str(3 * GIB), "job/memory.current": str(2 * GIB)}), 1.0),
        # The kernel gives up page cache that nobody used lately before it ends a process.
        (
            v2(
                "/job",
                {
                    "job/memory.max": str(3 * GIB),
                    "job/memory.current": str(2 * GIB),
                    "job/memory.stat": f"anon {GIB}\ninactive_file {GIB // 2}\nactive_file 4096\n",
                },
            ),
            1.5,
        ),
        (
            v2(
                "/job",
                {
                    "job/memory.max": str(8 * GIB),
                    "job/memory.high": str(6 * GIB),
                    "job/memory.current": str(2 * GIB),
                },
            ),
            4.0,
        ),
        # The group above is fuller than its limit leaves to this one.
        (
            v2(
                "/pod/job",
                {
                    "pod/memory.max": str(4 * GIB),
                    "pod/memory.current": str(int(3.5 * GIB)),
                    "pod/job/memory.max": str(2 * GIB),
                    "pod/job/memory.current": str(GIB // 2),
                },
            ),
            0.5,
        ),
        (
            v1(
                "/job",
                {
                    "memory/job/memory.limit_in_bytes": str(3 * GIB),
                    "memory/job/memory.usage_in_bytes": str(2 * GIB),
                    "memory/job/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB // 4}\n",
                },
            ),
            1.25,
        ),
        (
            v1(
                "/job",
                {
                    "memory/job/memory.limit_in_bytes": str(3 * GIB),
                    "memory/job/memory.usage_in_bytes": str(4 * GIB),
                    "unified/cgroup.procs": "",
                },
                HYBRID,
            ),
            0.0,
        ),
        # Without a limit the machine's own number counts, whatever the group uses.
        (v2("/", {"memory.current": str(50 * GIB)}), 60.0),
        # A limit whose usage can't be read is at least a limit.
        (v2("/job", {"job/memory.max": str(3 * GIB)}), 3.0),
    ],
)
def test_unused_memory_is_what_the_fullest_group_leaves(tmp_path: Path, files: dict[str, str], unused: float) -> None:
    found = inventory(machine(tmp_path, files)).memory
    assert found.available == int(unused * GIB)
    assert found == memory(machine(tmp_path, files))


def test_a_job_of_slurm_has_the_memory_and_the_cores_that_it_was_granted(tmp_path: Path) -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "4096", "SLURM_CPUS_PER_TASK": "3", "SLURM_CPUS_ON_NODE": "6"}
    page = resource.getpagesize()
    processes = {
        "proc/10/environ": "HOME=/root\0SLURM_JOB_ID=7\0",
        "proc/10/statm": f"{GIB // page} {GIB // page} {GIB // 4 // page} 1 0 9 0",
        "proc/11/environ": "SLURM_JOB_ID=77\0",
        "proc/11/statm": f"{GIB // page} {GIB // page} 0 1 0 9 0",
    }
    found = inventory(machine(tmp_path, processes, environ=job))
    assert (found.memory.limit, found.memory.available) == (4 * GIB, 4 * GIB - 3 * GIB // 4)
    assert (found.memory.cgroup_limit, found.cpu.usable) == (None, 3)
    by_core = {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_CPU": "1024", "SLURM_CPUS_ON_NODE": "6"}
    found = inventory(machine(tmp_path, environ=by_core))
    assert (found.memory.limit, found.cpu.usable) == (6 * GIB, 6)
    # 0 is all of the node; without a job the variables are somebody's settings.
    for environ in (job | {"SLURM_MEM_PER_NODE": "0"}, {"SLURM_MEM_PER_NODE": "4096"}):
        assert memory(machine(tmp_path, environ=environ)).limit == 64 * GIB


def test_gpus_are_named_and_the_library_is_closed_again(tmp_path: Path) -> None:
    library = FakeNvml(2)
    found = inventory(machine(tmp_path, nvml=lambda: library))
    assert [(gpu.index, gpu.name, gpu.uuid) for gpu in found.gpus] == [
        (0, "SIMULATED GPU", "GPU-0"),
        (1, "SIMULATED GPU", "GPU-1"),
    ]
    assert (found.gpus[0].memory_total, found.gpus[0].memory_free) == (80 * GIB, 79 * GIB)
    assert not library.is_open


@pytest.mark.parametrize(
    ("refused", "lacking"),
    [
        ("nvmlDeviceGetName", {"name"}),
        ("nvmlDeviceGetUUID", {"uuid"}),
        ("nvmlDeviceGetMemoryInfo", {"memory_total", "memory_free", "memory_used"}),
        ("nvmlDeviceGetHandleByIndex", {"name", "uuid", "memory_total", "memory_free", "memory_used"}),
    ],
)
def test_a_call_that_nvml_refuses_costs_only_its_own_value(tmp_path: Path, refused: str, lacking: set[str]) -> None:
    found = inventory(machine(tmp_path, nvml=lambda: FakeNvml(1, refused=(refused,))))
    (gpu,) = found.gpus
    told = gpu.model_dump(include={"name", "uuid", "memory_total", "memory_free", "memory_used"})
    assert {name for name, value in told.items() if value is None} == lacking
    assert {name for name in told if f"gpus.0.{name}" in found.missing} == lacking
    assert all("NVML: Not Supported" in found.missing[f"gpus.0.{name}"] for name in lacking)


def test_a_driver_that_lacks_a_function_is_no_error(tmp_path: Path) -> None:
    found = inventory(machine(tmp_path, nvml=lambda: FakeNvml(1)))
    without = set(leaves_without_value(found.gpus[0].model_dump(), "gpus.0")) - {"gpus.0.slices"}
    assert without <= set(found.missing)
    assert "nvmlDeviceGetEnforcedPowerLimit" in found.missing["gpus.0.power_limit"]


@pytest.mark.parametrize(
    ("nvml", "reason"),
    [
        (no_driver, "No NVIDIA driver was found (NVML: library not found)."),
        (
            lambda: FakeNvml(0, init=NVMLError("Driver Not Loaded")),
            "The NVIDIA driver doesn't answer (NVML: Driver Not Loaded).",
        ),
        (lambda: FakeNvml(0), "The NVIDIA driver lists no GPU."),
        (
            lambda: FakeNvml(1, refused=("nvmlDeviceGetCount",)),
            "nvmlDeviceGetCount failed (NVML: Not Supported).",
        ),
    ],
)
def test_no_gpus_has_a_reason(tmp_path: Path, nvml: Any, reason: str) -> None:
    found = inventory(machine(tmp_path, nvml=nvml))
    assert found.gpus == ()
    assert found.missing["gpus"] == reason


def test_ucx_is_found_by_its_package_and_not_by_importing_it(tmp_path: Path) -> None:
    found = inventory(machine(tmp_path, version={"distributed-ucxx-cu12": "0.52.0"}.get))
    assert (found.ucx.installed, found.ucx.version, found.ucx.reason) == (True, "0.52.0", None)
    without = inventory(machine(tmp_path)).ucx
    assert (without.installed, without.version) == (False, None)
    assert without.reason == "distributed-ucxx isn't installed."


@pytest.mark.skipif(find_spec("libucx") is None, reason="libucx isn't installed")
def test_the_ucx_of_the_wheel_has_no_infiniband(tmp_path: Path) -> None:
    assert not inventory(machine(tmp_path, version={"distributed-ucxx": "0.52.0"}.get)).ucx.infiniband


def offered(found: Inventory, packages: dict[str, str] | None = None) -> dict[str, str | None]:
    given = profiles(found, version=(packages or {}).get)
    assert all(profile.available == (profile.reason is None) for profile in given)
    return {profile.name: profile.reason for profile in given}


def test_all_profiles_are_offered_and_one_that_cannot_be_had_says_why_and_what_helps(tmp_path: Path) -> None:
    reasons = offered(inventory(machine(tmp_path)))
    assert list(reasons) == list(registered())
    assert reasons["cpu"] is None
    assert reasons["address"] is None
    for name in ("gpu", "gpus"):
        assert str(reasons[name]).startswith("No NVIDIA driver was found (NVML: library not found): install")
    assert str(reasons["ucx"]).startswith("Needs distributed-ucxx: pip install 'distributed-ucxx-cu13==")


def test_the_remedy_fits_the_cause(tmp_path: Path) -> None:
    found = offered(inventory(machine(tmp_path, nvml=lambda: FakeNvml(0))))
    assert found["gpu"] == "The NVIDIA driver lists no GPU: see what nvidia-smi says."


def test_with_a_gpu_the_missing_package_is_named_with_its_command(tmp_path: Path) -> None:
    reasons = offered(inventory(machine(tmp_path, nvml=lambda: FakeNvml(1))))
    assert str(reasons["gpu"]).startswith("Needs dask-cuda: pip install 'dask-cuda[cu13]==")


def test_an_inventory_is_json_both_ways_and_frozen(tmp_path: Path) -> None:
    found = inventory(machine(tmp_path, nvml=lambda: FakeNvml(1)))
    assert Inventory.model_validate_json(found.model_dump_json()) == found
    with pytest.raises(ValueError, match="frozen"):
        found.missing = {}  # type: ignore[misc]


def test_importing_hardware_reads_nothing_and_loads_no_nvml_and_no_distributed() -> None:
    code = "import sys, workbench.hardware; print([m for m in ('pynvml', 'distributed', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
