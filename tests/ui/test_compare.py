"""Comparing in the sidebar, as a person does it: lines, a click, bars that grow, the table in a cell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.ui.conftest import Lab
from tests.ui.test_main_job import MINUTE, hook, open_sidebar, section


def test_clusters_are_compared_by_a_click_and_the_table_goes_into_a_cell(
    lab: Lab, open_lab: Callable[[], Page], screenshot: Callable[[str], Path]
) -> None:
    page = open_lab()
    open_sidebar(page)
    for name in ("hardware", "clusters", "workloads", "runs"):
        section(page, name, opened=False)
    section(page, "compare", opened=True)
    one = "cpu --workers 1 --threads 1 --memory 512MiB --no-encrypt"
    hook(page, "compare-on").fill(f"{one}\n{one.replace('--threads 1', '--threads 2')}\ngpu")
    hook(page, "compare-parameters").fill("size=8MiB")
    hook(page, "compare-repeats").fill("2")
    hook(page, "compare").click()
    shown = page.locator('[data-workbench^="comparison-compare-array_sum"]')
    expect(shown).to_have_count(1, timeout=MINUTE)
    expect(hook(shown, "verdict")).to_be_visible(timeout=3 * MINUTE)
    screenshot("compare-sidebar")
    (told,) = lab.get("workbench/api/comparisons")["comparisons"]
    assert told["agree"] is True
    # No notebook is open yet: the click makes one.
    hook(shown, "comparison-cell").click()
    cell = page.locator(".jp-MarkdownCell")
    expect(cell).to_have_count(1)
    expect(cell).to_contain_text("architecture")
    screenshot("compare-cell")
    hook(shown, "watch-comparison").click()
    figure = hook(page, "figure")
    expect(figure).to_contain_text("--threads 2", timeout=MINUTE)
    screenshot("compare-tab")
    figure.get_by_role("button", name="Put the table into a cell").click()
    page.locator(".lm-TabBar-tabLabel").filter(has_text="Untitled").click()
    expect(cell).to_have_count(2)
    with page.context.expect_page() as opened:
        hook(shown, "comparison-page").click()
    chart = opened.value
    expect(chart.locator(".bk-Figure").first).to_be_visible(timeout=MINUTE)
    expect(chart.get_by_role("cell", name="passed").first).to_be_visible()
    chart.close()
