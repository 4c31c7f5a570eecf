"""Terminal output: tables and progress bars. Imported only when something is printed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.columns import Columns
from rich.console import Console as RichConsole, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from workbench import formats
from workbench.clusters.records import memory_words
from workbench.errors import on_one_line, printable
from workbench.runs import singular_values
from workbench.runs.facts import MARKS, facts, plain, share_text, span_text
from workbench.runs.run import SHARES, SIMULATED
from workbench.sent_code import machine_words

if TYPE_CHECKING:
    from workbench.clusters.budget import Budget
    from workbench.clusters.profiles.lookup import Offered
    from workbench.clusters.records import ClusterRecord
    from workbench.hardware import Gpu, Inventory
    from workbench.runs.comparing.comparisons import Comparison
    from workbench.runs.comparing.table import Summary
    from workbench.runs.forecasting.forecast import Forecast
    from workbench.runs.run import Run
    from workbench.runs.singular_values import Values
    from workbench.workloads.contents import Contents
    from workbench.workloads.listing import Broken
    from workbench.workloads.registry import Template

_STATUS_STYLES = {
    "ready": "green",
    "done": "green",
    "starting": "yellow",
    "running": "yellow",
    "stopping": "yellow",
    "cancelled": "dim",
    "failed": "red",
    "lost": "red",
}
_BAR_WIDTH = 50  # characters
_MARK_STYLES = {"good": "green", "bad": "red", "warning": "yellow"}
_IDLE_WARNING = 600  # seconds before the end of a lease at which the countdown starts


class Console(RichConsole):
    """A console on which text from outside can neither move the cursor nor reorder the output."""

    def __init__(self, *, stderr: bool = False) -> None:
        # Printed text may contain brackets and colons.
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Leave it to the caller; rich would end the process with exit code 1."""
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the segments of all output, including tables and progress bars."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def show_hardware(inventory: Inventory, profiles: Sequence[Offered], budget: Budget) -> None:
    """Print the hardware, and the profiles with their reasons."""
    from workbench.views.machine import about

    machine = about(inventory)
    machine["Memory"] += f" · {formats.size(budget.left)} free for clusters"
    machine["UCX"] = inventory.ucx.version or inventory.ucx.reason or "not installed"
    _print(_pairs(machine))
    _print()
    if inventory.gpus:
        _print(_gpu_table(inventory))
        _print()
    if inventory.topology is not None:
        # Lines are not wrapped, because a broken matrix is unreadable.
        _print(inventory.topology.text(), soft_wrap=True)
        for letters, meaning in inventory.topology.legend().items():
            _print(f"  {letters}: {meaning}", style="dim")
        _print()
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for profile in profiles:
        mark = Text("✓", "green") if profile.available else Text("✗", "red")
        text = Text(profile.summary if profile.available else profile.reason or "", "" if profile.available else "dim")
        table.add_row(mark, profile.name, text)
    _print(table)


def show_cluster(record: ClusterRecord) -> None:
    """Print a cluster that has just become ready, and the reasons for its configuration."""
    _print(
        _pairs(
            {
                record.name: Text("ready", "green") + f" at {record.scheduler_address}",
                "": record.spec.describe(),
                "On": record.machine and machine_words(record.machine),
                "Workers": record.queued and record.waiting,
                "Warning": record.warning and Text(record.warning, "red"),
                "Why": Text("\n".join(record.spec.why), "dim"),
                "In Python": f'client = workbench.connect("{record.name}")',
                "Run": f"workbench run array_sum --cluster {record.name} -p size=1GiB",
                "Detach" if record.ending == "detached" else "Stop": f"workbench down {record.name}",
            }
        )
    )


def show_clusters(records: Sequence[ClusterRecord]) -> None:
    """Print a table of clusters."""
    if not records:
        _print("No cluster is running. Start one with: workbench up cpu")
        return
    header = ("NAME", "STATUS", "PROFILE", ">WORKERS", ">THREADS", ">MEMORY", "OVER", ">AGE")
    rows = (
        (Text(record.name, "bold"), _status(record.status), *_size_of(record), _age(record.created))
        for record in records
    )
    _print(_table(header, rows))
    for record in records:
        if record.queued:
            _print(on_one_line(f"{record.name}: {record.waiting}"))
        if record.message:
            text = on_one_line(f"{record.name}: {record.message}")
            _print(text, style="dim" if record.status == "unknown" else "red")
        elif record.warning:
            _print(on_one_line(f"{record.name}: {record.warning}"), style="red")
        elif record.expires_at is not None and record.expires_at - time.time() < _IDLE_WARNING:
            _print(
                f"{record.name} ends in {formats.duration(round(record.expires_at - time.time()))} unless it is used."
            )


