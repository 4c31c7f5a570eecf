"""Figures of any client in cells of a notebook: what their pages are sent, and when the watching ends."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cell import Cell
from tests.waiting import until
from workbench.errors import BadInputError
from workbench.figures import samples
from workbench.monitor.events import WorkerSample
from workbench.panels import Watch, widget
from workbench.panels.widget import wait_for_import


@pytest.fixture
def plugins(quick_client: Any) -> Callable[[], list[str]]:
    """Names of the scheduler's plugins."""
    return lambda: list(quick_client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.plugins)))


def compute(client: Any) -> None:
    import dask.array as da

    x = da.ones((40, 40), chunks=(10, 10))
    assert client.compute((x + x.T).sum()).result() == 3200


# -- what is drawn


def test_a_figure_gets_what_a_client_computes_and_what_its_workers_do(quick_client: Any) -> None:
    with Watch(quick_client) as figure:
        cell = Cell(figure)
        compute(quick_client)
        until(lambda: any("sum" in name for name in cell.column("tasks", "name")))
        assert len(cell.column("tasks", "right")) == len(cell.column("tasks", "left"))
        until(lambda: cell.column("workers_cpu", "x0") and cell.column("workers_memory", "x0"))
        until(lambda: set(cell.column("progress", "done")) == {1})
        assert "worker" in cell.status["summary"]


def test_the_last_figure_that_is_closed_takes_the_watching_with_it(
    quick_client: Any, plugins: Callable[[], list[str]]
) -> None:
    before = plugins()
    first, second = Watch(quick_client), Watch(quick_client)
    assert len(plugins()) == len(before) + 1
    first.close()
    assert len(plugins()) == len(before) + 1
    second.close()
    until(lambda: plugins() == before)


def test_a_page_gets_a_figure_with_all_plots_and_the_scripts_that_draw_it(quick_client: Any) -> None:
    from bokeh.document import Document
    from bokeh.models import Plot

    with Watch(quick_client) as figure:
        answer = Cell(figure).acts("figure", cluster="any", theme="dark")["value"]
        (root,) = Document.from_json(answer["item"]["doc"]).roots
        titles = {each.title.text.split(",")[0] for each in root.children if isinstance(each, Plot)}
        assert titles == {"Tasks", "Progress", "CPU", "Memory"}
        assert [address.partition("?")[0].rpartition("/")[2] for address in answer["bokeh"]["scripts"]] == [
            "bokeh.min.js",
            "bokeh-widgets.min.js",
        ]


def test_figures_on_one_page_have_models_of_their_own(quick_client: Any) -> None:
    with Watch(quick_client) as one, Watch(quick_client) as other:
        cells = [Cell(each) for each in (one, other)]
        items = [cell.acts("figure", cluster="any", theme="light")["value"]["item"] for cell in cells]
        assert items[0]["root_id"] != items[1]["root_id"]


def test_an_empty_figure_says_why(quick_client: Any) -> None:
    with Watch(quick_client, name="calm-otter") as figure:
        cell = Cell(figure)
        # Other tests may have computed something on this cluster before.
        said = until(lambda: cell.column("empty", "text"))
        assert "calm-otter" in said or said.startswith("No task has ended since this was opened.")


def test_closing_shows_what_came_until_then_to_a_page_that_comes_later(quick_client: Any) -> None:
    # As Run All does: the cell that closes it has ended before the page can say that it is there.
    figure = Watch(quick_client)
    compute(quick_client)
    before = Cell(figure)
    until(lambda: before.column("tasks", "left"))
    figure.close()
    assert until(lambda: before.gone) == "This was closed, so there is nothing more to watch."
    # Not by displaying it, which would go on: by a page that is loaded again.
    after = object.__new__(Cell)
    vars(after).update(vars(before), name="later", sources={}, gone=None, came=[])
    figure.post = after._hear  # type: ignore[method-assign]
    after.say(type="hello")
    after.say(type="watch", watch="figure", cluster="any", theme="light")
    until(lambda: after.column("tasks", "left") and after.gone)


def test_a_closed_figure_goes_on_when_it_is_displayed_again(quick_client: Any) -> None:
    with Watch(quick_client) as figure:
        compute(quick_client)
        cell = Cell(figure)
        before = until(lambda: len(cell.column("tasks", "left")))
        figure.close()
        until(lambda: cell.gone)
        again = Cell(figure)
        until(lambda: "load" in [message["type"] for message in cell.came])
        compute(quick_client)
        until(lambda: len(again.column("tasks", "left")) > before)
        assert again.gone is None


def test_what_a_page_shows_in_detail_is_what_it_asked_for(quick_client: Any) -> None:
    with Watch(quick_client) as figure:
        cell = Cell(figure)
        compute(quick_client)
        start = min(until(lambda: cell.column("tasks", "left")))
        seen = len(cell.came)
        cell.say(type="range", watch="figure", start=start, end=start + 1, width=1000)
        until(lambda: any(patch["mode"] == "replace" for patch in tasks_of(cell.came[seen:])))


