"""Commands that compare: architectures in turn, and past runs."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import config
from workbench.cli.answers import agreed, complain, print_text, shown
from workbench.cli.clusters import add_yes, new_session
from workbench.cli.options import add_parameters, add_settings, workload_parameters
from workbench.cli.parsing import add_command, add_pairs, add_workload_name, check_writable, parameters_of, whole_number
from workbench.cli.signals import ending_on, holding_back_signals
from workbench.errors import BadInputError, NotFoundError, WorkbenchError

if TYPE_CHECKING:
    from workbench.runs.comparing.comparisons import Comparison
    from workbench.session import Session

_CANCEL_PATIENCE = 40.0  # seconds to cancel a run and stop the clusters
_OVER = 3  # exit code if something is over a limit
_NOT_JUDGED = 2  # exit code if too few runs report a limited quantity
_FORMATS = {".md": "markdown", ".markdown": "markdown", ".csv": "csv", ".json": "json", ".html": "html", ".htm": "html"}


def _compare(arguments: argparse.Namespace) -> int:
    form = _form(arguments)
    session = new_session()
    if (arguments.workload is None) == (arguments.runs is None):
        raise BadInputError("Give either a workload, or --runs with runs of the past.")
    limits = _limits(arguments)
    if arguments.workload is None and (arguments.on or workload_parameters(arguments) or arguments.sweep):
        raise BadInputError(
            "Given --runs: --on, --cluster, -p, --preset, --scale and --sweep belong to new runs. Leave them out."
        )
    if arguments.runs is not None:
        comparison = session.compare_runs(arguments.runs)
    else:
        comparison = _conducted(session, arguments, judged=bool(limits))
    code = print_comparison(comparison, form, arguments.save)
    return _gate(comparison, limits, code) if limits else code


def _limits(arguments: argparse.Namespace) -> dict[str, float]:
    from workbench.runs.comparing.gate import read_limit

    texts = {"slower": arguments.fail_if_slower, "memory": arguments.fail_if_memory_over}
    return {name: read_limit(text) for name, text in texts.items() if text is not None}


def _gate(comparison: Comparison, limits: dict[str, float], code: int) -> int:
    """Report each row against the limits; return 3 if one is over, then `code`, and 2 if one lacks runs."""
    from workbench.runs.comparing.gate import judge

    judged = judge(comparison, **limits)
    for each in judged:
        complain(each.sentence)
    codes = {"over": _OVER, "failed": 1, "too few": code or _NOT_JUDGED}
    outcomes = {each.outcome for each in judged}
    return next((exit_code for outcome, exit_code in codes.items() if outcome in outcomes), code)


def _conducted(session: Session, arguments: argparse.Namespace, *, judged: bool) -> Comparison:
    """Return a finished comparison; Ctrl-C ends it early, with the measurements so far."""
    comparison = None
    try:
        with ending_on(signal.SIGTERM, signal.SIGHUP):
            request: dict[str, Any] = {
                "workload": arguments.workload,
                "parameters": workload_parameters(arguments),
                "on": arguments.on or None,
                "sweep": _sweep(arguments.sweep),
                "settings": parameters_of(arguments.settings, "--config", "array.rechunk.threshold=5"),
                "repeats": arguments.repeats,
                "warmup": arguments.warmup,
            }
            complain(session.forecast_comparison(**request))
            with holding_back_signals():
                comparison = session.compare(**request, agreed=arguments.yes or agreed, judged=judged)
            with shown("comparison_progress", comparison, arguments) as on_change:
                return session.wait_comparison(comparison.id, on_change)
    except (KeyboardInterrupt, SystemExit):
        if comparison is not None:
            complain(f"{comparison.id} is being cancelled: its run ends, and the clusters that it started are stopped.")
            with holding_back_signals():
                with contextlib.suppress(WorkbenchError):
                    session.cancel_comparison(comparison.id)
                ended = session.wait_comparison(comparison.id, timeout=_CANCEL_PATIENCE)
                goes_on = "What was measured is kept" if not ended.active else "It goes on until its run has ended"
                complain(f"{goes_on}. See: workbench show {ended.id}")
                if any(row.seconds for row in ended.rows):
                    print_comparison(ended, _form(arguments), arguments.save)
        raise


def print_comparison(comparison: Comparison, form: str | None, save: str | None) -> int:
    """Print the comparison, and write it to a file if one is given.

    Return an exit code that is 0 if all rows were measured and agree.
    """
    from workbench.runs.comparing.table import export, summarise

    if save is not None:
        write_comparison(comparison, Path(save))
        complain(f"wrote {save}")
    summary = summarise(comparison)
    if form is None:
        from workbench import terminal

        terminal.show_comparison(comparison, summary)
    else:
        print_text(export(comparison, form).rstrip("\n"))  # type: ignore[arg-type]
    if summary.agree is False:
        complain(f"The answers do not agree. {summary.agreement}")
        return 1
    lacking = [row for row in comparison.rows if row.reason is not None]
    for row in lacking:
        complain(f"{row.title} {'failed' if row.failed else 'was not measured'}: {row.reason}")
    if comparison.status == "done" and any(row.seconds is not None for row in summary.rows):
        return 1 if lacking else 0
    if comparison.status != "cancelled" and not lacking:
        complain(comparison.error or f"{comparison.id} is {comparison.status}.")
    return 1


def comparison_of(session: Session, name: str, err: NotFoundError) -> Comparison:
    """Return the comparison of this name, or the last one. Raises `err`, which lists runs, if there is none."""
    if name == "last-comparison":
        return session.comparison("last")
    try:
        return session.comparison(name)
    except WorkbenchError:
        raise err from None


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write a comparison as Markdown, CSV, JSON or a page, by the ending of the path."""
    from workbench.runs.comparing.table import export, summarise
    from workbench.views.comparisons import page

    kind = format_of(path)
    text = page(comparison, summarise(comparison)) if kind == "html" else export(comparison, kind)
    with config.writing(path):
        path.write_text(text, encoding="utf-8")