def _size_of(record: ClusterRecord) -> Sequence[str]:
    """Return profile, workers, threads, memory and protocol, as far as they are known."""
    if record.status == "unknown":
        return ["–"] * 5
    spec, expected = record.spec, record.n_workers_expected
    workers = f"{record.n_workers}{f'/{expected}' if record.n_workers != expected else ''}"
    threads = "?" if spec.threads_per_worker is None else str(record.n_workers * spec.threads_per_worker)
    return spec.profile, workers, threads, memory_words(record), spec.protocol


def show_workloads(templates: Sequence[Template], broken: Sequence[Broken] = ()) -> None:
    """Print a table of workloads, and the broken ones with their reasons."""
    rows = ((Text(each.name, "bold"), each.summary.replace("`", ""), each.origin) for each in templates)
    _print(_table(("NAME", "WHAT IT DOES", "FROM"), rows))
    for each in broken:
        _print(Text(on_one_line(f"{each.where}: {each.why}"), "red"))
    _print("\nParameters of one: workbench workloads NAME", style="dim")


def show_workload(template: Template) -> None:
    """Print a description of a workload, and its parameters with defaults, units and bounds."""
    _print(Text(f"{template.name}: {template.title}", "bold"))
    for paragraph in template.help.replace("`", "").split("\n\n"):
        _print(Padding(" ".join(paragraph.split()), (1, 0, 0, 0)))
    _print()
    schema = template.schema()
    required = schema.get("required", ())
    table = _table(("PARAMETER", "DEFAULT", "ALLOWED", "MEANING"))
    for name, about in schema["properties"].items():
        default = Text("required", "yellow") if name in required else Text(plain(about.get("default")))
        table.add_row(Text(name, "bold"), default, about["allowed"], _meaning(about))
    _print(table)
    if offered := template.offered:
        _print()
        presets = ((Text(preset.name, "bold"), preset.title, preset.source) for preset in offered)
        _print(_table(("PRESET", "WHAT", "FROM"), presets))
        scaled = " --scale 0.01" if template.presets else ""
        _print(f"Run one: workbench run {template.name} --preset {offered[0].name}{scaled} --on cpu")


def show_runs(runs: Sequence[Run], total: int, offset: int = 0, *, filtered: bool = False, answers: str = "") -> None:
    """Print a table of runs, how to see earlier ones, and `answers`, the summary of their saved answers."""
    if total and not runs:
        _print(f"There are {total} runs, so none comes after {offset} others. Give a smaller --offset.")
        return
    if not runs and filtered:
        _print("No run fits. See all of them with: workbench runs")
        return
    if not runs:
        _print("There is no run. Start one with: workbench run array_sum --on cpu -p size=1GiB")
        return
    from workbench.runs.forecasting.machines import cost_text

    priced = any(run.cost is not None for run in runs)
    header = ("RUN", "STATUS", "CLUSTER", ">TIME", ">SPEED", *([">COST"] if priced else []), ">AGE")
    rows = (
        (
            Text(f"{SIMULATED if run.simulated else ''}{run.id}", "bold")
            + Text(f" {run.title}" if run.title != run.workload else "", "not bold"),
            _status(run.status) + _check_mark(run),
            run.cluster if run.imported is None else f"{run.cluster} on {run.imported.machine} (imported)",
            "" if run.seconds is None else formats.duration(run.seconds),
            _speed(run),
            *(["" if run.cost is None else cost_text(run.cost)] if priced else []),
            _age(run.created),
        )
        for run in runs
    )
    _print(_table(header, rows))
    last = offset + len(runs)
    if last < total:
        _print(f"Runs {offset + 1} to {last} of {total}. For older ones: --offset {last}", style="dim")
    if answers:
        _print(Text(answers, "dim"))


