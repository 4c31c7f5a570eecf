"""The GPUs of a cluster as its workers tell of them, on a server that sees no GPU itself."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.server.conftest import html_of
from tests.server.test_views import gpu, machine, text_of
from workbench.figures.gpus import cluster_gpu_list
from workbench.hardware.gauges import GpuSample
from workbench.monitor.events import Batch, NoGpus
from workbench.views.gpu_samples import FRESH, LatestSamples

GIB = 2**30


def sample(index: int = 0, time: float = 10.0, **fields: Any) -> GpuSample:
    values = {"host": "node-a", "utilisation": 40.0, "memory_used": 4 * GIB, "memory_total": 16 * GIB}
    return GpuSample(**({"uuid": f"GPU-{index}", "name": "SIMULATED", "index": index, "time": time} | values | fields))


def listed(planned: list[str], *samples: GpuSample, silence: str = "Nothing yet.") -> str:
    return cluster_gpu_list(
        planned,
        {each.uuid: each for each in samples},
        lambda: (machine(gpu(1)), {"GPU-1": sample(1, utilisation=7, memory_used=None)}),
        place="here",
        silence=silence,
    )


# What is shown


def test_workers_are_heard_first_then_this_machine_and_who_is_in_neither_has_a_reason() -> None:
    html = listed(["GPU-0", "GPU-1", "GPU-2"], sample(0, power=140.2, temperature=48.0, memory_ours=GIB))
    assert text_of(html) == (
        "0 · SIMULATED 140 W · 48 °C 40 % 12 GiB free Our workers hold 1 GiB. 1 · SIMULATED 7 % GPU-2 Nothing yet."
    )
    assert "GPU-0, on node-a as its worker reports" in html


def test_this_machine_is_not_asked_where_the_workers_tell_of_all() -> None:
    html = cluster_gpu_list(["GPU-0"], {"GPU-0": sample()}, lambda: pytest.fail("asked"), place="here", silence="no")
    assert text_of(html) == "0 · SIMULATED 40 % 12 GiB free"


def test_what_a_worker_cannot_tell_has_its_reason_once() -> None:
    refused = dict.fromkeys(("utilisation", "power"), "not supported by this GPU")
    told = sample(utilisation=None, throttle=("idle", "power cap"), absent=refused)
    assert text_of(listed(["GPU-0"], told)) == (
        "0 · SIMULATED 12 GiB free No use and power: not supported by this GPU. Its clock is held back: power cap."
    )


def test_gpus_of_several_nodes_are_told_apart_and_slices_by_their_number() -> None:
    cut = [sample(0, uuid=f"MIG-{n}", utilisation=None) for n in (1, 2)]
    html = listed([], *cut, sample(3, host="node-b"))
    assert re.findall(r'data-workbench="gpu-([^"]*)"', html) == ["node-a · 0:0", "node-a · 0:1", "node-b · 3"]


# What is remembered


def test_the_newest_sample_counts_and_one_that_is_old_does_not() -> None:
    heard = LatestSamples()
    heard.add([Batch(10.0, gpus=(sample(0, 9.0), sample(1, 9.0), sample(0, 9.5, utilisation=80.0)))])
    assert {uuid: each.utilisation for uuid, each in heard.samples.items()} == {"GPU-0": 80.0, "GPU-1": 40.0}
    heard.add([Batch(9.2 + FRESH, gpus=(sample(0, 9.1 + FRESH),))])
    assert list(heard.samples) == ["GPU-0"]
    assert heard.silence == "Its worker sends no samples of it any more."


def test_a_node_that_cannot_read_its_gpus_says_why() -> None:
    heard = LatestSamples()
    assert heard.silence.startswith("Its workers have sent no samples yet.")
    heard.add([Batch(10.0, no_gpus=(NoGpus("node-a", "This account may not use the NVIDIA driver.", True),))])
    assert heard.silence == "On node-a: This account may not use the NVIDIA driver."


async def test_a_cluster_that_cannot_be_watched_says_why_in_its_rows(service: Any, session: Any) -> None:
    spec = session.add("calm-otter").spec.model_copy(update={"devices": ("GPU-9",)})
    session.change("calm-otter", spec=spec, status="stopping")
    shown = text_of(await html_of(service, "cluster:calm-otter"))
    assert shown == "GPU-9 calm-otter is being stopped."
