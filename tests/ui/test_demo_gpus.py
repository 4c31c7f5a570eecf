"""`make demo-gpus` as a person sees it: simulated GPUs that compute, and every answer of theirs marked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.simulated import GIB, SimulatedNvml, computing
from tests.ui.conftest import Lab, running_lab
from tests.ui.test_main_job import MINUTE, OpenLab, Screenshot, hook, open_sidebar, run_workload, section, unfold

pytest.importorskip("dask_cuda")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, simulated_nvml: SimulatedNvml) -> Iterator[Lab]:
    """A JupyterLab on a machine with eight simulated GPUs and a CuPy."""
    env = simulated_nvml.environment(preset="dgx1", memory=16 * GIB, load="wave")
    env = computing(env, tmp_path_factory.mktemp("cuda"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LD_LIBRARY_PATH", "PYTHONPATH", *(name for name in env if name.startswith("SIMULATED_NVML"))):
            patch.setenv(name, env[name])
        with running_lab(tmp_path_factory.mktemp("lab")) as running:
            yield running


def test_the_demo_runs_its_workloads_from_the_sidebar_and_marks_each_answer(
    lab: Lab, open_lab: OpenLab, screenshot: Screenshot
) -> None:
    page = open_lab()
    open_sidebar(page)
    hook(page, "profile-gpu").click()
    unfold(page, "more-choices")
    hook(page, "field-memory").fill("2GiB")
    hook(page, "field-name").fill("shown-otter")
    expect(hook(page, "start")).to_be_enabled(timeout=MINUTE)
    hook(page, "start").click()
    cluster = hook(page, "cluster-shown-otter")
    expect(hook(cluster, "stage")).to_have_text("ready", timeout=2 * MINUTE)
    for workload in ("array_sum", "compressed_svd", "tall_skinny_svd"):
        run = run_workload(page, lab, workload, size="8MiB")
        assert (run["status"], run["check"]["passed"], run["simulated"]) == ("done", True, True), run["error"]
        assert run["on_gpu"]["on_gpu"] > 0
        shown = hook(page, f"run-{run['id']}")
        expect(shown.locator(".wb-Run-title")).to_contain_text("SIMULATED · ")
        expect(hook(shown, "result")).to_contain_text("SIMULATED · ")
    section(page, "clusters", opened=False)
    screenshot("demo-gpus-runs")
    with page.context.expect_page() as opened:
        hook(shown, "report").click()
    expect(opened.value.locator("h1")).to_contain_text("SIMULATED · tall_skinny_svd")
    opened.value.close()