def show_run(run: Run) -> None:
    """Print the facts of a run. The Dask code of its cluster and the reasons for its plan are in the report."""
    rows: list[tuple[str, Any]] = [(run.id, _status(run.status))]
    for fact in facts(run):
        if fact.label == "Why":
            continue
        if fact.label == "The same cluster":
            rows.append((fact.label, f"workbench show {run.id} --code"))
            continue
        if fact.values:
            rows.append((fact.label, _values(fact.values)))
        elif fact.shares:
            rows += zip((fact.label, ""), _shares(fact.shares), strict=True)
        else:
            mark = Text(f"{MARKS[fact.status]} ", _MARK_STYLES[fact.status]) if fact.status else Text()
            rows.append((fact.label, mark + Text(fact.text)))
        if fact.detail:
            rows.append(("", Text(fact.detail, "dim")))
    _print(_pairs(rows))


def _shares(shares: Mapping[str, float]) -> tuple[Text, Columns]:
    """Return the bar of the workers' time, and its legend."""
    bar, legend = Text(), []
    for name, share in shares.items():
        color = SHARES[name].color
        bar.append(("█" if color else "░") * max(1, round(_BAR_WIDTH * share)), color)
        legend.append(Text("■ " if color else "□ ", color) + Text(share_text(name, share)))
    return bar, Columns(legend, padding=(0, 2))


def show_contents(contents: Contents) -> None:
    """Print the contents of a file."""
    _print(Text(f"{on_one_line(contents.path)}: {contents.sentence()}", overflow="fold"))
    _print(_pairs({on_one_line(each.name or "array"): on_one_line(each.line()) for each in contents.arrays}))
    if contents.dimensions:
        rows = (
            tuple(
                map(on_one_line, (each.name, str(each.length), each.first or "", each.last or "", each.calendar or ""))
            )
            for each in contents.dimensions
        )
        columns = zip(("dimension", ">length", "from", "to", "calendar"), *rows, strict=True)
        heads, *body = zip(*(each for each in columns if any(each[1:])), strict=True)
        _print()
        _print(_table(heads, body))
    for remark in contents.remarks:
        _print(on_one_line(remark))


def show_forecast(forecast: Forecast, hardware: str) -> None:
    """Print the verdict and the expected time on the requested hardware, and on other machines."""
    about: dict[str, Any] = {"Hardware": hardware}
    if forecast.verdict is not None:
        style = {"fits": "green", "will spill": "yellow"}.get(forecast.verdict, "red")
        about["Verdict"] = Text(forecast.verdict, style)
    about[""] = forecast.sentence
    if forecast.memory_per_worker is not None:
        on_gpu = (
            "" if forecast.device_memory is None else f"{formats.size(forecast.device_memory)} on the fullest GPU, "
        )
        about["Memory"] = f"{on_gpu}{formats.size(forecast.memory_per_worker)} in the fullest worker"
    about["Notes"] = "\n".join(forecast.notes)
    _print(_pairs(about))
    here = () if forecast.seconds is None else ({"machine": "this hardware", **forecast._asdict()},)
    rows = (*here, *forecast.elsewhere)
    if rows:
        _print()
        _print(_forecast_table(rows))
        _print()
        _print(_pairs({f"({number})": source for number, source in enumerate(_sources(rows), 1)}))


def _forecast_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table with a row for each machine. Sources of times are numbered: their sentences don't fit a column."""
    from workbench.runs.forecasting.machines import cost_text

    costs = ["" if row["cost"] is None else cost_text(row["cost"], 2) for row in rows]
    numbers = {source: number for number, source in enumerate(_sources(rows), 1)}
    table = _table(("what it would take", "time", *(["cost"] if any(costs) else []), "known from"), wraps=True)
    table.columns[1].no_wrap = True
    for row, cost in zip(rows, costs, strict=True):
        known = f"{row['basis']} ({numbers[row['source']]})" if row["source"] else row["basis"]
        table.add_row(row["machine"], span_text(row["seconds"], row), *([cost] if any(costs) else []), known)
    return table


