"""The main job as a person does it: pick hardware, start, run, watch, connect a notebook, stop."""

from __future__ import annotations

import io
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest
import zarr
from PIL import Image
from playwright.sync_api import Page, expect

from tests.ui.conftest import Lab
from tests.ui.steps import (
    MINUTE,
    OpenLab,
    Screenshot,
    change_theme,
    choose_workload,
    coloured,
    expect_form_of,
    hook,
    open_sidebar,
    run_workload,
    section,
    start_cluster,
    unfold,
    wait_for_new,
)
from workbench.clusters import records
from workbench.clusters.profiles import registered
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.runs import store
from workbench.session import Session

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def digits(lab: Lab) -> Path:
    from sklearn.datasets import load_digits

    path = lab.notebooks / "digits.zarr"
    if not path.exists():
        zarr.save(str(path), load_digits().data)
    return path


def test_a_person_picks_cpu_starts_runs_and_watches_in_both_themes_and_nothing_is_fetched_from_elsewhere(
    lab: Lab, open_lab: OpenLab, page: Page, screenshot: Screenshot, digits: Path
) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    open_lab()
    cluster = start_cluster(page, "picked-otter", n_workers="2", threads_per_worker="1", memory="2GiB")
    expect(cluster).to_contain_text("2 workers × 1 thread")
    hook(cluster, "watch").click()
    figure = page.locator('[id="dask-workbench-tab-watch:cluster:picked-otter"] .wb-Figure')
    expect(figure).to_contain_text("No tasks on picked-otter", timeout=MINUTE)
    before = coloured(figure)

    run = run_workload(page, "compressed_svd", size="64MiB", k="5")
    assert run["status"] == "done", run["error"]
    assert run["check"]["passed"], run["check"]["what"]
    # Run opened a tab, where the answer comes first.
    result = hook(page, f"result-{run['id']}")
    expect(hook(result, "values").get_by_role("row")).to_have_count(6)
    expect(result.locator(".wb-Checked")).to_contain_text("Each value is")
    expect(hook(result, "diagnosis")).to_be_visible(timeout=MINUTE)
    expect(hook(result, "figure").locator(".bk-Figure").first).to_be_visible(timeout=MINUTE)
    screenshot("result-light")
    page.locator(".lm-TabBar-tab", has_text="picked-otter").click()
    expect(figure).not_to_contain_text("No tasks on picked-otter")
    page.wait_for_timeout(500)
    screenshot("watch-light")
    assert coloured(figure) > before + 5_000
    # All of it, and a picture to keep.
    follow = hook(figure, "follow")
    expect(follow).to_have_text("Pause")
    hook(figure, "show-all").click()
    expect(follow).to_have_text("Follow")
    with page.expect_download() as download:
        hook(figure, "save-picture").click()
    assert download.value.suggested_filename == "picked-otter.png"
    assert np.asarray(Image.open(download.value.path())).std() > 10
    # The last run is shown next to the button, with a link.
    expect(hook(page, "latest-run")).to_contain_text(" s")
    hook(page, "latest-run").click()
    expect(hook(hook(page, f"run-{run['id']}"), "run-more")).to_have_attribute("aria-expanded", "true")

    run = run_workload(page, "svd_of_file", path=str(digits), k="3", center="true")
    assert run["check"]["passed"], run["check"]["what"]
    expect(hook(page, f"result-{run['id']}")).to_be_visible(timeout=MINUTE)
    expect(page.locator(".lm-TabBar-tab", has_text="Result")).to_have_count(1)
    np.testing.assert_allclose(run["result"]["singular_values"], [567.0066, 542.2519, 504.6306], atol=5e-4)
    expect(hook(hook(page, f"run-{run['id']}"), "result")).to_contain_text("567")

    # The figure follows the theme of the page.
    change_theme(page, "JupyterLab Dark")
    page.locator(".lm-TabBar-tab", has_text="picked-otter").click()
    page.wait_for_timeout(1000)
    brightness = np.asarray(Image.open(io.BytesIO(figure.screenshot())).convert("L")).astype(float)
    assert np.median(brightness) < 80
    screenshot("watch-dark")
    change_theme(page, "JupyterLab Light")

    hook(cluster, "stop").click()
    expect(hook(page, "cluster-picked-otter")).to_have_count(0, timeout=MINUTE)
    assert records.read_all() == ()
    assert [url for url in requests if not url.startswith((lab.root, "data:", "blob:"))] == []


