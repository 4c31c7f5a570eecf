"""Actions without a Jupyter server: the same results and refusals, as values."""

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
from tests.views import html_at
from workbench.errors import BadInputError, BadParameterError, NotFoundError
from workbench.threads import in_thread
from workbench.views.actions import ACTIONS, perform
from workbench.views.answers import to_json
from workbench.views.files import read_file
from workbench.views.messages import check, parse_object, refused
from workbench.views.service import Service

LOG = logging.getLogger(__name__)


def at_service(session: FakeSession, ask: Callable[[Service], Coroutine[Any, Any, Any]], looking: Any = Here) -> Any:
    async def asked() -> Any:
        service = Service("/base/", LOG, lambda: session, make_looking=looking)  # type: ignore[arg-type,return-value]
        try:
            return await ask(service)
        finally:
            await service.close()

    return asyncio.run(asked())


def done(session: FakeSession, name: str, **arguments: Any) -> Any:
    return at_service(session, lambda service: perform(service, name, arguments))


def test_an_action_has_a_result() -> None:
    session = FakeSession()
    session.add_run("r1", status="running")
    assert done(session, "cancel_run", run="r1") is None
    assert session.show("r1").status == "cancelled"
    session.add("calm-otter")
    assert 'workbench.connect("calm-otter")' in done(session, "cell", cluster="calm-otter")["cell"]


def test_pages_and_files_are_read_by_their_addresses(data_folder: Any) -> None:
    session = FakeSession()
    session.add_comparison("c/1")
    page = at_service(session, lambda service: read_file(service, "comparisons/c%2F1/page"))
    assert page.kind.startswith("text/html")
    assert str(page.content).lstrip().startswith("<!DOCTYPE html>")
    with pytest.raises(NotFoundError, match=r"There is no address workbench/api/runs/x\."):
        at_service(session, lambda service: read_file(service, "runs/x"))


@pytest.mark.parametrize(
    ("name", "arguments", "sentence", "parameter"),
    [
        ("start", {}, "profile is missing. Give text.", "profile"),
        ("start", {"profile": None}, "profile is missing. Give text.", "profile"),
        ("start", {"profile": 3}, "profile is 3. Give text.", "profile"),
        ("start", {"profile": "x" * 100}, "Unknown profile", None),
        ("start", {"profile": ["x" * 100]}, f'profile is ["{"x" * 75}…. Give text.', "profile"),
        (
            "start",
            {"profile": "cpu", "spin": 1},
            "Unknown argument 'spin'. Allowed: profile, choices, name, force, agreed.",
            "spin",
        ),
        ("start", {"profile": "cpu", "force": "yes"}, 'force is "yes". Give true or false.', "force"),
        ("start", {"profile": "cpu", "force": 1}, "force is 1. Give true or false.", "force"),
        ("start", {"profile": "cpu", "choices": []}, "choices is []. Give an object.", "choices"),
        ("scale", {"cluster": "a", "n_workers": True}, "n_workers is true. Give a whole number.", "n_workers"),
        ("scale", {"cluster": "a", "n_workers": 1.5}, "n_workers is 1.5. Give a whole number.", "n_workers"),
        ("scale", {"cluster": "a"}, "Give either n_workers, or minimum and maximum.", None),
        ("compare_runs", {"runs": 3}, "runs is 3. Give a list of texts.", "runs"),
        ("compare_runs", {"runs": ["a", 3]}, 'runs is ["a", 3]. Give a list of texts.', "runs"),
        ("figure", {"theme": "pink", "run": "r"}, 'theme is "pink". Give one of: light, dark.', "theme"),
        ("figure", {"theme": "dark"}, "Name one cluster or run.", None),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(
    name: str, arguments: dict[str, Any], sentence: str, parameter: str | None
) -> None:
    with pytest.raises(BadInputError) as caught:
        done(FakeSession(), name, **arguments)
    assert sentence in str(caught.value)
    assert refused(caught.value).get("parameter") == parameter


def test_the_signature_of_each_action_can_be_checked() -> None:
    for function in ACTIONS.values():
        with pytest.raises(BadParameterError, match=r"(is missing|Unknown argument '__nonsense')"):
            check(function, {"__nonsense": 1})


def test_the_name_of_a_file_that_is_no_text_can_be_sent() -> None:
    assert to_json(refused(NotFoundError("There is no file a\udcff.npy."))) == '{"message":"There is no file a?.npy."}'


def test_an_unknown_action_names_the_known_ones() -> None:
    with pytest.raises(NotFoundError, match=r"Unknown action 'dance'\. Available actions: keep_profile, "):
        done(FakeSession(), "dance")
    with pytest.raises(NotFoundError):
        done(FakeSession(), "perform")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "This is not JSON"),
        ("[" * 100_000, "This is not JSON"),
        ('{"n": ' + "9" * 5000 + "}", "This is not JSON"),
        (b"\xff\xfe", "This is not JSON"),
        ("", "This is not JSON"),
        ("[1, 2]", "Send a JSON object such as {}, not [1, 2]."),
        ('{"memory": "\\ud800"}', "half of a character"),
        ('{"\\udfff": 1}', "half of a character"),
    ],
)
def test_a_message_that_is_no_object_is_refused(text: str | bytes, sentence: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_object(text)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


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

    async def give_up(service: Service) -> None:
        loops.append(asyncio.get_running_loop())
        actions = {"cancel_run": {"run": "r1"}, "run": {"workload": "array_sum", "cluster": "calm-otter"}}
        for name, arguments in actions.items():
            began.clear()
            asking = asyncio.ensure_future(perform(service, name, arguments))
            await began.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        go_on.set()
        may_end.set()
        await ended.wait()

    at_service(session, give_up, Slow)
    assert told == ["run given up", "cancelled r1"]


def test_a_form_waits_for_a_process_only_where_a_path_was_typed() -> None:
    asked_there: list[str] = []

    class Recording(Here):
        async def ask(self, method: str, *args: Any, **kwargs: Any) -> Any:
            asked_there.append(method)
            return await super().ask(method, *args, **kwargs)

    for typed in ({}, {"run.array_sum.size": "2GiB"}, {"run.array_sum.path": "/nowhere"}):
        html = at_service(FakeSession(), lambda service, typed=typed: html_at(service, "work", typed), Recording)
        assert 'data-workbench="run-button"' in html
        assert sorted(asked_there) == (["forecast", "look"] if "run.array_sum.path" in typed else [])


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


def test_acting_needs_no_jupyter_and_no_tornado() -> None:
    code = (
        "import sys, workbench.views.actions, workbench.views.files\n"
        "print(*sorted({'tornado', 'jupyter_server', 'dask', 'bokeh', 'panel', 'pydantic'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