def _sources(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return each source once, in the order of its first row."""
    return list(dict.fromkeys(row["source"] for row in rows if row["source"]))


def show_comparison(comparison: Comparison, summary: Summary) -> None:
    """Print the verdict of a comparison, its tables, and remarks."""
    from workbench.runs.comparing.table import remarks, tables

    title, verdict = map(on_one_line, (f"{comparison.title}, {comparison.id}:", summary.verdict))
    _print(Text(f"{title} ", "bold") + Text(verdict))
    for name, ((first, *others, last), body) in tables(summary).items():
        _print(f"\n{on_one_line(name)}" if name else "")
        _print(_table((first.upper(), *(f">{each.upper()}" for each in others), last.upper()), body, wraps=True))
    _print()
    for sentence in remarks(summary):
        _print(sentence, style="dim")


def show_comparisons(comparisons: Sequence[tuple[Comparison, str]]) -> None:
    """Print a table of comparisons and their verdicts."""
    if not comparisons:
        _print("There is no comparison yet. Make one: workbench compare array_sum --on cpu --on ucx", soft_wrap=True)
        return
    rows = (
        (each.id, each.status, f"{each.done} of {each.total}", each.error if each.error and not each.rows else verdict)
        for each, verdict in comparisons
    )
    _print(_table(("COMPARISON", "STATUS", "RUNS", "VERDICT"), rows))


def _stage(record: ClusterRecord) -> str:
    reached = {"scheduler": "scheduler is up", "workers": record.waiting}.get(record.stage, record.stage)
    return f"{record.name}: {reached}"


def _run_line(run: Run) -> str:
    words = (run.progress.words() if run.progress.total else "", run.progress.waits, run.error)
    return " ".join((f"{run.id} is {run.status}.", ". ".join(filter(None, words)))).rstrip()


def _comparison_line(comparison: Comparison) -> str:
    doing = ", ".join(filter(None, (comparison.stage, comparison.now)))
    done = f"{comparison.done} of {comparison.total} runs done"
    return f"{comparison.id} is {comparison.status}, {done}. {doing}".rstrip()


LINES: Mapping[str, Callable[..., str]] = {
    "stages": _stage,
    "progress": _run_line,
    "comparison_progress": _comparison_line,
    "blocks": lambda done, total=0: f"{done} of {total} blocks are written." if total else "Writing.",
}
"""Text for each, used without a terminal."""


@contextlib.contextmanager
def stages(record: ClusterRecord) -> Iterator[Callable[[ClusterRecord], None]]:
    """Show the stages of a start on stderr until the block ends; yield a function to call with each new record."""
    console = Console(stderr=True)
    # A status would read markup in a string.
    with console.status(Text(f"{record.name}: starting")) as line:

        def on_change(changed: ClusterRecord) -> None:
            line.update(Text(_stage(changed)))

        yield on_change


@contextlib.contextmanager
def progress(run: Run, on: Progress | None = None) -> Iterator[Callable[[Run], None]]:
    """Show the progress of a run on stderr until the block ends; yield a function to call with the changed run."""
    with _bar(f"{run.workload} on {run.cluster}", on) as bar:

        def on_change(changed: Run) -> None:
            now = changed.progress
            known = bool(now.total) and not now.more
            words = ". ".join(filter(None, (now.words() if now.total else "", now.waits)))
            bar.update(TaskID(0), completed=now.done if known else 0, words=words)
            bar.tasks[0].total = now.total if known else None  # `update` takes None for: unchanged

        yield on_change


@contextlib.contextmanager
def blocks(run: Run) -> Iterator[Callable[[int, int], None]]:
    """Show the number of saved blocks of a run's answer, as `progress` does for its tasks."""
    with _bar(f"saving {run.id}") as bar:
        yield lambda done, total: bar.update(TaskID(0), completed=done, total=total, words=f"{done} of {total} blocks")


@contextlib.contextmanager
def comparison_progress(comparison: Comparison) -> Iterator[Callable[[Comparison], None]]:
    """Show the progress of a comparison, as `progress` does for a run."""
    with _bar(comparison.workload) as bar:

        def on_change(changed: Comparison) -> None:
            words = on_one_line(changed.now or changed.stage or changed.workload)
            done = f"{changed.done} of {changed.total} runs"
            bar.update(TaskID(0), description=words, completed=changed.done, total=changed.total, words=done)

        yield on_change


def _bar(title: str, on: Progress | None = None) -> Progress:
    bar = on or Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[words]}", style="green", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        expand=True,
    )
    bar.add_task(on_one_line(title), total=None, words="")
    return bar


