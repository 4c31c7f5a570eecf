"""A scheduler that runs already, by its address, as a person pastes it into the sidebar."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from distributed import Client
from playwright.sync_api import expect

from tests import other_python
from tests.ui.conftest import Lab
from tests.ui.steps import MINUTE, OpenLab, hook, open_sidebar, run_workload, unfold


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Start a scheduler with two workers outside the workbench."""
    with other_python.cluster(sys.executable) as found:
        with Client(found) as client:
            client.wait_for_workers(2)
        yield found


def test_an_address_is_pasted_used_and_let_go(lab: Lab, open_lab: OpenLab, address: str) -> None:
    page = open_lab()
    open_sidebar(page)
    unfold(page, "ways-elsewhere")
    hook(page, "profile-address").click()
    expect(hook(page, "start")).to_have_text("Attach")
    expect(hook(page, "start")).to_be_disabled()
    hook(page, "field-address").fill("tcp://127.0.0.1:1")
    expect(hook(page, "start")).to_be_enabled()
    hook(page, "start").click()
    expect(hook(page, "start-problem")).to_contain_text("Nothing listens at tcp://127.0.0.1:1")
    hook(page, "nearby").filter(has_text=address).click(timeout=MINUTE)
    expect(hook(page, "field-address")).to_have_value(address)
    hook(page, "field-name").fill("there")
    expect(hook(page, "plan")).to_contain_text(address)
    hook(page, "start").click()
    cluster = hook(page, "cluster-there")
    expect(hook(cluster, "stage")).to_have_text("attached", timeout=MINUTE)
    expect(hook(cluster, "workers")).to_have_text("2 workers × 1 thread")
    for verb in ("stop", "scale", "restart", "dashboard"):
        expect(hook(cluster, verb)).to_have_count(0)
    hook(cluster, "watch").click()
    run = run_workload(page, "array_sum", size="32MiB")
    assert run["check"]["passed"], run["check"]["what"]
    hook(cluster, "detach").click()
    expect(cluster).to_have_count(0, timeout=MINUTE)
    with Client(address) as client:
        assert len(client.scheduler_info()["workers"]) == 2
