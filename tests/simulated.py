"""GPUs that aren't there: a simulated NVML for tests, and for teaching (`make demo-gpus`).

Every device is named "SIMULATED GPU n", so that no picture can pass for a measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.forks import Forks

SOURCE = Path(__file__).parent / "nvml" / "nvml.c"
CUDA_SOURCE = SOURCE.parent / "cuda.c"
STANDIN = Path(__file__).parent / "standin"
GIB = 2**30

# Host bridge, root port and switch, then who sits below that switch.
DGX1_BOARD = {
    "pci0000:00/0000:00:02.0/0000:02:00.0": ["0000:06:00.0", "0000:07:00.0", "0000:05:00.0 ib0"],
    "pci0000:00/0000:00:03.0/0000:08:00.0": ["0000:0a:00.0", "0000:0b:00.0", "0000:0c:00.0 ib2"],
    "pci0000:80/0000:80:02.0/0000:82:00.0": ["0000:85:00.0", "0000:86:00.0", "0000:84:00.0 ib1"],
    "pci0000:80/0000:80:03.0/0000:88:00.0": ["0000:89:00.0", "0000:8a:00.0", "0000:8b:00.0 ib3"],
}


def build(folder: Path, name: str = "libnvidia-ml.so.1", source: Path = SOURCE) -> Path:
    """Compile the simulated NVML into `folder`, which then belongs on LD_LIBRARY_PATH.

    Raises FileNotFoundError where there is no C compiler.
    """
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise FileNotFoundError("The simulated GPUs need a C compiler (cc, gcc or clang), and none was found.")
    folder.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(folder / name), str(source), "-lm"]
    subprocess.run(command, check=True)
    return folder


def computing(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """`env` where the devices seem to compute too: a driver that agrees, built into `folder`, and CuPy's stand-in."""
    build(folder, "libcuda.so.1", CUDA_SOURCE)
    path = os.pathsep.join(filter(None, (str(STANDIN), env.get("PYTHONPATH"))))
    # UCX's own GPU support calls the driver, which can't compute here: leave it out.
    there = {"LD_LIBRARY_PATH": f"{folder}:{env['LD_LIBRARY_PATH']}", "PYTHONPATH": path, "UCX_MODULES": "^cuda"}
    return {**env, **there}


def environment(folder: Path, gpus: int = 1, **settings: Any) -> dict[str, str]:
    """Environment of a process that is to see simulated GPUs; nvml.c says which settings there are.

    `errors` is a mapping from a function (with "@device" for one device) to its error code, `used` bytes or bytes
    per device, `mig` a mapping from device to slices, `lost` one from device to seconds or a file.
    """
    told = {"gpus": gpus, "start": time.time(), **{name: _written(name, value) for name, value in settings.items()}}
    path = ":".join(filter(None, (str(folder), os.environ.get("LD_LIBRARY_PATH"))))
    kept = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return kept | {"LD_LIBRARY_PATH": path} | {f"SIMULATED_NVML_{name.upper()}": str(told[name]) for name in told}


def _written(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        pairs, (inner, outer) = value.items(), {"errors": "=;", "lost": "@,"}.get(name, ":,")
        return outer.join(f"{key}{inner}{item}" for key, item in pairs)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)


def dgx1_sysfs(sys: Path) -> Path:
    """Folders of sysfs for the PCI devices of a DGX-1 and its four InfiniBand cards."""
    for switch, devices in DGX1_BOARD.items():
        for port, device in enumerate(devices):
            address, _, interface = device.partition(" ")
            folder = sys / "devices" / switch / f"{switch[-10:-4]}:{port:02d}.0" / address
            folder.mkdir(parents=True)
            (folder / "numa_node").write_text("0\n" if switch.startswith("pci0000:00") else "1\n")
            _link(sys / "bus" / "pci" / "devices" / address, folder)
            if interface:
                _card(sys, folder, interface)
    return sys