def tasks_of(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    patches = [patch for message in messages if message["type"] == "patches" for patch in message["patches"]]
    return [patch for patch in patches if patch["source"] == "tasks"]


def test_a_dark_page_gets_a_dark_figure_with_all_that_was_seen(quick_client: Any) -> None:
    with Watch(quick_client) as figure:
        light = Cell(figure)
        compute(quick_client)
        until(lambda: light.column("tasks", "left"))
        dark = Cell(figure, "dark")
        until(lambda: len(dark.column("tasks", "left")) == len(light.column("tasks", "left")))
        assert set(dark.column("tasks", "color")) != set(light.column("tasks", "color"))


def test_a_figure_waits_while_a_cell_imports_what_bokeh_would_use_half_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_made.py").write_text("import time\ntime.sleep(0.5)\nwhole = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    cell = threading.Thread(target=importlib.import_module, args=["half_made"])
    cell.start()
    until(lambda: "half_made" in sys.modules)
    try:
        wait_for_import("half_made")
        assert sys.modules["half_made"].whole
    finally:
        cell.join()
        del sys.modules["half_made"]
    wait_for_import("half_made")
    assert "half_made" not in sys.modules


def test_a_figure_works_with_an_asynchronous_client() -> None:
    async def watch() -> int:
        from distributed import Client, LocalCluster

        async with (
            LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0", asynchronous=True) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            figure = Watch(client)
            cell = Cell(figure)
            await asyncio.sleep(0.3)
            await client.submit(sum, [1, 2])
            for _ in range(200):
                if cell.column("tasks", "left"):
                    break
                await asyncio.sleep(0.02)
            figure.close()
            await asyncio.sleep(0.2)
            return len(cell.column("tasks", "left"))

    assert asyncio.run(watch()) == 1


# -- messages


def kinds(cell: Cell) -> list[str]:
    return [message["type"] for message in cell.came]


def test_a_page_that_greets_twice_keeps_its_connection(quick_client: Any) -> None:
    with Watch(quick_client) as figure:
        cell = Cell(figure)
        seat = figure._seats[cell.name]
        cell.say(type="hello")
        assert kinds(cell).count("ready") == 2
        assert figure._seats[cell.name] is seat


def test_a_choice_and_an_action_are_confirmed_at_once(quick_client: Any) -> None:
    with Watch(quick_client) as figure:
        cell = Cell(figure)
        before = kinds(cell).count("received")
        cell.say(type="choose", choices={})
        assert kinds(cell).count("received") == before + 1
        cell.acts("script", name="bokeh.min.js")
        assert kinds(cell).count("received") == before + 2


def test_a_page_that_the_kernel_has_forgotten_begins_again(quick_client: Any) -> None:
    with Watch(quick_client) as figure:
        cell = Cell(figure)
        cell.say(type="bye")
        cell.say(type="range", watch="figure", start=1, end=2, width=3)
        assert kinds(cell)[-1] == "again"


def test_each_page_has_watches_of_its_own_and_those_that_have_gone_are_forgotten(
    quick_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(widget, "PATIENCE", 1.0)
    with Watch(quick_client) as figure:
        gone, there = Cell(figure), Cell(figure, "dark")
        gone.is_away = True
        Cell(figure).say(type="bye")
        until(lambda: list(figure._seats) == [there.name])
        new = Cell(figure)
        new.say(type="bye")
        assert list(figure._seats) == [there.name]


def test_nothing_is_watched_while_no_page_shows_the_figure_until_one_opens(
    quick_client: Any, plugins: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(widget, "LINGER", 0.2)
    before = plugins()
    figure = Watch(quick_client)
    first, second = Cell(figure), Cell(figure)
    first.say(type="bye")
    time.sleep(1)  # many times as long as a figure without pages stays
    assert len(plugins()) == len(before) + 1
    second.say(type="bye")
    until(lambda: plugins() == before)
    first.say(type="hello")
    until(lambda: len(plugins()) == len(before) + 1)
    # Closed by a person it stays closed.
    figure.close()
    first.say(type="bye")
    first.say(type="hello")
    assert plugins() == before


def test_a_figure_can_be_in_a_box_of_ipywidgets_and_a_row_of_panel(quick_client: Any) -> None:
    import ipywidgets
    import panel

    with Watch(quick_client) as figure:
        assert isinstance(panel.Row(figure)[0], panel.pane.IPyWidget)
        assert ipywidgets.VBox([figure]).children == (figure,)
        assert figure._repr_mimebundle_()[0]["application/vnd.jupyter.widget-view+json"]["model_id"] == figure.model_id


def test_a_page_can_have_bokehs_scripts_and_nothing_else_from_its_kernel(quick_client: Any) -> None:
    with Watch(quick_client) as figure:
        assert "Bokeh" in Cell(figure).acts("script", name="bokeh.min.js")["value"]
        assert "There is no script" in Cell(figure).acts("script", name="passwd")["message"]
        assert "Unknown action 'stop_all'" in Cell(figure).acts("stop_all")["message"]
        assert "theme is 'blue'" in Cell(figure).acts("figure", cluster="x", theme="blue")["message"]


# -- who watches


def test_workers_that_said_nothing_new_are_counted_and_those_that_left_are_not() -> None:
    workers = samples.Workers()
    a, b = (WorkerSample(name, name, 1.0, 50.0, 10, 100, 0, 1) for name in "ab")
    workers.feed([a, b])
    workers.feed([replace(a, time=2.0, memory=30)])
    assert workers.summary() == "2 workers · 100 % CPU · 40 B of 200 B"
    workers.feed([])
    workers.feed([a])
    assert workers.summary() == "2 workers · 100 % CPU · 40 B of 200 B"
    workers.feed([replace(a, time=1.5 + samples.GAP)])
    assert workers.summary() == "1 worker · 50 % CPU · 10 B of 100 B"


def test_what_is_no_client_and_no_theme_is_said(quick_client: Any) -> None:
    with pytest.raises(BadInputError, match=r"Watch shows .* 'calm-otter' is none"):
        Watch("calm-otter")  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="theme is 'blue'"):
        Watch(quick_client, theme="blue")


def test_a_closed_client_is_said() -> None:
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        client = Client(cluster)
        with Watch(client) as watch:
            cell = Cell(watch)
            client.close()
            assert until(lambda: cell.gone) == "The client is closed, so there is nothing more to watch."
