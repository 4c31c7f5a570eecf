"""`make demo-gpus` as a person sees it: simulated GPUs that compute, and every answer of theirs marked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.simulated import GIB, SimulatedNvml, computing
from tests.test_genotypes_pca import bed_file
from tests.ui.conftest import Lab, running_lab
from tests.ui.steps import MINUTE, OpenLab, Screenshot, hook, open_sidebar, run_workload, section, unfold

pytest.importorskip("dask_cuda")


EXPERIMENTS = {
    "transpose_sum": {"size": "8MiB", "persist": "true"},
    "dataframe_join": {"n_rows": "20000", "partition": "5000"},
    "compressed_svd": {"size": "8MiB"},
    "genotype_pca": {"n_variants": "5000", "n_samples": "200"},
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, simulated_nvml: SimulatedNvml) -> Iterator[Lab]:
    """Provide a JupyterLab on a machine with eight simulated GPUs and a CuPy."""
    env = simulated_nvml.environment(preset="dgx1", memory=16 * GIB, load="wave")
    env = computing(env, tmp_path_factory.mktemp("cuda"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LD_LIBRARY_PATH", "PYTHONPATH", *(name for name in env if name.startswith("SIMULATED_NVML"))):
            patch.setenv(name, env[name])
        with running_lab(tmp_path_factory.mktemp("lab")) as running:
            yield running


def test_the_demo_runs_its_workloads_from_the_sidebar_and_marks_each_answer(
    lab: Lab, open_lab: OpenLab, screenshot: Screenshot, tmp_path: Path
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
    for workload, fields in EXPERIMENTS.items():
        run = run_workload(page, workload, **fields)
        assert (run["status"], run["check"]["passed"], run["simulated"]) == ("done", True, True), run["error"]
        assert run["on_gpu"]["on_gpu"] > 0
        shown = hook(page, f"run-{run['id']}")
        expect(shown.locator(".wb-Run-title")).to_contain_text("SIMULATED · ")
        expect(hook(shown, "result")).to_contain_text("SIMULATED · ")
    section(page, "clusters", opened=False)
    screenshot("demo-gpus-runs")
    with page.context.expect_page() as opened:
        hook(shown, "report").click()
    report = opened.value
    expect(report.locator("h1")).to_contain_text("SIMULATED · Principal components of genotypes")
    report.wait_for_function("() => window.Bokeh?.documents.length >= 1", timeout=MINUTE)
    titles = report.evaluate(
        "() => Bokeh.documents.flatMap(d => [...d._all_models.values()]).map(m => m.title?.text).filter(Boolean)"
    )
    pictures = report.locator("img").evaluate_all("all => all.map(each => each.alt)")
    assert (len(titles) > 4, len(pictures) > 2) == (True, True)
    assert [title for title in titles + pictures if "SIMULATED" not in title] == []
    report.close()
    packing = {
        "path": bed_file(tmp_path, np.random.default_rng(0).integers(0, 3, (500, 60)).astype("int8"), ["1"] * 500)
    }
    packed = run_workload(page, "pack_genotypes", **packing, to=str(tmp_path / "packed.zarr"))
    assert (packed["status"], packed["on_gpu"]["warning"]) == ("done", None)