def _card(sys: Path, device: Path, interface: str) -> None:
    folder = device / "infiniband" / f"mlx5_{interface[-1]}"
    (folder / "ports" / "1").mkdir(parents=True)
    (folder / "ports" / "1" / "rate").write_text("100 Gb/sec (4X EDR)\n")
    (folder / "ports" / "1" / "state").write_text("4: ACTIVE\n")
    (folder / "ports" / "1" / "link_layer").write_text("InfiniBand\n")
    (device / "net" / interface).mkdir(parents=True)
    _link(folder / "device", device)
    _link(sys / "class" / "infiniband" / folder.name, folder)


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


@dataclass(frozen=True)
class SimulatedNvml:
    """The built library, and processes that see its GPUs."""

    folder: Path
    forks: Forks | None = None

    def environment(self, gpus: int = 1, **settings: Any) -> dict[str, str]:
        """Environment of a process that is to see these GPUs."""
        return environment(self.folder, gpus, **settings)

    def python(self, code: str, gpus: int = 1, *, env: Mapping[str, str] | None = None, **settings: Any) -> str:
        """Return the output of `code` in a new Python process that sees these GPUs."""
        full = self.environment(gpus, **settings) | dict(env or {})
        if self.forks is not None:
            return self.forks.ask(code, full)
        done = subprocess.run([sys.executable, "-c", code], env=full, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def inventory(
        self, gpus: int = 1, *, sys_folder: Path | None = None, env: Mapping[str, str] | None = None, **settings: Any
    ) -> Any:
        """Return the inventory of a process that sees these GPUs, and the cards and PCI devices below `sys_folder`."""
        from workbench.hardware import Inventory

        sources = f"Sources(sys=Path({str(sys_folder)!r}))" if sys_folder else "Sources()"
        code = (
            "from pathlib import Path\nfrom workbench.hardware import Sources, inventory\n"
            f"print(inventory({sources}).model_dump_json())"
        )
        return Inventory.model_validate(json.loads(self.python(code, gpus, env=env, **settings)))


@pytest.fixture(scope="session")
def simulated_nvml(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedNvml]:
    """Build a simulated NVML once; skip the test without a C compiler, or on systems other than Linux."""
    if sys.platform != "linux":
        pytest.skip("The simulated NVML is a library for Linux.")
    try:
        folder = build(tmp_path_factory.mktemp("nvml"))
    except FileNotFoundError as err:
        pytest.skip(str(err))
    with Forks("import workbench.hardware", environment(folder)) as forks:
        yield SimulatedNvml(folder, forks)


def _sysfs(folder: Path) -> Path:
    """Write the cards and PCI devices of a DGX-1 next to this machine's real NUMA nodes and control groups."""
    shutil.rmtree(folder, ignore_errors=True)
    dgx1_sysfs(folder)
    (folder / "fs").symlink_to("/sys/fs")
    (folder / "devices" / "system").symlink_to("/sys/devices/system")
    return folder


def _titled(folder: Path) -> Path:
    """Jupyter's configuration that has the browser's windows say it; JupyterLab ignores its own option `app_name`."""
    (folder / "labconfig").mkdir(parents=True, exist_ok=True)
    (folder / "labconfig" / "page_config.json").write_text('{"appName": "JupyterLab on SIMULATED GPUs"}')
    return folder


def main() -> None:
    """Run a command that sees the eight GPUs of a simulated DGX-1 and a CuPy, with a data folder of its own."""
    folder = Path(sys.prefix) / "simulated-gpus"
    parser = argparse.ArgumentParser(prog="python -m tests.simulated", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpus", type=int, help="so many alike, in place of a DGX-1")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    if not chosen.command:
        parser.error("say which command is to see them")
    there = {"preset": "dgx1"} if chosen.gpus is None else {"gpus": chosen.gpus}
    try:
        build(folder)
        env = computing(environment(folder, **there, memory=16 * GIB, load="wave"), folder)
    except FileNotFoundError as err:
        sys.exit(str(err))
    env["DASK_WORKBENCH__DATA_FOLDER"] = str(folder / "data")
    if chosen.gpus is None:
        env["DASK_WORKBENCH__SYSFS"] = str(_sysfs(folder / "sys"))
    paths = (str(_titled(folder / "jupyter")), env.get("JUPYTER_CONFIG_PATH"))
    env["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, paths))
    os.execvpe(chosen.command[0], chosen.command, env)


if __name__ == "__main__":
    main()
