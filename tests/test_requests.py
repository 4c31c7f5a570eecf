"""Requests without a Jupyter server: the same answers and refusals, as values."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.server.conftest import FakeSession, Here
from workbench.errors import BadInputError, NotFoundError
from workbench.threads import in_thread
from workbench.views.desk import Desk
from workbench.views.requests import VerbError, answer, possible, refused

LOG = logging.getLogger(__name__)


def at_desk(session: FakeSession, ask: Callable[[Desk], Coroutine[Any, Any, Any]], looking: Any = Here) -> Any:
    async def asked() -> Any:
        desk = Desk("/base/", LOG, lambda: session, make_looking=looking)  # type: ignore[arg-type,return-value]
        try:
            return await ask(desk)
        finally:
            await desk.close()

    return asyncio.run(asked())


def asked(session: FakeSession, *request: Any) -> Any:
    return at_desk(session, lambda desk: answer(desk, *request))


def test_a_request_is_answered_as_a_value_with_its_status() -> None:
    session = FakeSession()
    session.add_run("r1", status="running")
    found = asked(session, "POST", "runs/r1/cancel")
    assert (found.status, found.kind, session.show("r1").status) == (202, "application/json", "cancelled")
    session.add("calm-otter")
    assert 'workbench.connect("calm-otter")' in asked(session, "GET", "clusters/calm%2Dotter").value["cell"]


def test_a_query_may_stand_in_the_address_or_beside_it() -> None:
    session = FakeSession()
    session.add("calm-otter")
    for asks in (("figures/cluster/calm-otter?theme=pink",), ("figures/cluster/calm-otter", None, {"theme": "pink"})):
        with pytest.raises(BadInputError, match="theme is 'pink'"):
            asked(session, "GET", *asks)


def test_pages_and_files_are_answers_too(data_folder: Any) -> None:
    session = FakeSession()
    session.add_comparison("c1")
    page = asked(session, "GET", "comparisons/c1/page")
    assert page.kind.startswith("text/html")
    assert page.value.lstrip().startswith("<!DOCTYPE html>")


def test_a_body_is_checked_whether_it_comes_as_an_object_or_as_bytes() -> None:
    for body in ({"profile": 3}, b'{"profile": 3}'):
        with pytest.raises(BadInputError, match=r"profile is 3\. Give text\."):
            asked(FakeSession(), "POST", "clusters", body)
    with pytest.raises(BadInputError, match="half of a character"):
        asked(FakeSession(), "POST", "clusters", {"profile": "\ud800"})


def test_an_address_or_verb_that_is_not_there_says_which_are() -> None:
    with pytest.raises(NotFoundError, match=r"There is no address workbench/api/figures/disk/x\."):
        asked(FakeSession(), "GET", "figures/disk/x")
    with pytest.raises(VerbError, match=r"PUT is not possible here\. Possible: POST, DELETE\.") as caught:
        asked(FakeSession(), "PUT", "clusters")
    assert (caught.value.status, refused(caught.value)) == (405, {"message": str(caught.value)})
    assert (possible("runs/x"), possible("nothing")) == (("PATCH", "DELETE"), ())


def test_what_changes_something_is_finished_though_nobody_waits_and_what_looks_is_not() -> None:
    session, told = FakeSession(), []
    session.add_run("r1", status="running")
    began, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    may_end = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    def slow_cancel(run: str) -> Any:  # in a thread, as the real one
        loops[0].call_soon_threadsafe(began.set)
        assert may_end.wait(10)
        told.append(f"cancelled {run}")
        loops[0].call_soon_threadsafe(ended.set)
        return session.show(run)

    class Slow(Here):
        async def ask(self, method: str, *args: Any, **kwargs: Any) -> Any:
            began.set()
            try:
                await go_on.wait()
            finally:
                told.append(f"{method} {'answered' if go_on.is_set() else 'given up'}")

    session.cancel = slow_cancel  # type: ignore[method-assign]

    async def give_up(desk: Desk) -> None:
        loops.append(asyncio.get_running_loop())
        for path, body in (("runs/r1/cancel", None), ("runs", {"workload": "array_sum", "cluster": "calm-otter"})):
            began.clear()
            asking = asyncio.ensure_future(answer(desk, "POST", path, body))
            await began.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        go_on.set()
        may_end.set()
        await ended.wait()

    at_desk(session, give_up, Slow)
    assert told == ["run given up", "cancelled r1"]


def test_a_form_waits_for_a_process_only_where_a_path_was_typed() -> None:
    asked_there: list[str] = []

    class Recording(Here):
        async def ask(self, method: str, *args: Any, **kwargs: Any) -> Any:
            asked_there.append(method)
            return await super().ask(method, *args, **kwargs)

    for typed in ({}, {"run.array_sum.size": "2GiB"}, {"run.array_sum.path": "/nowhere"}):
        made = at_desk(
            FakeSession(),
            lambda desk, typed=typed: answer(desk, "POST", "views/work", choices(typed)),
            Recording,
        )
        assert 'data-workbench="run-button"' in made.value["html"]
        assert sorted(asked_there) == (["forecast", "look"] if "run.array_sum.path" in typed else [])


def choices(typed: dict[str, str]) -> dict[str, Any]:
    return {"choices": typed}


def test_who_gives_up_at_the_moment_of_the_answer_has_given_up() -> None:
    answered = threading.Event()

    async def give_up() -> None:
        asking = asyncio.ensure_future(in_thread(answered.wait))
        await asyncio.sleep(0)
        (thread,) = [each for each in threading.enumerate() if each.name.startswith("workbench <bound method Event")]
        answered.set()
        # What the thread says waits in the loop now, and the cancellation right behind it.
        thread.join()
        asyncio.get_running_loop().call_soon(asking.cancel)
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(give_up())


def test_asking_needs_no_jupyter_and_no_tornado() -> None:
    code = (
        "import sys, workbench.views.requests\n"
        "print(*sorted({'tornado', 'jupyter_server', 'dask', 'bokeh', 'panel'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
