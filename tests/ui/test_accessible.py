"""axe-core finds nothing to complain of in what we show, in each theme of Lab."""

from __future__ import annotations

from collections.abc import Callable

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.ui.conftest import Lab
from tests.ui.steps import MINUTE, change_theme, hook
from workbench.runs import store
from workbench.runs.comparing.past import compare_runs
from workbench.runs.run import Run
from workbench.session import Session

PARTS = ("about-machine", "why", "more-choices", "run-more", "compare-more")


THEMES = ("JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast")


def test_axe_finds_nothing_amiss(lab: Lab, open_lab: Callable[[], Page]) -> None:
    for number, status in enumerate(("done", "failed", "cancelled")):
        ended = {"status": status, "seconds": 1.0, "result": {"value": 12.0}, "created": 1e9 + number}
        store.create(Run(id=f"sum-{number}", workload="array_sum", cluster="calm-otter", **ended))
    page = open_lab()
    page.evaluate("() => { window.jupyterapp.commands.execute('dask-workbench:open') }")
    sidebar = page.locator(".wb-Sidebar")
    expect(hook(sidebar, "run-button")).to_be_visible(timeout=MINUTE)
    for part in PARTS:
        hook(sidebar, part).first.click()
    hook(sidebar, "tick").first.check()
    for theme in THEMES:
        change_theme(page, theme)
        assert_accessible(page, ".wb-Sidebar")
        for view, part in (("machine", "usage"), ("wide", "run-button")):
            page.evaluate("view => { jupyterapp.commands.execute('dask-workbench:view', {view, label: view}) }", view)
            tab = f'[id="dask-workbench-tab-{view}"]'
            expect(hook(page.locator(tab), part)).to_be_visible(timeout=MINUTE)
            assert_accessible(page, tab)


def open_tour(lab: Lab, open_lab: Callable[[], Page], *, height: int) -> Page:
    """Open Lab with its sidebar, as on a first visit."""
    (lab.data_folder / "toured").unlink()
    page = open_lab()
    page.set_viewport_size({"width": 1280, "height": height})
    page.evaluate("() => { window.jupyterapp.commands.execute('dask-workbench:open') }")
    return page


def test_the_tour_is_walked_with_the_keyboard_and_dismissed_for_good(lab: Lab, open_lab: Callable[[], Page]) -> None:
    page = open_tour(lab, open_lab, height=800)
    sidebar = page.locator(".wb-Sidebar")
    card = hook(sidebar, "tour")
    titles = {
        "hardware": "Choose hardware",
        "clusters": "Start a cluster",
        "workloads": "Run a workload",
        "runs": "Read the answer",
    }
    expect(hook(sidebar, "run-button")).to_be_attached(timeout=MINUTE)
    hook(card, "tour-next").focus()
    for name, title in titles.items():
        expect(card.get_by_role("status")).to_contain_text(title)
        about = hook(sidebar, f"section-{name}")
        expect(about.get_by_role("heading")).to_be_in_viewport()
        page.wait_for_timeout(300)
        top, bottom = about.bounding_box(), card.bounding_box()
        assert top is not None
        assert bottom is not None
        assert top["y"] >= bottom["y"] + bottom["height"], "the card hides what it is about"
        assert about.evaluate("each => getComputedStyle(each, '::before').width") == "3px"
        assert_accessible(page, ".wb-Sidebar")
        expect(card.get_by_role("button").first).to_be_focused()
        if name != "runs":
            page.keyboard.press("Enter")
    hook(card, "tour-over").click()
    expect(card).to_have_count(0)
    page = open_lab()
    expect(hook(sidebar, "run-button")).to_be_attached(timeout=MINUTE)
    expect(card).to_have_count(0)


COVERED = """() => {
    const {x, y, width, height} = document.activeElement.getBoundingClientRect()
    const there = document.elementFromPoint(x + width / 2, y + height / 2)
    return !(there && (document.activeElement.contains(there) || there.contains(document.activeElement)))
        && document.activeElement.textContent
}"""
"""Text of the element that has the focus, if another lies over its middle; else false."""


