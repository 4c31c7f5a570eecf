"""Comparing in the sidebar, as a person does it: pickers, a click, bars that grow, the table in a cell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.ui.conftest import Lab
from tests.ui.steps import MINUTE, choose_workload, hook, open_sidebar, unfold
from workbench.session import Session


def test_clusters_are_compared_by_pickers_and_the_table_goes_into_a_cell(
    lab: Lab, open_lab: Callable[[], Page], screenshot: Callable[[str], Path]
) -> None:
    page = open_lab()
    open_sidebar(page)
    choose_workload(page, "array_sum")
    hook(page, "field-size").fill("8MiB")
    hook(page, "compare-this").click()
    expect(hook(page, "compare-what")).to_have_text("Sum or mean of an array, size 8MiB")
    expect(hook(page, "compare-on-one-core")).to_be_checked()
    hook(page, "compare-on-cpu").uncheck()
    expect(hook(page, "compare-problem")).to_contain_text("Tick two or more")
    expect(hook(page, "compare")).to_be_disabled()
    hook(page, "compare-sweep").select_option("threads")
    expect(hook(page, "compare-values")).not_to_have_value("")
    hook(page, "compare-sweep").select_option("")
    expect(hook(page, "compare")).to_be_disabled()
    unfold(page, "compare-more")
    # The form changes while the user types: the problem is shown above this field, and no key gets lost.
    hook(page, "compare-lines").press_sequentially("cpu --workers 1 --threads 2 --no-encrypt; gpu", delay=30)
    expect(hook(page, "compare-lines")).to_have_value("cpu --workers 1 --threads 2 --no-encrypt; gpu")
    hook(page, "compare-agreed").check()
    hook(page, "compare-repeats").fill("2")
    expect(hook(page, "compare")).to_be_enabled()
    hook(page, "compare").click()
    shown = page.locator('[data-workbench^="comparison-compare-array_sum"]')
    expect(shown).to_have_count(1, timeout=MINUTE)
    expect(hook(shown, "verdict")).to_be_visible(timeout=3 * MINUTE)
    screenshot("compare-sidebar")
    (told,) = Session().comparisons()
    assert Session().summary(told).agree is True
    # No notebook is open yet: the click makes one.
    hook(shown, "comparison-cell").click()
    cell = page.locator(".jp-MarkdownCell")
    expect(cell).to_have_count(1)
    expect(cell).to_contain_text("hardware")
    screenshot("compare-cell")
    # Comparing opened the tab; the button finds it again.
    hook(shown, "watch-comparison").click()
    tab = hook(page, "compared")
    expect(tab).to_have_count(1)
    expect(tab).to_contain_text("2 threads, not encrypted", timeout=MINUTE)
    screenshot("compare-tab")
    hook(tab, "comparison-cell").click()
    page.locator(".lm-TabBar-tabLabel").filter(has_text="Untitled").click()
    expect(cell).to_have_count(2)
    with page.context.expect_page() as opened:
        hook(shown, "comparison-page").click()
    expect(hook(opened.value, "compare-bars")).to_be_visible(timeout=MINUTE)
    expect(opened.value.get_by_role("cell", name="passed").first).to_be_visible()
    opened.value.close()
    for _ in range(2):
        hook(shown, "delete-comparison").click()
    expect(shown).to_have_count(0, timeout=MINUTE)
