"""The workers of a cluster as a table. Dask's own dashboard has further details."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from workbench.formats import count, duration, shorten_middle, size
from workbench.markup import icon_button, meter, tag
from workbench.runs.run import NAME
from workbench.views.clusters import record_of
from workbench.views.parts import action, link, notice

if TYPE_CHECKING:
    from workbench.clusters.control import Worker
    from workbench.views.context import Context


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
    "tasks": _Column("Tasks", lambda each: each.tasks, lambda each: count(each.tasks)),
    "silent_for": _Column(
        "Last message", lambda each: each.silent_for, lambda each: f"{duration(round(each.silent_for, 1))} ago"
    ),
    "gpu": _Column("GPU", lambda each: each.gpu or 0, _gpu),
}


async def workers(context: Context, name: str) -> Markup:
    """Return a table of the workers, sorted by the column that was clicked; a second click reverses it."""
    all_workers = await context.session.control.workers(name)
    by = str(context.choices.get("workers.by") or "name")
    key, falls = by.removeprefix("-"), by.startswith("-")
    column = _COLUMNS.get(key, _COLUMNS["name"])
    columns = [each for each in _COLUMNS if each != "gpu" or any(worker.gpu is not None for worker in all_workers)]
    can = (record_of(context, name) or {}).get("can", ())
    head = (_heading(each, key, falls=falls) for each in columns)
    rows = (
        tag(
            "tr",
            tag("td", shorten_middle(worker.name, NAME), title=worker.name),
            *(tag("td", _COLUMNS[each].shown(worker)) for each in columns if each != "name"),
            tag("td", _restart(name, worker) if "restart" in can else ""),
            id=f"wb-worker-{worker.address}",
            title=worker.address,
            data_workbench=f"worker-{worker.name}",
        )
        for worker in sorted(all_workers, key=column.value, reverse=falls)
    )
    last = tag("th", tag("span", "Restart", class_="wb-hidden"))
    table = _table([*head, last], rows, aria_label=f"Workers of {name}")
    return tag("strong", name, class_="wb-Panes", translate="no") + notice(f"cluster={name}") + table


def _table(heads: Iterable[str], rows: Iterable[str], **attributes: Any) -> Markup:
    inside = tag("thead", tag("tr", *heads)), tag("tbody", *rows)
    return tag("div", tag("table", *inside, class_="wb-Table", **attributes), class_="wb-Across")


def _heading(column: str, by: str, *, falls: bool) -> Markup:
    sorts = ("descending" if falls else "ascending") if column == by else "none"
    # In most columns the largest values matter most.
    further = column if (column == by and falls) or (column == "name" != by) else f"-{column}"
    mark = {"descending": " ▾", "ascending": " ▴", "none": ""}[sorts]
    choose = {"workers.by": further}
    return tag(
        "th",
        link(_COLUMNS[column].title + mark, data_choose=choose, data_workbench=f"by-{column}"),
        scope="col",
        aria_sort=sorts,
    )


def _restart(name: str, worker: Worker) -> Markup:
    return icon_button(
        "refresh",
        f"Restart worker {worker.name}: its data are lost",
        data_confirm="Restart?",
        **action("restart", cluster=name, worker=worker.address),
        data_workbench="restart-worker",
    )