def test_what_has_the_focus_is_covered_neither_by_the_tour_nor_by_a_header_nor_by_the_form(
    lab: Lab, open_lab: Callable[[], Page]
) -> None:
    store.create(Run(id="walked", workload="total", cluster="calm-otter", status="done", seconds=1.0))
    page = open_tour(lab, open_lab, height=640)
    sidebar = page.locator(".wb-Sidebar")
    last = hook(sidebar, "compare-more")
    expect(last).to_be_visible(timeout=MINUTE)
    for is_toured in (True, False):
        expect(hook(sidebar, "tour")).to_have_count(int(is_toured))
        for key, start in (("Shift+Tab", last), ("Tab", hook(sidebar, "help").first)):
            start.focus()
            for _ in range(40):
                page.keyboard.press(key)
                page.wait_for_timeout(50)
                if page.evaluate("() => document.activeElement.closest('.wb-Sidebar') !== null"):
                    assert not page.evaluate(COVERED)
        if is_toured:
            hook(sidebar, "tour-over").click()


DROP = """(field) => ['lm-dragenter', 'lm-dragover', 'lm-drop'].forEach(type => {
    const event = new Event(type, {bubbles: true, cancelable: true})
    event.mimeData = {getData: kind => kind === 'application/x-jupyter-icontents' ? ['folder/d.npy'] : undefined}
    event.proposedAction = 'move'
    field.dispatchEvent(event)
    if (!event.defaultPrevented || event.dropAction !== 'move') throw new Error(type)
})"""
"""Events that Lab's file browser sends to a field when a file is dropped on it."""


def assert_accessible(page: Page, place: str) -> None:
    found = Axe().run(page, context=place, options={"rules": {"region": {"enabled": False}}})
    assert found.violations_count == 0, found.generate_report()


def test_axe_finds_nothing_amiss_inside_clusters_comparisons_and_forms_with_errors(
    lab: Lab, open_lab: Callable[[], Page]
) -> None:
    session = Session()
    session.start(session.plan("cpu", n_workers=1), name="calm")
    for name in ("total-aaaaaa", "total-bbbbbb"):
        store.create(Run(id=name, workload="total", cluster="calm", status="done", seconds=2.0))
    comparison = compare_runs(["aaaaaa", "bbbbbb"]).id
    page = open_lab()
    page.evaluate("() => { window.jupyterapp.commands.execute('dask-workbench:open') }")
    sidebar = page.locator(".wb-Sidebar")
    hook(sidebar, "workload-svd_of_file").click(timeout=MINUTE)
    hook(sidebar, "field-path").evaluate(DROP)
    expect(hook(sidebar, "field-path")).to_have_value(str(lab.notebooks / "folder" / "d.npy"))
    hook(sidebar, "field-k").fill("minus")
    expect(hook(sidebar, "field-k-problem")).to_be_visible(timeout=MINUTE)
    session.wait("calm")
    shown = {"workers:calm": ".wb-Panes", f"comparison:{comparison}": "[data-workbench=compare-bars]"}
    for theme in THEMES:
        change_theme(page, theme)
        assert_accessible(page, ".wb-Sidebar")
        for view, part in shown.items():
            tab = f'[id="dask-workbench-tab-{view}"]'
            page.evaluate("view => { jupyterapp.commands.execute('dask-workbench:view', {view, label: view}) }", view)
            expect(page.locator(tab).locator(part)).to_be_visible(timeout=MINUTE)
            assert_accessible(page, tab)


def test_sections_are_gone_to_and_buttons_pressed_by_shortcuts_that_nothing_else_has(
    lab: Lab, open_lab: Callable[[], Page]
) -> None:
    page = open_lab()
    page.evaluate("() => window.jupyterapp.commands.execute('filebrowser:activate')")
    bound = page.evaluate("""() => window.jupyterapp.commands.keyBindings
        .filter(each => each.keys[0] === 'Ctrl Shift Y').map(each => each.command)""")
    assert len(bound) == 8
    assert all(each.startswith("dask-workbench:") for each in bound)

    def press(key: str) -> None:
        page.keyboard.press("Control+Shift+Y")
        page.keyboard.press(key)

    press("r")
    expect(page.locator('[data-fold="wb-section-runs"]')).to_be_focused(timeout=MINUTE)
    press("s")
    expect(page.locator('[data-workbench^="cluster-"] [data-workbench="stage"]').first).to_have_text(
        "ready", timeout=MINUTE
    )
    press("v")
    expect(hook(page, "figure").last).to_contain_text("worker", timeout=MINUTE)
    hook(page, "field-size").fill("32MiB")
    press("Enter")
    expect(hook(page, "check-passed").first).to_be_visible(timeout=MINUTE)
    page.locator(".lm-MenuBar-item", has_text="View").click()
    page.locator(".lm-Menu-item", has_text="Workbench").hover()
    page.locator(".lm-Menu-item", has_text="Stop All Clusters").wait_for()
