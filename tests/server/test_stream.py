"""The live connection of a page: state, figures, and what happens when somebody goes away or is slow."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError

from tests.server.conftest import PATIENCE, Page
from workbench.errors import BadInputError
from workbench.monitor.events import Batch, WorkerSample
from workbench.views.answers import to_json
from workbench.views.screen import Screen
from workbench.views.watching import MOST_BATCHES, Watch, Watching


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


def sample(worker: str = "a", **fields: Any) -> WorkerSample:
    values = {"name": "0", "time": 1.0, "cpu": 50.0, "memory": 10, "memory_limit": 100, "spilled": 0, "n_executing": 1}
    return WorkerSample(worker, **(values | fields))  # type: ignore[arg-type]


async def test_a_page_is_told_the_state_at_once_and_at_every_change(open_page: Any, session: Any) -> None:
    session.add("calm-otter", status="starting", n_workers=0)
    session.add_run("r1", status="running")
    async with open_page() as page:
        first = await page.next("state")
        await until(lambda: session.listening)
        session.change("calm-otter", n_workers=1)
        second = await page.next("state")
    assert first.keys() == {"type", "clusters", "runs", "simulated"}
    assert [cluster["n_workers"] for state in (first, second) for cluster in state["clusters"]] == [0, 1]
    assert first["runs"][0]["id"] == "r1"


async def test_what_a_page_is_sent_is_compressed(jp_ws_fetch: Any, session: Any) -> None:
    session.add("calm-otter")
    socket = await jp_ws_fetch("workbench", "api", "stream", compression_options={})
    state = await Page(socket).next("state")
    assert state["clusters"][0]["name"] == "calm-otter"
    assert "permessage-deflate" in socket.headers["Sec-Websocket-Extensions"]
    socket.close()


async def test_one_watcher_serves_all_pages_and_none_runs_without_them(open_page: Any, session: Any) -> None:
    assert session.listening == 0
    async with open_page() as one, open_page() as other:
        await one.next("state")
        await other.next("state")
        await until(lambda: session.listening)
        session.add("calm-otter")
        session.touch()
        assert (await one.next("state"))["clusters"] == (await other.next("state"))["clusters"] != []
        assert session.listening == 1
    await until(lambda: session.listening == 0)
    reads = session.reads
    session.touch()
    await asyncio.sleep(0.2)
    assert session.reads == reads


async def test_a_change_that_changes_nothing_is_not_pushed(open_page: Any, session: Any) -> None:
    session.add("calm-otter")
    async with open_page() as page:
        await page.next("state")
        await until(lambda: session.listening)
        session.touch()
        assert await page.waiting() == []


async def test_a_state_that_cannot_be_read_is_said_once_and_again_when_it_can(open_page: Any, session: Any) -> None:
    async with open_page() as page:
        await page.next("state")
        await until(lambda: session.listening)
        session.failure = BadInputError("The data folder can't be used.")
        session.touch()
        assert (await page.next("error"))["message"] == "The data folder can't be used."
        session.failure = None
        session.touch()
        assert (await page.next("state"))["clusters"] == []


async def test_an_unforeseen_error_does_not_end_the_watching(open_page: Any, session: Any) -> None:
    async with open_page() as page:
        await page.next("state")
        await until(lambda: session.listening)
        session.failure = RuntimeError("odd")
        session.touch()
        assert "could not be read" in (await page.next("error"))["message"]
        session.failure = None
        session.add("calm-otter")
        session.touch()
        assert (await page.next("state"))["clusters"][0]["name"] == "calm-otter"


async def test_many_changes_travel_together(open_page: Any, session: Any) -> None:
    session.add("calm-otter")
    async with open_page() as page:
        await page.next("state")
        await until(lambda: session.listening)
        for number in range(300):
            session.change("calm-otter", n_workers=number)
            await asyncio.sleep(0.001)
        states = [message for message in await page.waiting() if message["type"] == "state"]
    assert 1 <= len(states) <= 30
    assert states[-1]["clusters"][0]["n_workers"] == 299


async def test_watching_a_cluster_brings_its_patches_and_its_numbers(open_page: Any, session: Any, feeds: Any) -> None:
    session.add("calm-otter")
    async with open_page() as page:
        await page.send(type="watch", watch="w1", cluster="calm-otter", theme="dark")
        await until(lambda: "calm-otter" in feeds.open)
        feeds.open["calm-otter"](Batch(1.5, samples=(sample("a"), sample("b", name="1", memory=30))))
        patches = await page.next("patches")
        while not patches["patches"]:
            patches = await page.next("patches")
        assert (patches["watch"], patches["patches"]) == (
            "w1",
            [{"source": "tasks", "mode": "stream", "columns": {"time": [1.5]}, "rollover": None}],
        )
        assert patches["status"] == {"summary": "2 workers · 100 % CPU · 40 B of 200 B", "message": None}
        await page.send(type="range", watch="w1", start=1000, end=2000, width=300)
        assert (await page.next("patches"))["patches"][-1]["columns"] == {"range": [1000, 2000, 300]}
        await page.send(type="unwatch", watch="w1")
        await until(lambda: not feeds.open)


async def test_two_pages_share_one_connection_and_the_second_sees_the_past(
    open_page: Any, session: Any, feeds: Any
) -> None:
    session.add("calm-otter")
    async with open_page() as one:
        await one.send(type="watch", watch="w", cluster="calm-otter")
        await until(lambda: feeds.open)
        feeds.open["calm-otter"](Batch(1.0))
        feeds.open["calm-otter"](Batch(2.0))
        async with open_page() as other:
            await other.send(type="watch", watch="x", cluster="calm-otter")
            patches = await other.next("patches")
            assert patches["patches"][0]["columns"] == {"time": [1.0, 2.0]}
            assert next(feeds.opened) == 1
        await asyncio.sleep(0.2)
        assert feeds.open
    await until(lambda: not feeds.open)


async def test_a_page_that_is_reloaded_finds_the_connection_still_open(
    session: Any, feeds: Any, make_watching: Any, jp_serverapp: Any
) -> None:
    session.add("calm-otter")
    watching = make_watching(session, "/", jp_serverapp.log)
    first = await watching.watch_cluster("calm-otter", "light", lambda: None)
    await until(lambda: feeds.open)
    feeds.open["calm-otter"](Batch(1.0))
    first.leave()
    again = await watching.watch_cluster("calm-otter", "light", lambda: None)
    assert (await again.take())["patches"][0]["columns"] == {"time": [1.0]}
    await asyncio.sleep(0.2)
    assert feeds.open
    await watching.close()
    assert not feeds.open
    assert again.gone == "The Jupyter server was stopped."


@pytest.mark.parametrize(
    ("status", "message", "said"),
    [
        ("lost", "Its host process died.", "calm-otter was lost. Its host process died."),
        ("failed", "No workers came.", "calm-otter failed to start. No workers came."),
        ("stopping", None, "calm-otter was stopped, so there is nothing more to watch."),
        (None, None, "calm-otter was stopped, so there is nothing more to watch."),
    ],
)
async def test_a_watched_cluster_that_ends_is_gone_with_a_sentence(
    open_page: Any, session: Any, feeds: Any, status: str | None, message: str | None, said: str
) -> None:
    session.add("calm-otter")
    async with open_page() as page:
        await page.send(type="watch", watch="w", cluster="calm-otter")
        await until(lambda: feeds.open)
        if status is None:
            await session.stop(session.cluster("calm-otter"))
        else:
            session.change("calm-otter", status=status, message=message)
        assert await page.next("gone") == {"type": "gone", "watch": "w", "message": said}
        await until(lambda: not feeds.open)
        await page.send(type="range", watch="w", start=1, end=2, width=3)
        assert "Nothing is watched as 'w'" in (await page.next("error"))["message"]


async def test_another_cluster_of_the_same_name_is_not_taken_for_the_old_one(
    open_page: Any, session: Any, feeds: Any
) -> None:
    session.add("calm-otter", created=1.0)
    async with open_page() as page:
        await page.send(type="watch", watch="w", cluster="calm-otter")
        await until(lambda: feeds.open)
        session.add("calm-otter", created=2.0)
        session.touch()
        assert "was stopped" in (await page.next("gone"))["message"]


async def test_a_cluster_that_is_starting_is_watched_when_it_is_ready(open_page: Any, session: Any, feeds: Any) -> None:
    session.add("calm-otter", status="starting", n_workers=1)
    async with open_page() as page:
        await page.send(type="watch", watch="w", cluster="calm-otter")
        patches = await page.next("patches")
        assert patches["status"]["message"] == "calm-otter is starting: 1 of 2 workers."
        assert not feeds.open
        session.change("calm-otter", status="ready", n_workers=2)
        await until(lambda: feeds.open)
        assert (await page.next("patches"))["status"]["message"] is None


async def test_a_connection_that_fails_is_told(open_page: Any, session: Any, feeds: Any) -> None:
    session.add("calm-otter")
    feeds.failure = OSError("nobody listens")
    async with open_page() as page:
        await page.send(type="watch", watch="w", cluster="calm-otter")
        assert (await page.next("gone"))["message"] == "The connection to calm-otter ended: nobody listens"


WISHES = [
    ("{", "This is not JSON"),
    ("[]", "Send a JSON object such as {}, not []."),
    ("{}", "Unknown type None. Send one of: watch, unwatch, range, choose, action."),
    ('{"type": "dance"}', "Unknown type 'dance'."),
    ('{"type": "watch"}', "watch is missing. Give text."),
    ('{"type": "watch", "watch": 3}', "watch is 3. Give text."),
    ('{"type": "watch", "watch": "w"}', "To watch, name one cluster, run or view."),
    (
        '{"type": "watch", "watch": "w", "cluster": "a", "run": "b"}',
        "To watch, name one cluster, run or view.",
    ),
    ('{"type": "watch", "watch": "w", "cluster": "calm-otter", "theme": "pink"}', 'theme is "pink".'),
    ('{"type": "watch", "watch": "w", "colour": 1}', "Unknown argument 'colour'."),
    ('{"type": "watch", "watch": "w", "view": null}', "To watch, name one"),
    ('{"type": "action", "id": "x", "name": "stop"}', 'id is "x". Give a whole number.'),
    ('{"type": "choose", "choices": {"a": "\\ud800"}}', "half of a character"),
    ("[" * 100_000, "This is not JSON"),
    ('{"type": "range", "watch": "nobody", "start": 1, "end": 2, "width": 3}', "Nothing is watched as 'nobody'."),
    ('{"type": "range", "watch": "known", "start": 2, "end": 1, "width": 3}', "start must be before end."),
    ('{"type": "range", "watch": "known", "start": NaN, "end": 1, "width": 3}', "start must be before end."),
    ('{"type": "range", "watch": "known", "start": 1, "end": 1e999, "width": 3}', "start must be before end."),
    ('{"type": "range", "watch": "known", "start": "x"}', 'start is "x". Give a number.'),
    ('{"type": "range", "watch": "known", "start": 1, "end": 2}', "width is missing. Give a whole number."),
    (b"\xff\xfe", "This is not JSON"),
]


async def test_a_malformed_message_is_told_and_the_connection_goes_on(open_page: Any, session: Any) -> None:
    session.add("calm-otter")
    async with open_page() as page:
        await page.send(type="watch", watch="known", cluster="calm-otter")
        for wish, said in WISHES:
            await page.socket.write_message(wish, binary=isinstance(wish, bytes))
            assert said in (await page.next("error"))["message"], wish
        await page.send(type="unwatch", watch="nobody")
        session.change("calm-otter", n_workers=7)
        assert (await page.next("state"))["clusters"][0]["n_workers"] == 7


async def test_watching_what_does_not_exist_says_what_does(open_page: Any, session: Any) -> None:
    session.add("calm-otter")
    session.add("bold-heron", status="lost", message="Its host died.")
    async with open_page() as page:
        await page.send(type="watch", watch="w", cluster="nobody")
        assert await page.next("gone") == {
            "type": "gone",
            "watch": "w",
            "message": "There is no cluster 'nobody'. There are: calm-otter, bold-heron.",
        }
        await page.send(type="watch", watch="w", cluster="bold-heron")
        assert (await page.next("gone"))["message"] == "bold-heron was lost. Its host died."
        await page.send(type="watch", watch="w", run="nobody")
        assert (await page.next("gone"))["message"] == "There is no run 'nobody'."


async def test_a_page_that_vanishes_leaves_nothing_behind(open_page: Any, session: Any, feeds: Any) -> None:
    session.add("calm-otter")
    async with open_page() as page:
        await page.send(type="watch", watch="w", cluster="calm-otter")
        await until(lambda: feeds.open)
        page.socket.protocol.stream.close()
    await until(lambda: not feeds.open and not session.listening)


async def test_a_failure_of_an_action_whose_page_is_closed_is_told_to_the_others(open_page: Any, session: Any) -> None:
    session.add("calm-otter")
    session.delay = 0.7
    async with open_page() as other:
        async with open_page() as page:
            await page.send(type="action", id=1, name="restart", arguments={"cluster": "calm-otter"})
            await until(lambda: session.calls)
        assert (await other.next("error"))["message"] == "The workers of calm-otter did not come back."


async def test_the_stream_needs_a_login(jp_ws_fetch: Any) -> None:
    with pytest.raises(HTTPClientError) as caught:
        await jp_ws_fetch("workbench", "api", "stream", headers={"Authorization": "token wrong"})
    assert caught.value.code == 403


async def test_a_page_that_does_not_read_holds_up_its_own_messages(open_page: Any, session: Any, feeds: Any) -> None:
    session.add("calm-otter")
    async with open_page() as page:
        await page.send(type="watch", watch="w", cluster="calm-otter")
        await until(lambda: feeds.open)
        for number in range(1, 301):
            feeds.open["calm-otter"](Batch(-float(number)))
            await asyncio.sleep(0.01)
        seen: list[float] = []
        n_messages = 0
        while len(seen) < 300:
            for patch in (await page.next("patches"))["patches"]:
                seen += patch["columns"]["time"]
                n_messages += 1
    assert seen == [-float(number) for number in range(1, 301)]
    assert n_messages < 45


async def test_a_view_does_not_wait_for_a_figure_that_takes_long_to_draw(
    session: Any, feeds: Any, make_watching: Any, jp_serverapp: Any
) -> None:
    session.add("calm-otter")
    watching: Watching = make_watching(session, "/", jp_serverapp.log)
    sent: list[dict[str, Any]] = []
    drawn = asyncio.Event()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)
        if message.get("watch") == "figure":
            await drawn.wait()

    screen = Screen(watching, send, _act)
    screen.receive({"type": "watch", "watch": "figure", "cluster": "calm-otter"})
    await until(lambda: sent and sent[-1].get("watch") == "figure")
    screen.receive({"type": "watch", "watch": "view", "view": "runs"})
    await until(lambda: sent[-1].get("watch") == "view")
    assert not drawn.is_set()
    screen.close()
    await watching.close()


async def _act(name: str, arguments: Any) -> None: ...


async def test_what_a_slow_page_does_not_take_is_merged_and_bounded() -> None:
    figure = _Figure()
    watch = Watch(figure, lambda: None)  # type: ignore[arg-type]
    for number in range(MOST_BATCHES + 10):
        watch.add([Batch(float(number))])
    watch.show_range(1, 2, 3)
    watch.show_range(4, 5, 6)
    taken = await watch.take()
    assert taken is not None
    assert figure.fed == [MOST_BATCHES]
    assert figure.ranges == [(4, 5, 6)]
    assert await watch.take() is None


class _Figure:
    def __init__(self) -> None:
        self.fed: list[int] = []
        self.ranges: list[Any] = []

    def feed(self, batches: list[Batch]) -> None:
        self.fed.append(len(batches))

    def patches(self) -> list[Any]:
        return []

    def show_range(self, *shown: Any) -> list[Any]:
        self.ranges.append(shown)
        return []


async def test_the_kept_past_is_bounded_by_tasks(
    session: Any, feeds: Any, make_watching: Any, jp_serverapp: Any
) -> None:
    session.add("calm-otter")
    watching: Watching = make_watching(session, "/", jp_serverapp.log)
    await watching.watch_cluster("calm-otter", "light", lambda: None)
    await until(lambda: feeds.open)
    for number in range(12):
        feeds.open["calm-otter"](Batch(float(number), tasks=range(10_000)))  # type: ignore[arg-type]
    late = await watching.watch_cluster("calm-otter", "light", lambda: None)
    taken = await late.take()
    assert taken is not None
    assert taken["patches"][0]["columns"] == {"time": [7.0, 8.0, 9.0, 10.0, 11.0]}
    await watching.close()


def test_a_number_that_is_none_becomes_null() -> None:
    assert to_json({"a": [1.0, math.nan, (math.inf,)], "b": {"c": -math.inf}, "d": 2}) == (
        '{"a":[1.0,null,[null]],"b":{"c":null},"d":2}'
    )
