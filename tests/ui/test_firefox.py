"""The main job in Firefox, if it is installed: the same stories in another browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Error, Page, sync_playwright

from tests.ui.test_main_job import (
    digits,  # noqa: F401
    test_a_notebook_gets_cells_that_connect_it_and_that_run_a_workload,  # noqa: F401
    test_a_person_picks_cpu_starts_runs_and_watches_in_both_themes_and_nothing_is_fetched_from_elsewhere,  # noqa: F401
    test_bad_input_gets_a_sentence_and_starts_nothing,  # noqa: F401
)

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Firefox as it is installed, by WebDriver BiDi: Playwright's own build of it can't be had everywhere."""
    found = shutil.which("firefox-esr") or shutil.which("firefox")
    if found is None:
        pytest.skip("Firefox isn't installed. Debian: apt install firefox-esr")
    with sync_playwright() as playwright:
        try:
            started = playwright.firefox.launch(channel="moz-firefox", executable_path=found)
        except Error as err:
            # Firefox 140, which is Debian 12's, lacks a command that Playwright 1.60 sends to all.
            if "unknown command" not in str(err):
                raise
            pytest.skip(f"this Firefox is too old for this Playwright: {str(err).splitlines()[0]}")
        yield started
        started.close()


def test_it_is_firefox(page: Page) -> None:
    assert "Firefox" in page.evaluate("navigator.userAgent")
