"""Steps that the owner of a cluster, or a thread, repeats."""

import asyncio
import contextlib
import logging

import pytest

from tests.waiting import until
from workbench.clusters.periodic import repeat
from workbench.jobs import folders


async def until_cancelled(task: asyncio.Task[None], calls: list[float], n: int) -> None:
    while len(calls) < n:
        await asyncio.sleep(0.001)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def test_a_step_that_fails_is_tried_again_and_its_error_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[float] = []

    async def step() -> None:
        calls.append(0.0)
        if len(calls) in (2, 3, 5):
            raise AttributeError("nothing is connected")

    async def main() -> None:
        await until_cancelled(asyncio.create_task(repeat(step, 0.001)), calls, 7)

    with caplog.at_level(logging.ERROR, "workbench.host"):
        asyncio.run(main())
    assert [record.exc_info is not None for record in caplog.records] == [True, True]  # of calls 2 and 5
    assert "tried again every 0.001 s" in caplog.text


def test_a_step_comes_sooner_when_it_is_asked_for() -> None:
    calls: list[float] = []

    async def main() -> None:
        sooner = asyncio.Event()

        async def step() -> None:
            calls.append(0.0)
            if len(calls) == 1:
                sooner.set()  # meanwhile: the next step must see what this one may have missed

        await until_cancelled(asyncio.create_task(repeat(step, 60, sooner)), calls, 2)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_thread_that_fails_goes_on_and_its_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[float] = []

    def step() -> None:
        calls.append(0.0)
        raise AttributeError("nothing is connected")

    with folders.meanwhile(step, 0.001, "heartbeat"):
        until(lambda: len(calls) > 3)
    assert [record.getMessage() for record in caplog.records] == [
        "Workbench: the thread heartbeat failed, and tries again"
    ]
