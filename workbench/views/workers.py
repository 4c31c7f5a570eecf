"""Inside a cluster: its workers and what they send to each other, its tasks by name, and where its code spends time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.figures.bandwidth import heat_map
from workbench.figures.markup import icon_button, meter, paragraph, tag
from workbench.formats import count, duration, size
from workbench.runs.transfers import speeds as rates
from workbench.views import graph
from workbench.views.clusters import PANES, pane, record_of
from workbench.views.examples import empty, run_on
from workbench.views.parts import command, link, marking, notice

if TYPE_CHECKING:
    from workbench.clusters.control import Worker
    from workbench.views.page import Sight

_MOST_WORKERS = 24
"""Workers between which bandwidth is drawn, those of the fastest pairs."""

_THINNEST = 0.005
_DEEPEST = 60
"""Share of the whole, and depth, from which on frames are not drawn."""

_NO_TASKS = "The scheduler knows no tasks now."


class _Column(NamedTuple):
    title: str
    value: Callable[[Worker], Any]
    shown: Callable[[Worker], str]


def _memory(worker: Worker) -> str:
    if not worker.memory_limit:
        return size(worker.memory)
    text = f"{size(worker.memory)} of {size(worker.memory_limit)}"
    return meter(f"Memory of {worker.name}", worker.memory, worker.memory_limit, text, memory=True)


def _gpu(worker: Worker) -> str:
    parts = (
        None if worker.gpu is None else f"{worker.gpu:.0f} %",
        None if worker.gpu_memory is None else size(worker.gpu_memory),
    )
    return " · ".join(filter(None, parts))


_COLUMNS = {
    "name": _Column("Worker", lambda each: (len(each.name), each.name), str),
    "cpu": _Column("CPU", lambda each: each.cpu, lambda each: f"{each.cpu:.0f} %"),
    "memory": _Column("Memory", lambda each: each.memory, _memory),
    "spilled": _Column("Spilled", lambda each: each.spilled, lambda each: size(each.spilled) if each.spilled else ""),
    "tasks": _Column("Tasks", lambda each: each.tasks, lambda each: str(each.tasks)),
    "heard": _Column("Last heard", lambda each: each.heard, lambda each: f"{duration(round(each.heard, 1))} ago"),
    "gpu": _Column("GPU", lambda each: each.gpu or 0, _gpu),
}


async def workers(sight: Sight, name: str) -> str:
    """A table of the workers, by the column that was clicked; again, the other way round."""
    found = await sight.session.control.workers(name)
    by = str(sight.choices.get("workers.by") or "name")
    key, falls = by.removeprefix("-"), by.startswith("-")
    column = _COLUMNS.get(key, _COLUMNS["name"])
    columns = [each for each in _COLUMNS if each != "gpu" or any(worker.gpu is not None for worker in found)]
    can = (record_of(sight, name) or {}).get("can", ())
    head = (_heading(each, key, falls=falls) for each in columns)
    rows = (
        tag(
            "tr",
            tag("td", marking(sight.choices, name, "worker", worker.name)),
            *(tag("td", _COLUMNS[each].shown(worker)) for each in columns if each != "name"),
            tag("td", _restart(name, worker) if "restart" in can else ""),
            id=f"wb-worker-{worker.address}",
            title=worker.address,
            data_workbench=f"worker-{worker.name}",
        )
        for worker in sorted(found, key=column.value, reverse=falls)
    )
    last = tag("th", tag("span", "Restart", class_="wb-hidden"))
    table = _table([*head, last], rows, aria_label=f"Workers of {name}")
    return _panes(name, "workers") + notice(f" clusters/{name}/restart") + table


def _table(heads: Iterable[str], rows: Iterable[str], **attributes: Any) -> str:
    inside = tag("thead", tag("tr", *heads)), tag("tbody", *rows)
    return tag("div", tag("table", *inside, class_="wb-Table", **attributes), class_="wb-Across")


def _heading(column: str, by: str, *, falls: bool) -> str:
    sorts = ("descending" if falls else "ascending") if column == by else "none"
    # Of most one looks for the largest first.
    further = column if (column == by and falls) or (column == "name" != by) else f"-{column}"
    mark = {"descending": " ▾", "ascending": " ▴", "none": ""}[sorts]
    choose = {"workers.by": further}
    return tag(
        "th",
        link(_COLUMNS[column].title + mark, data_choose=choose, data_workbench=f"by-{column}"),
        scope="col",
        aria_sort=sorts,
    )


def _restart(name: str, worker: Worker) -> str:
    return icon_button(
        "refresh",
        f"Restart worker {worker.name}: its data are lost",
        data_confirm="Restart?",
        data_request=f"POST clusters/{name}/restart",
        data_body={"worker": worker.address},
        data_workbench="restart-worker",
    )


def _panes(name: str, here: str) -> str:
    """The cluster, and links to the other views of it."""
    links = (link(label, **command("view", **pane(name, kind))) for kind, label in PANES.items() if kind != here)
    return tag("div", tag("strong", escape(name)), *links, class_="wb-Row wb-Panes")


def _empty(name: str, trouble: str | None, sentence: str, workload: str = "array_sum") -> str:
    """Say what is wrong, or that there is nothing to see, with a workload that changes that."""
    return paragraph(trouble) if trouble else empty(sentence, run_on(name, "Run an example", workload))


async def groups(sight: Sight, name: str) -> str:
    """How many tasks of each name are done, and what their results hold, the largest first."""
    heard, held = await sight.heard(name), await sight.session.control.held(name)
    # Of Dask's own counts those lack that are queued.
    counts = heard.progress.counts if heard.progress is not None else {}
    most = max(held.values(), default=0)
    rows = (
        tag(
            "tr",
            tag("td", marking(sight.choices, name, "task", kind)),
            tag("td", graph.done_of(kind, each)),
            tag("td", meter(f"Memory of {kind}", held[kind], most, size(held[kind])) if held.get(kind) else ""),
            id=f"wb-group-{kind}",
        )
        for kind, each in sorted(counts.items(), key=lambda pair: (-held.get(pair[0], 0), pair[0]))
    )
    titles = (tag("th", title, scope="col") for title in ("Tasks", "Done", "Held in memory"))
    body = _table(titles, rows) if counts else _empty(name, heard.trouble, _NO_TASKS)
    return _panes(name, "groups") + body


async def tasks(sight: Sight, name: str) -> str:
    """The tasks of a cluster by name as a graph."""
    heard = await sight.heard(name)
    counts = heard.progress.counts if heard.progress is not None else {}
    few = len(counts) <= graph.MOST_NAMES
    left_out = "" if few else f"The {graph.MOST_NAMES} of {len(counts)} names with the most tasks."
    title = partial(marking, sight.choices, name, "task")
    drawn = tag("div", graph.graph(counts, heard.links.needs, title), class_="wb-Across")
    nothing = _empty(name, heard.trouble, _NO_TASKS)
    return _panes(name, "graph") + (paragraph(left_out) + drawn if counts else nothing)


async def bandwidth(sight: Sight, name: str) -> str:
    """How fast the workers of a cluster receive from each other, as a heat map."""
    heard = await sight.heard(name)
    speeds = heard.links.speeds
    fastest = sorted(speeds, key=lambda pair: -speeds[pair])
    drawn = list(dict.fromkeys(worker for pair in fastest for worker in pair))[:_MOST_WORKERS]
    names = {worker: heard.names.get(worker, worker) for worker in drawn}
    drawn.sort(key=lambda worker: (len(names[worker]), names[worker]))
    place = {worker: index for index, worker in enumerate(drawn)}
    cells = {
        (place[receiver], place[sender]): (speed, rates([speed]), "")
        for (receiver, sender), speed in speeds.items()
        if receiver in place and sender in place
    }
    nothing = _empty(name, heard.trouble, "No message above 1 MB went between workers yet.", "transpose_sum")
    heads = [marking(sight.choices, name, "worker", names[worker]) for worker in drawn]
    table = tag("div", heat_map([names[worker] for worker in drawn], cells, heads), class_="wb-Across")
    return _panes(name, "bandwidth") + (table if cells else nothing)


async def profile(sight: Sight, name: str) -> str:
    """Flame graph of what the workers' code does: what a function calls lies below it, as wide as its share."""
    tree = await sight.session.control.profile(name)
    whole = tree.get("count") or 0
    if not whole:
        return _panes(name, "profile") + _empty(name, None, "No code of a task has been seen yet.")
    frames = "".join(_frames(tree, whole, whole, 0))
    said = f"{count(whole, 'look')} at the threads of its workers; wider is longer."
    return (
        _panes(name, "profile")
        + paragraph(said, "wb-Muted wb-Panes")
        + tag("div", frames, class_="wb-Flame", role="tree", aria_label="Profile")
    )


def _frames(node: Mapping[str, Any], of: int, whole: int, depth: int) -> Iterator[str]:
    """The frames that a frame called, the longest first."""
    if depth > _DEEPEST:
        return
    for each in sorted(node["children"].values(), key=lambda each: -each["count"]):
        if each["count"] < _THINNEST * whole:
            return
        about = each["description"]
        share, place = 100 * each["count"] / whole, f"{about['filename']}:{about['line_number']}"
        label = tag("span", escape(about["name"]), title=f"{about['name']}, {share:.0f} %, {place}")
        width = f"width: {100 * each['count'] / of:.2f}%"
        below = tag("div", *_frames(each, each["count"], whole, depth + 1), role="group", class_="wb-Frames")
        words = f"{about['name']}, {share:.0f} %"
        yield tag("div", label, below, style=width, class_="wb-Frame", role="treeitem", aria_label=words)
