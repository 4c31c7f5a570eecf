"""Links between GPUs and network cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulated import SimulatedNvml, dgx1_sysfs
from tests.test_hardware import machine
from workbench.hardware import Topology, inventory
from workbench.hardware.gpus import cpu_list, cpus_in
from workbench.hardware.network import between_folders

# The DGX-1 of the UCX post: https://blog.dask.org/2019/06/09/ucx-dgx
DGX1 = """
      GPU0  GPU1  GPU2  GPU3  GPU4  GPU5  GPU6  GPU7  ib0  ib1  ib2  ib3
GPU0  X     NV1   NV1   NV2   NV2   SYS   SYS   SYS   PIX  SYS  PHB  SYS
GPU1  NV1   X     NV2   NV1   SYS   NV2   SYS   SYS   PIX  SYS  PHB  SYS
GPU2  NV1   NV2   X     NV2   SYS   SYS   NV1   SYS   PHB  SYS  PIX  SYS
GPU3  NV2   NV1   NV2   X     SYS   SYS   SYS   NV1   PHB  SYS  PIX  SYS
GPU4  NV2   SYS   SYS   SYS   X     NV1   NV1   NV2   SYS  PIX  SYS  PHB
GPU5  SYS   NV2   SYS   SYS   NV1   X     NV2   NV1   SYS  PIX  SYS  PHB
GPU6  SYS   SYS   NV1   SYS   NV1   NV2   X     NV2   SYS  PHB  SYS  PIX
GPU7  SYS   SYS   SYS   NV1   NV2   NV1   NV2   X     SYS  PHB  SYS  PIX
""".strip("\n")


def test_the_topology_of_the_dgx_1_is_printed_as_nvidia_smi_prints_it(
    simulated_nvml: SimulatedNvml, tmp_path: Path
) -> None:
    found = simulated_nvml.inventory(preset="dgx1", sys_folder=dgx1_sysfs(tmp_path))
    assert found.topology.text() == DGX1
    assert not [name for name in found.missing if name.startswith("topology")]


def test_each_gpu_of_the_dgx_1_has_a_nearest_card(simulated_nvml: SimulatedNvml, tmp_path: Path) -> None:
    topology = simulated_nvml.inventory(preset="dgx1", sys_folder=dgx1_sysfs(tmp_path)).topology
    nearest = [topology.nearest_cards(gpu) for gpu in range(8)]
    assert nearest == [("ib0",), ("ib0",), ("ib2",), ("ib2",), ("ib1",), ("ib1",), ("ib3",), ("ib3",)]
    assert list(topology.legend()) == ["NV#", "PIX", "PHB", "SYS"]


def test_gpus_of_the_dgx_1_sit_on_their_socket(simulated_nvml: SimulatedNvml, tmp_path: Path) -> None:
    gpus = simulated_nvml.inventory(preset="dgx1", sys_folder=dgx1_sysfs(tmp_path)).gpus
    assert [gpu.cpu_affinity for gpu in gpus] == ["0-19,40-59"] * 4 + ["20-39,60-79"] * 4
    assert [gpu.numa_node for gpu in gpus] == [0] * 4 + [1] * 4


def test_network_cards_are_read_with_rate_state_and_place(tmp_path: Path) -> None:
    found = inventory(machine(tmp_path, sys=dgx1_sysfs(tmp_path / "sys")))
    assert [each.label for each in found.network] == ["ib0", "ib1", "ib2", "ib3"]
    first = found.network[1]
    assert (first.name, first.port, first.rate, first.state) == ("mlx5_1", 1, 100.0, "ACTIVE")
    assert (first.link_layer, first.numa_node, first.pci_address) == ("InfiniBand", 1, "0000:84:00.0")


def test_each_port_of_a_card_is_listed_with_its_own_interface(tmp_path: Path) -> None:
    device = "sys/class/infiniband/mlx4_0"
    files = {
        f"{device}/ports/1/state": "4: ACTIVE\n",
        f"{device}/ports/2/state": "1: DOWN\n",
        f"{device}/device/net/ib0/dev_port": "0\n",
        f"{device}/device/net/ib1/dev_port": "0x1\n",
        f"{device}/device/numa_node": "-1\n",
    }
    found = inventory(machine(tmp_path, files))
    assert [(each.label, each.state, each.rate) for each in found.network] == [
        ("ib0", "ACTIVE", None),
        ("ib1", "DOWN", None),
    ]
    assert "names no node" in found.missing["network.mlx4_0.1.numa_node"]
    assert "can't be read" in found.missing["network.mlx4_0.2.rate"]


def test_a_machine_without_cards_says_so(tmp_path: Path) -> None:
    found = inventory(machine(tmp_path))
    assert found.network == ()
    assert found.missing["network"].endswith("lists no InfiniBand or RoCE card.")


def test_where_pci_folders_are_hidden_the_numa_nodes_tell(simulated_nvml: SimulatedNvml, tmp_path: Path) -> None:
    for name, node in {"mlx5_0": "1\n", "mlx5_1": "-1\n"}.items():
        for path, content in {"ports/1/state": "4: ACTIVE\n", "device/numa_node": node}.items():
            file = tmp_path / "class" / "infiniband" / name / path
            file.parent.mkdir(parents=True)
            file.write_text(content)
    found = simulated_nvml.inventory(preset="dgx1", sys_folder=tmp_path)
    assert found.topology.rows[0][-2:] == ("SYS", None)
    assert found.topology.rows[7][-2:] == ("NODE", None)
    assert "how near" in found.missing["topology.0.mlx5_1"]
    assert found.topology.text().splitlines()[1].endswith("SYS     ?")


@pytest.mark.parametrize(
    ("one", "other", "way"),
    [
        ("pci0000:00/00:01.0/gpu", "pci0000:00/00:01.0/card", "PIX"),
        ("pci0000:00/00:01.0/up/down1/gpu", "pci0000:00/00:01.0/up/down2/card", "PIX"),
        ("pci0000:00/00:01.0/up/down1/up2/down3/gpu", "pci0000:00/00:01.0/up/down2/card", "PXB"),
        ("pci0000:00/00:01.0/gpu", "pci0000:00/00:02.0/card", "PHB"),
        ("pci0000:00/00:01.0/gpu", "pci0000:80/00:01.0/card", None),
    ],
)
def test_nested_folders_tell_the_way(one: str, other: str, way: str | None) -> None:
    root = Path("/sys/devices")
    assert between_folders(root / one, root / other) == way


def test_one_gpu_is_a_matrix_of_one(simulated_nvml: SimulatedNvml) -> None:
    assert simulated_nvml.inventory(1).topology.text() == "      GPU0\nGPU0  X"


def test_without_a_gpu_there_is_no_topology_and_a_reason(tmp_path: Path) -> None:
    found = inventory(machine(tmp_path))
    assert found.topology is None
    assert found.missing["topology"].startswith("There is no GPU")


def test_cards_of_unknown_distance_are_nobodys_nearest() -> None:
    topology = Topology(gpus=("GPU0",), cards=("ib0", "ib1"), rows=(("X", None, "SYS"),))
    assert topology.nearest_cards(0) == ("ib1",)
    assert Topology(gpus=("GPU0",), cards=("ib0",), rows=(("X", None),)).nearest_cards(0) == ()


@pytest.mark.parametrize(
    ("text", "cpus"), [("", []), ("3", [3]), ("0-2,8", [0, 1, 2, 8]), ("0-1,63-65", [0, 1, 63, 64, 65])]
)
def test_a_cpu_list_is_written_as_linux_writes_it(text: str, cpus: list[int]) -> None:
    assert cpu_list(cpus) == text
    words = [sum(1 << cpu % 64 for cpu in cpus if cpu // 64 == place) for place in range(2)]
    assert cpus_in(words) == cpus
