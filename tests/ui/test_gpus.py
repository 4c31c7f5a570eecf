"""GPUs in the sidebar, on devices that are simulated."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.simulated import SimulatedNvml, dgx1_sysfs
from tests.ui.conftest import Lab, running_lab
from tests.ui.steps import MINUTE, OpenLab, Screenshot, hook, open_sidebar, section, unfold
from tests.waiting import until
from workbench.clusters import records

GIB = 2**30
HELD = {2: 12 * GIB, 5: int(15.5 * GIB)}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, simulated_nvml: SimulatedNvml) -> Iterator[Lab]:
    """Provide a JupyterLab on the posts' machine: a DGX-1, with two GPUs used by others."""
    folder = tmp_path_factory.mktemp("lab")
    env = simulated_nvml.environment(
        preset="dgx1",
        memory=16 * GIB,
        load="0,40,80",
        processes=",".join(f"{gpu}:{os.getpid()}:{held}" for gpu, held in HELD.items()),
    )
    (folder / "sys").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LD_LIBRARY_PATH", *(name for name in env if name.startswith("SIMULATED_NVML"))):
            patch.setenv(name, env[name])
        patch.setenv("DASK_WORKBENCH__SYSFS", str(simulated_sys(folder / "sys")))
        with running_lab(folder) as running:
            yield running


def simulated_sys(folder: Path) -> Path:
    """Write the cards of a DGX-1 next to this machine's own control groups and NUMA nodes."""
    dgx1_sysfs(folder)
    (folder / "fs").symlink_to("/sys/fs")
    (folder / "devices" / "system").symlink_to("/sys/devices/system")
    return folder


def overflowing(place: Locator) -> list[str]:
    """Return elements wider than their space that don't scroll by themselves: cut text, or a scroll bar."""
    found: list[str] = place.evaluate(
        """root => [root, ...root.querySelectorAll('*:not(.wb-hidden, pre, input, textarea, select)')]
            .filter(each => each.clientWidth && !each.closest('details:not([open])'))
            .filter(each => getComputedStyle(each).display !== 'inline' && each.scrollWidth > each.clientWidth + 1)
            .map(each => `${each.tagName} ${each.className || each.dataset.live}: ${each.textContent.slice(0, 40)}`)"""
    )
    return found


def chosen(page: Page) -> list[int]:
    return [gpu for gpu in range(8) if hook(page, f"choose-{gpu}").is_checked()]


def bars(page: Page) -> Locator:
    return hook(page, "gpus-machine").get_by_role("meter", name="Use of SIMULATED GPU")


def test_eight_bars_live_on_simulated_devices_say_so_and_are_not_asked_for_out_of_sight(
    open_lab: OpenLab, page: Page, screenshot: Screenshot
) -> None:
    sent: list[dict[str, str]] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(json.loads(frame))))
    open_sidebar(open_lab())
    expect(bars(page)).to_have_count(8)
    for gpu in range(8):
        expect(hook(page, f"gpu-{gpu}")).to_contain_text(f"SIMULATED GPU {gpu}")
    for percent in ("40", "80"):
        expect(bars(page).first).to_have_attribute("aria-valuenow", percent, timeout=MINUTE)
    expect(hook(page, "inventory")).to_contain_text("8 × SIMULATED GPU")
    unfold(page, "about-machine")
    expect(hook(page, "section-hardware")).to_contain_text("ib3 (mlx5_3) · 100 Gbit/s · InfiniBand · ACTIVE")
    expect(hook(page, "section-hardware").get_by_role("heading")).to_contain_text("SIMULATED GPUs")
    screenshot("gpus-light")
    # The last one: a section that was folded at an earlier visit is there for a moment before that is remembered.
    watch = [message["watch"] for message in sent if message.get("view", "").startswith("gpus:")][-1]
    section(page, "hardware", opened=False)
    expect(bars(page)).to_have_count(0)
    # The browser reports an element that left the view one frame later, and Playwright while it waits for something.
    until(lambda: page.wait_for_timeout(20) or {"type": "unwatch", "watch": watch} in sent, about=lambda: sent)


def test_the_idle_gpus_are_proposed_and_a_person_chooses_which(lab: Lab, open_lab: OpenLab) -> None:
    page = open_lab()
    open_sidebar(page)
    hook(page, "profile-gpus").click()
    expect(hook(page, "choose-0")).to_be_checked()
    unfold(page, "why")
    expect(hook(page, "section-hardware")).to_contain_text("the idle ones of 8")
    assert chosen(page) == [0, 1, 3, 4, 6, 7]
    sidebar = page.locator("#dask-workbench")
    sidebar.evaluate("node => { node.style.maxWidth = '240px' }")
    assert overflowing(sidebar) == []
    expect(hook(page, "gpu-2")).to_contain_text("holds 12 GiB")
    for gpu in (1, 3, 6, 7):
        hook(page, f"choose-{gpu}").uncheck()
    hook(page, "choose-5").check()
    expect(hook(page, "plan")).to_contain_text("GPU 5 (SIMULATED GPU 5")
    expect(hook(page, "start")).to_be_disabled()
    hook(page, "choose-5").uncheck()
    unfold(page, "more-choices")
    hook(page, "field-memory").fill("2GiB")
    expect(hook(page, "plan")).to_contain_text("2 workers on a GPU each")
    uuids = [hook(page, f"choose-{gpu}").get_attribute("value") for gpu in range(8)]
    hook(page, "field-name").fill("chosen-otter")
    hook(page, "start").click()
    cluster = hook(page, "cluster-chosen-otter")
    expect(hook(cluster, "stage")).to_have_text("ready", timeout=MINUTE)
    section(page, "hardware", opened=False)
    assert records.read("chosen-otter").spec.devices == (uuids[0], uuids[4])
    hook(cluster, "watch").click()
    expect(page.locator(".lm-TabBar-tabLabel").filter(has_text="SIMULATED · chosen-otter")).to_be_visible()
    hook(cluster, "stop").click()
    expect(cluster).to_have_count(0, timeout=MINUTE)