def _status(status: str) -> Text:
    return Text(status, _STATUS_STYLES.get(status, ""))


def _age(created: float) -> str:
    return formats.duration(round(time.time() - created))


def _print(*renderables: Any, **options: Any) -> None:
    Console().print(*renderables, **options)


def _pairs(pairs: Mapping[str, Any] | Sequence[tuple[str, Any]]) -> Table:
    """Return a table of names and values, without empty values."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs.items() if isinstance(pairs, Mapping) else pairs:
        if value:
            table.add_row(on_one_line(name), value)
    return table


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]] = (), *, wraps: bool = False) -> Table:
    """Return a table with its rows; columns with names that begin with > hold numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index, name in enumerate(columns):
        table.add_column(
            name.lstrip(">"),
            justify="right" if name.startswith(">") else "left",
            no_wrap=index == 0 and not wraps,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(_cell(value, name.startswith(">")) for name, value in zip(columns, row, strict=True)))
    return table


def _cell(value: Any, is_number: bool) -> Any:
    """Return a table cell with line breaks in names as spaces: otherwise one row could pass for two.

    A number for which there is no room ends with an ellipsis: the rest of it in a line of its own would be another one.
    """
    if isinstance(value, str):
        text = on_one_line(value)
        return Text(text, no_wrap=True, overflow="ellipsis") if is_number and " " not in text else text
    if isinstance(value, Text) and "\n" in value.plain:
        return Text(" ").join(value.split())
    return value


def _gpu_table(inventory: Inventory) -> Table:
    table = _table(("GPU", "NAME", ">MEMORY", ">FREE", ">USE", ">POWER LIMIT", "PCIE", "NUMA", "CPUS", ""))
    for gpu in inventory.gpus:
        table.add_row(
            Text(str(gpu.index), "bold"),
            gpu.name or "?",
            _bytes(gpu.memory_total),
            _bytes(gpu.memory_free),
            "–" if gpu.utilisation is None else f"{gpu.utilisation} %",
            "–" if gpu.power_limit is None else f"{gpu.power_limit:.0f} W",
            _pcie(gpu),
            plain(gpu.numa_node),
            gpu.cpu_affinity or "–",
            "; ".join(_notes(gpu, inventory)),
            style="" if gpu.visible else "dim",
        )
        for part in gpu.slices:
            table.add_row("", part.uuid or "?", _bytes(part.memory_total), _bytes(part.memory_free), style="dim")
    return table


def _notes(gpu: Gpu, inventory: Inventory) -> Iterator[str]:
    if not gpu.visible:
        yield "hidden by CUDA_VISIBLE_DEVICES"
    if gpu.slices:
        yield formats.count(len(gpu.slices), "MIG slice")
    if gpu.processes:
        yield "used by " + ", ".join(f"{each.pid} ({_bytes(each.memory)})" for each in gpu.processes)
    if gpu.name is None:
        yield inventory.missing.get(f"gpus.{gpu.index}.name", "")


def _pcie(gpu: Gpu) -> str:
    """Return the best possible link: an idle GPU lowers the current one."""
    pcie = gpu.pcie
    generation, width = pcie.max_generation or pcie.generation, pcie.max_width or pcie.width
    return f"{generation or '?'} ×{width or '?'}" if generation or width else "–"


def _bytes(size: int | None) -> str:
    return "–" if size is None else formats.size(size)


def _check_mark(run: Run) -> Text:
    if run.check is None:
        return Text("")
    return Text(" ✓", "green") if run.check.passed else Text(" ✗", "red")


def _speed(run: Run) -> str:
    return "" if run.bytes_per_second is None else formats.rate(run.bytes_per_second)


def _values(values: Values) -> Table:
    """Return numbered values with their bounds, in a table that fits a terminal."""
    table = _table([f">{name}" for name in values.header], values.rows[: singular_values.FIRST])
    if left_out := values.left_out + len(values.rows[singular_values.FIRST :]):
        table.add_row("…", f"{left_out} more", *[""] * (len(values.header) - 2))
    return table


def _meaning(about: dict[str, Any]) -> str:
    text: str = about.get("description") or about.get("title") or ""
    unit = about.get("unit")
    return f"{text} [{unit}]" if unit else text
