"""A forecast without a time has a button next to it that measures: it runs a part of the workload."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.ui.conftest import Lab
from tests.ui.test_main_job import MINUTE, OpenLab, Screenshot, choose_workload, hook, section, start_cluster
from workbench.runs import store


def test_a_click_measures_a_part_and_the_forecast_tells_a_time(
    lab: Lab, open_lab: OpenLab, screenshot: Screenshot
) -> None:
    page = open_lab()
    start_cluster(page, "new-otter", n_workers="1", threads_per_worker="1", memory="1GiB")
    section(page, "hardware", opened=False)
    section(page, "workloads", opened=True)
    choose_workload(page, "array_sum")
    needs = page.locator("#wb-fold-needs-why")
    expect(needs).to_contain_text("Time unknown: it never ran on this hardware. Measure it", timeout=MINUTE)
    hook(page, "needs-why").click()
    hook(page, "measure").click()
    expect(needs).to_contain_text("to an order of magnitude", timeout=2 * MINUTE)
    screenshot("measured")
    (run,) = store.select()
    assert run.measurement