def test_a_notebook_gets_cells_that_connect_it_and_that_run_a_workload(
    lab: Lab, open_lab: OpenLab, screenshot: Screenshot
) -> None:
    page = open_lab()
    cluster = start_cluster(page, "noted-otter", n_workers="2", threads_per_worker="1", memory="2GiB")
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:create-new', {kernelName: 'python3'}) }")
    expect(page.locator(".jp-Notebook")).to_be_visible(timeout=MINUTE)
    expect(page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]')).to_be_visible(timeout=MINUTE)
    hook(cluster, "connect").click()
    expect(page.locator(".jp-Notebook .jp-Cell").filter(has_text='workbench.connect("noted-otter")')).to_be_visible()
    expect(hook(cluster, "notebooks")).to_contain_text("Untitled", timeout=MINUTE)
    page.evaluate(
        """async () => {
            const app = window.jupyterapp;
            const panel = app.shell.currentWidget;
            await app.commands.execute('notebook:insert-cell-below');
            panel.content.activeCell.model.sharedModel.setSource('client.submit(sum, [20, 22]).result()');
            await app.commands.execute('notebook:run-cell');
        }"""
    )
    expect(page.locator(".jp-OutputArea-output").filter(has_text=re.compile(r"^\s*42\s*$"))).to_be_visible(
        timeout=MINUTE
    )
    screenshot("notebook-connected")

    section(page, "hardware", opened=False)
    section(page, "workloads", opened=True)
    choose_workload(page, "array_sum")
    hook(page, "field-size").fill("8MiB")
    expect(hook(page, "run-button")).to_be_enabled()
    unfold(page, "workload-source")
    expect(hook(page, "workload-code")).to_contain_text("1024")
    hook(page, "insert-workload").click()
    cell = page.locator(".jp-Notebook .jp-CodeCell").filter(has_text="array_sum(")
    expect(cell).to_be_visible()
    page.evaluate("async () => { await window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    # 1024 × 1024 numbers around 11, every other row and column: 2.88 million.
    expect(page.locator(".jp-OutputArea-output").filter(has_text=re.compile(r"288\d{4}"))).to_be_visible(timeout=MINUTE)


def test_a_report_dasks_own_dashboard_and_help_are_pages_one_click_away(
    lab: Lab, open_lab: OpenLab, page: Page
) -> None:
    opened = open_lab()
    cluster = start_cluster(opened, "shown-otter", n_workers="1", threads_per_worker="1", memory="1GiB")
    run = run_workload(opened, "array_sum", size="32MiB")
    with page.context.expect_page() as report:
        hook(hook(opened, f"run-{run['id']}"), "report").click()
    expect(report.value.locator("body")).to_contain_text("array_sum")
    expect(report.value.locator("canvas").first).to_be_visible(timeout=MINUTE)
    with page.context.expect_page() as dashboard:
        hook(cluster, "dashboard").click()
    expect(dashboard.value).to_have_title(re.compile("Dask: Status"), timeout=MINUTE)
    expect(dashboard.value.locator("canvas").first).to_be_visible(timeout=MINUTE)
    assert dashboard.value.url.startswith(lab.root)
    with page.context.expect_page() as help_page:
        hook(section(opened, "clusters", opened=True), "help").click()
    shown = help_page.value
    expect(shown).to_have_title("Use a cluster – dask-workbench")
    shown.get_by_role("link", name="attach to it").click()
    expect(shown.locator("article:visible h1")).to_have_text("Attach to a scheduler")
    shown.go_back()
    expect(shown.locator("article:visible h1")).to_have_text("Use a cluster")


def test_a_time_is_measured_what_wont_fit_asks_first_and_a_preset_fills_the_form(
    lab: Lab, open_lab: OpenLab, screenshot: Screenshot
) -> None:
    page = open_lab()
    start_cluster(page, "small-otter", n_workers="1", threads_per_worker="1", memory="512MiB")
    section(page, "hardware", opened=False)
    section(page, "workloads", opened=True)
    choose_workload(page, "transpose_sum")
    needs = page.locator("#wb-fold-needs-why")
    expect(needs).to_contain_text("Time unknown: it never ran on this hardware. Measure it", timeout=MINUTE)
    hook(page, "needs-why").click()
    hook(page, "measure").click()
    expect(needs).to_contain_text("to an order of magnitude", timeout=2 * MINUTE)
    screenshot("measured")
    assert next(iter(store.select())).measurement

    choose_workload(page, "array_sum")
    unfold(page, "more-fields")
    expect(hook(page, "run-button")).to_have_text("Run")
    expect(hook(page, "field-scale")).to_have_count(0)
    hook(page, "preset").select_option("post")
    expect(hook(page, "field-shape")).to_have_value("500000, 500000")
    expect(hook(page, "field-generator")).to_have_value("RandomState")
    expect(hook(page, "needs")).to_contain_text("Won't fit")
    expect(hook(page, "run-button")).to_have_text("Run anyway")
    hook(page, "field-size").fill("32MiB")
    expect(hook(page, "field-shape")).to_have_value("2048, 2048")
    expect(hook(page, "run-button")).to_have_text("Run")
    hook(page, "field-size").fill("")
    hook(page, "field-scale").fill("0.00001")
    expect(hook(page, "field-shape")).to_have_value("1581, 1581")
    expect(hook(page, "field-chunks")).to_have_value("791, 791")
    expect(hook(page, "run-button")).to_have_text("Run")
    page.screenshot(path="tests/ui/screenshots/preset.png")
    hook(page, "field-chunks").fill("400")
    expect(hook(page, "field-chunks-problem")).to_have_count(0)
    # Dask's settings of this run.
    hook(page, "field-settings").fill("array.rechunk.treshold=5")
    expect(hook(page, "run-button")).to_be_disabled()
    hook(page, "field-settings").fill("array.rechunk.threshold=5")
    expect(hook(page, "run-button")).to_be_enabled()
    before = {run.id for run in store.select()}
    hook(page, "run-button").click()
    (new,) = wait_for_new(before)
    run = store.get(new)
    assert (run.preset, run.settings) == ("post", {"array.rechunk.threshold": 5})
    assert (run.text_comparison or "").startswith("GPU Dask Arrays, first steps (2019): 2 h 39 min on one CPU core")
    hook(page, "preset").select_option("")
    expect(hook(page, "field-scale")).to_have_count(0)
    expect(hook(page, "field-shape")).to_have_value("")
    expect(hook(page, "run-button")).to_have_text("Run")
    # A preset of one's own: kept under a name, chosen, and forgotten.
    hook(page, "field-shape").fill("300, 200")
    hook(page, "preset-keep-name").fill("mine")
    hook(page, "preset-keep").click()
    expect(hook(page, "preset")).to_have_value("mine")
    expect(hook(page, "field-shape")).to_have_value("300, 200")
    page.screenshot(path="tests/ui/screenshots/preset_kept.png")
    hook(page, "preset").select_option("")
    expect(hook(page, "field-shape")).to_have_value("")
    hook(page, "preset").select_option("mine")
    expect(hook(page, "field-shape")).to_have_value("300, 200")
    hook(page, "preset-forget").click()
    hook(page, "preset-forget").click()
    expect(hook(page, "preset").locator("option[value=mine]")).to_have_count(0)


def test_a_watch_tab_is_there_after_a_reload_one_of_a_stopped_cluster_is_its_record_one_of_a_deleted_run_is_not(
    lab: Lab, open_lab: OpenLab, screenshot: Screenshot
) -> None:
    page = open_lab()
    cluster = start_cluster(page, "short-otter", n_workers="1", threads_per_worker="1", memory="1GiB")
    hook(cluster, "watch").click()
    run = run_workload(page, "array_sum", size="32MiB")
    page.locator(".lm-TabBar-tab", has_text="short-otter").click()
    expect(hook(page, "figure").locator("canvas").first).to_be_visible(timeout=MINUTE)
    # Lab saves its layout a second after the last change.
    page.wait_for_timeout(2500)
    page.reload()
    page.wait_for_function("() => window.jupyterapp !== undefined", timeout=MINUTE)
    page.evaluate("async () => { await window.jupyterapp.restored }")
    expect(hook(page, "figure").locator("canvas").first).to_be_visible(timeout=MINUTE)
    open_sidebar(page)
    hook(cluster, "stop").click()
    expect(page.locator(".lm-TabBar-tab", has_text="short-otter (ended)")).to_be_visible(timeout=MINUTE)
    expect(page.locator(".wb-mod-ended canvas").first).to_be_visible()
    expect(page.locator('[data-workbench="follow"]:visible')).to_have_count(0)
    screenshot("ended-cluster")
    hook(hook(page, f"run-{run['id']}"), "watch-run").click()
    tab = page.locator(f'[id="dask-workbench-tab-watch:run:{run["id"]}"]')
    expect(tab).to_be_visible(timeout=MINUTE)
    page.wait_for_timeout(2500)
    Session().delete_run(run["id"])
    page.reload()
    page.wait_for_function("() => window.jupyterapp !== undefined", timeout=MINUTE)
    page.evaluate("async () => { await window.jupyterapp.restored }")
    expect(tab).to_have_count(0, timeout=MINUTE)


def test_clusters_are_found_again_after_the_server_was_killed_restarted_and_all_stopped(
    lab: Lab, open_lab: OpenLab
) -> None:
    page = open_lab()
    start_cluster(page, "lasting-otter", n_workers="1", threads_per_worker="1", memory="1GiB")
    start_cluster(page, "other-otter", n_workers="1", threads_per_worker="1", memory="1GiB")
    # Away from Lab, whose own dialog of a lost connection would lie over the page.
    page.goto("about:blank")
    lab.restart()
    page = open_lab()
    open_sidebar(page)
    cluster = hook(page, "cluster-lasting-otter")
    expect(hook(cluster, "stage")).to_have_text("ready", timeout=MINUTE)
    run = run_workload(page, "array_sum", size="32MiB")
    assert run["check"]["passed"], run["check"]["what"]
    hook(cluster, "restart").click()
    confirm = page.locator(".jp-Dialog .jp-mod-accept")
    if confirm.count():
        confirm.click()
    expect(hook(cluster, "stage")).to_have_text("ready", timeout=MINUTE)
    hook(page, "stop-all").click()
    if hook(page, "stop-all").count():
        hook(page, "stop-all").click()
    for name in ("lasting", "other"):
        expect(hook(page, f"cluster-{name}-otter")).to_have_count(0, timeout=MINUTE)


def test_bad_input_gets_a_sentence_and_starts_nothing(lab: Lab, open_lab: OpenLab) -> None:
    page = open_lab()
    open_sidebar(page)
    section(page, "hardware", opened=True)
    unfold(page, "more-choices")
    hook(page, "field-n_workers").fill("-2")
    expect(hook(page, "plan")).to_contain_text("-2")
    expect(hook(page, "field-n_workers-problem")).to_contain_text("-2")
    expect(hook(page, "start")).to_be_disabled()
    hook(page, "field-n_workers").fill("")
    assert records.read_all() == ()


def test_profiles_that_cannot_be_had_say_why_and_a_cluster_of_another_machine_cannot_be_stopped_here(
    lab: Lab, open_lab: OpenLab, spec: ClusterSpec, screenshot: Screenshot
) -> None:
    record = ClusterRecord(
        name="far-otter", spec=spec, status="ready", node="node-7", place="there", created=time.time()
    )
    records.create(record)
    heartbeat = records.folder("far-otter") / "heartbeat"
    heartbeat.touch()
    os.utime(heartbeat, (time.time() + 3600,) * 2)
    page = open_lab()
    open_sidebar(page)
    profiles = Session().profiles()
    assert [profile.name for profile in profiles] == list(registered())
    for group in ("ways-elsewhere", "ways-more", "more-ways"):
        unfold(page, group)
    for profile in profiles:
        shown = hook(page, f"profile-{profile.name}")
        expect(shown).to_be_visible()
        if not profile.available:
            expect(shown).to_contain_text(profile.reason or "")
            assert shown.get_attribute("aria-disabled") == "true" or shown.is_disabled()
    section(page, "hardware", opened=False)
    cluster = hook(page, "cluster-far-otter")
    expect(hook(cluster, "stage")).to_have_text("unknown", timeout=MINUTE)
    expect(cluster).to_contain_text("It is on node-7, which shares this data folder")
    expect(cluster.get_by_role("button")).to_have_count(0)
    screenshot("unknown-cluster")
    records.remove("far-otter")


def test_each_key_arrives_and_what_was_typed_and_folded_is_so_from_the_first_moment_after_a_reload(
    lab: Lab, open_lab: OpenLab
) -> None:
    page = open_lab()
    open_sidebar(page)
    choose_workload(page, "transpose_sum")
    size = hook(page, "field-size")
    usual = size.input_value()
    size.fill("17MiB")
    expect(hook(page, "compare-what")).to_contain_text("17MiB")
    section(page, "hardware", opened=False)
    page.add_init_script(
        """window.drawn = []
        new MutationObserver(() => {
            const header = document.querySelector('[data-workbench="section-hardware"] [aria-expanded]')
            if (header) window.drawn.push(header.ariaExpanded)
        }).observe(document, {childList: true, subtree: true, attributes: true})"""
    )
    page.reload()
    expect_form_of(page, "transpose_sum")
    expect(size).to_have_value("17MiB")
    assert set(page.evaluate("() => window.drawn")) == {"false"}
    # A shape takes the size back.
    unfold(page, "more-fields")
    hook(page, "field-shape").fill("300, 300")
    expect(size).to_have_value(usual)
    expect(hook(page, "field-size-problem")).to_have_count(0)
    expect(hook(page, "field-shape-problem")).to_have_count(0)

    # Forms change while one types.
    choose_workload(page, "genotype_pca")
    page.evaluate("document.querySelectorAll('.wb-Sidebar [aria-expanded=false]').forEach(each => each.click())")
    fields = page.locator(".wb-Sidebar input:visible:enabled:not([type=checkbox], [type=radio], [type=date])")
    expect(page.locator('.wb-Sidebar [name="run.genotype_pca.max_missing"]')).to_be_visible()
    names = fields.evaluate_all("found => found.map(each => each.name)")
    assert len(names) > 15
    for name in names:
        field = page.locator(f'.wb-Sidebar [name="{name}"]')
        typed = "12" if field.get_attribute("type") == "number" else "4, 8:12, abc"
        field.fill("")
        field.press_sequentially(typed, delay=30)
        assert (name, field.input_value()) == (name, typed)
        field.fill("")
