"""Jobs of SLURM, from the script that is seen first to the reason why they wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests import slurm
from tests.ui.conftest import Lab, running_lab
from tests.ui.steps import MINUTE, OpenLab, hook, open_sidebar, unfold


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, slurm_configuration: Path) -> Iterator[Lab]:
    """Provide a JupyterLab on a machine from which jobs are submitted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(slurm_configuration))
        with running_lab(tmp_path_factory.mktemp("lab")) as running:
            yield running


def test_a_job_script_is_seen_and_then_why_the_jobs_wait(open_lab: OpenLab, slurm_configuration: Path) -> None:
    page = open_lab()
    open_sidebar(page)
    unfold(page, "ways-elsewhere")
    hook(page, "profile-slurm").click()
    unfold(page, "more-choices")
    hook(page, "field-queue").fill("off")
    hook(page, "field-interface").fill("lo")
    hook(page, "field-memory").fill("700MiB")
    unfold(page, "preview")
    expect(hook(page, "plan-preview")).to_contain_text("#SBATCH -p off")
    hook(page, "field-name").fill("night")
    hook(page, "start").click()
    cluster = hook(page, "cluster-night")
    expect(hook(cluster, "stage")).to_have_text("workers 0 of 1", timeout=MINUTE)
    expect(hook(cluster, "queued")).to_have_text("1 pending: PartitionDown", timeout=MINUTE)
    hook(cluster, "cancel-start").click()
    expect(cluster).to_have_count(0, timeout=MINUTE)
    assert slurm.queued(slurm_configuration) == []