def _form(arguments: argparse.Namespace) -> str | None:
    if arguments.save is not None:
        format_of(Path(arguments.save))
        check_writable(Path(arguments.save))
    forms = [form for form in ("markdown", "csv", "json") if getattr(arguments, form)]
    if len(forms) > 1:
        raise BadInputError(f"Given: {' and '.join(f'--{form}' for form in forms)}. Give one; --save writes another.")
    return next(iter(forms), None)


def format_of(path: Path) -> Any:
    """Return the format of a comparison in a file of this name."""
    if path.suffix not in _FORMATS:
        raise BadInputError(
            f"A comparison can't be written to '{path}'. Give a name that ends in .md, .csv, .json or .html."
        )
    return _FORMATS[path.suffix]


def _sweep(texts: list[str]) -> dict[str, tuple[str, ...]]:
    from workbench.runs.comparing.comparisons import read_values

    return {name: read_values(text) for name, text in parameters_of(texts, "--sweep", "workers=1,2,4").items()}


def add_compare_commands(commands: Any) -> None:
    """Add the command `compare`."""
    compare = add_command(
        commands,
        "compare",
        _compare,
        "run a workload on several clusters in turn, and say which is better",
        add_help=False,
        epilog='Example: workbench compare array_sum -p size=1GiB --on "cpu --workers 1" --on "cpu --workers 2"',
    )
    add_workload_name(compare, nargs="?")
    compare.add_argument(
        "--on",
        metavar='"PROFILE …"',
        action="append",
        default=[],
        help="start a cluster for this, with the options of up, or numpy or cupy for a row without Dask; may be given "
        "again for others (those of the preset, or cpu)",
    )
    compare.add_argument(
        "--cluster",
        metavar="NAME",
        dest="on",
        type=lambda name: f"--cluster {shlex.quote(name)}",
        action="append",
        help="a cluster that is up; may be given again for others",
    )
    compare.add_argument(
        "--runs",
        metavar="RUN",
        nargs="+",
        help="compare runs of the past instead, by their ids, or by names that stand for all runs of that name",
    )
    compare.add_argument(
        "--fail-if-slower",
        metavar="P%",
        help="exit with 3 only where the whole interval of a row's time lies above that of the first by more than this",
    )
    compare.add_argument(
        "--fail-if-memory-over", metavar="P%", help="the same for the most that a worker held of its memory"
    )
    add_parameters(compare)
    add_settings(compare)
    add_pairs(
        compare,
        "--sweep",
        metavar="KEY=V,V,…",
        help="values of a parameter, of workers, threads or memory, or of Dask's setting config.KEY; a row for each "
        "(semicolons where values hold commas)",
    )
    compare.add_argument("--repeats", metavar="N", type=whole_number, default=5, help="measured runs of each row (5)")
    compare.add_argument("--warmup", metavar="N", type=whole_number, default=1, help="runs before that (1)")
    add_yes(compare)
    _add_formats(compare)


def _add_formats(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--csv", action="store_true", help="print the rows as CSV")
    parser.add_argument("--save", metavar="FILE", help="write it too, as .md, .csv, .json or .html")
