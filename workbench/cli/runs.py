"""Commands for workloads and runs: workloads, run, runs, show, cancel."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from workbench.cli.answers import answer, complain, print_text, shown
from workbench.cli.clusters import add_no_wait, add_yes, new_session, own_cluster, spec_of
from workbench.cli.options import add_parameters, add_settings, add_where, where, workload_parameters
from workbench.cli.parsing import add_command, add_run_name, add_workload_name, parameters_of, whole_number
from workbench.cli.signals import ending_on, holding_back_signals
from workbench.errors import BadInputError, ConflictError, NotFoundError, WorkbenchError

if TYPE_CHECKING:
    from workbench.clusters.records import ClusterRecord
    from workbench.runs.forecasting.forecast import Forecast
    from workbench.runs.run import Run
    from workbench.runs.store import Wanted
    from workbench.session import Session
    from workbench.workloads.registry import Template


def _workloads(arguments: argparse.Namespace) -> int:
    session = new_session()
    changes = arguments.save_preset is not None or arguments.forget_preset is not None
    if arguments.workload is None and changes:
        raise BadInputError("A preset is of one workload: give its name.")
    templates = session.workloads() if arguments.workload is None else (session.workload(arguments.workload),)
    if arguments.source and not arguments.json:
        return print_text("\n\n".join(template.source.rstrip() for template in templates))
    if changes:
        return _change_presets(session, templates[0], arguments)
    from workbench.workloads.lookup import described

    descriptions = [described(template) for template in templates]
    if arguments.workload is not None:
        for wrong in () if arguments.json else templates[0].wrong_presets:
            complain(wrong)
        return answer(arguments, descriptions[0], lambda terminal: terminal.show_workload(templates[0]))
    broken = session.broken_workloads(wait=False)
    return answer(arguments, descriptions, lambda terminal: terminal.show_workloads(templates, broken))


def _change_presets(session: Session, template: Template, arguments: argparse.Namespace) -> int:
    if (name := arguments.save_preset) is not None:
        replaced = session.keep_preset(template.reference, name, workload_parameters(arguments))
        text = f"Saved: {name}, a preset of {template.name}{', which replaces the one before' if replaced else ''}"
    else:
        session.forget_preset(template.reference, arguments.forget_preset)
        text = f"Forgotten: {arguments.forget_preset}"
    return answer(arguments, template.offered, text)


def _run(arguments: argparse.Namespace) -> int:
    from workbench.runs.explaining.diagnosis import awaited
    from workbench.runs.settings import read_settings

    session = new_session()
    parameters = workload_parameters(arguments) | ({"replace": "true"} if arguments.replace else {})
    settings = read_settings(parameters_of(arguments.settings, "--config", "array.rechunk.threshold=5"))
    cluster: contextlib.AbstractContextManager[ClusterRecord]
    if arguments.cluster is None and arguments.no_wait:
        raise BadInputError(
            "--no-wait: the cluster of --on is stopped when the run has ended, and this command has to wait for that. "
            "Start one first, with workbench up, and give its name with --cluster."
        )
    if arguments.cluster is not None:
        cluster = contextlib.nullcontext(session.cluster(arguments.cluster))
    else:
        # Everything is checked before anything starts.
        spec = spec_of(session, where(session, arguments))
        refuse_what_wont_fit(session.forecast(arguments.workload, parameters, spec), force=arguments.force)
        cluster = own_cluster(session, spec, arguments)
    with cluster as record:

        def begin() -> Run:
            return session.run(arguments.workload, parameters, record, force=arguments.force, settings=settings)

        if arguments.no_wait:
            run = begin()
            return answer(arguments, run, f"{run.id} was started. See how far it is: workbench show {run.id}")
        run = run_on(session, begin, arguments)
    return _report_run(awaited(run), arguments)


def _runs(arguments: argparse.Namespace) -> int:
    session = new_session()
    if arguments.comparisons:
        comparisons = session.comparisons(limit=arguments.limit)
        pairs = [(each, session.summary(each).verdict) for each in comparisons]
        value = [each.model_dump(exclude={"inventory"}) for each in comparisons]
        return answer(arguments, value, lambda terminal: terminal.show_comparisons(pairs))
    filters: Wanted = {
        "text": arguments.text,
        "workload": arguments.workload,
        "cluster": arguments.cluster,
        "status": arguments.status,
    }
    runs = session.runs(limit=arguments.limit, offset=arguments.offset, **filters)
    filtered = any(value is not None for value in filters.values())
    answers = session.room().words() if any(run.answers for run in runs) else ""
    total = session.count_runs(**filters)
    return answer(
        arguments,
        runs,
        lambda terminal: terminal.show_runs(runs, total, arguments.offset, filtered=filtered, answers=answers),
    )


def _show(arguments: argparse.Namespace) -> int:
    from workbench.runs.explaining.diagnosis import awaited

    session = new_session()
    try:
        run = session.show(arguments.run)
    except NotFoundError as err:
        from workbench.cli.compare import comparison_of, print_comparison

        comparison = comparison_of(session, arguments.run, err)
        return print_comparison(comparison, "json" if arguments.json else None, None)
    if arguments.log:
        log = session.log(run.id)
        return answer(arguments, {"log": log}, log.rstrip("\n"))
    if arguments.code:
        return _print_code(run, arguments)
    if arguments.open or arguments.replay or arguments.report:
        return _open(run, arguments)
    return _show_run(awaited(run), arguments)


def _open(run: Run, arguments: argparse.Namespace) -> int:
    """Write the report of a finished run, and open it unless only its path was requested."""
    from workbench.views.run_files import write

    path = write(run)
    if not (arguments.json or arguments.report):
        import webbrowser

        # The page starts to play if its address ends so.
        webbrowser.open(f"{path.as_uri()}{'#replay' if arguments.replay else ''}")
    return answer(arguments, {"path": str(path)}, str(path))


def _print_code(run: Run, arguments: argparse.Namespace) -> int:
    if run.spec is None or not run.spec.code:
        raise NotFoundError(f"The record of the run {run.id} has no code that starts its cluster.")
    return answer(arguments, {"code": run.spec.code}, run.spec.code.rstrip("\n"))


def _show_run(run: Run, arguments: argparse.Namespace) -> int:
    return answer(arguments, run, lambda terminal: terminal.show_run(run))


def _cancel(arguments: argparse.Namespace) -> int:
    session = new_session()
    run = session.show(arguments.run)
    session.cancel(run.id)
    run = session.wait_run(run.id)
    return answer(arguments, run, f"{run.id}: {run.status}")


def refuse_what_wont_fit(forecast: Forecast, *, force: bool) -> None:
    """Raise ConflictError if a workload can't run, or if it won't fit and `force` isn't given."""
    if forecast.verdict == "can't run":
        raise ConflictError(forecast.sentence)
    if forecast.verdict == "won't fit" and not force:
        raise ConflictError(f"{forecast.sentence} To run it all the same: --force")


def run_on(session: Session, begin: Callable[[], Run], arguments: argparse.Namespace) -> Run:
    """Start a run and wait for it; Ctrl-C cancels it."""
    from workbench.jobs.ending import CANCEL_PATIENCE

    run = None
    try:
        with ending_on(signal.SIGTERM):
            with holding_back_signals():
                run = begin()
            with shown("progress", run, arguments) as on_change:
                return session.wait_run(run.id, on_change)
    except (KeyboardInterrupt, SystemExit):
        if run is not None:
            with contextlib.suppress(WorkbenchError):
                session.cancel(run.id)
            ended = session.wait_run(run.id, timeout=CANCEL_PATIENCE)
            how = f"{run.id} is {ended.status}." if not ended.active else f"{run.id} is still ending."
            complain(f"{how} {arguments.cluster} goes on." if arguments.cluster else how)
        raise


def _report_run(run: Run, arguments: argparse.Namespace) -> int:
    """Print a finished run; return exit code 1 if it failed or its answer did not pass its check."""
    _show_run(run, arguments)
    if run.status != "done":
        how = {"lost": "was lost", "cancelled": "was cancelled"}.get(run.status, run.status)
        # On a terminal, the reason stands right above.
        reason = "." if sys.stdout.isatty() or not run.error else f": {run.error}"
        complain(f"The run {run.id} {how}{reason}")
        return 1
    if run.check is not None and not run.check.passed:
        complain(f"The run {run.id} is done, but its answer did not pass the check: {run.check.what}")
        return 1
    return 0


def add_run_commands(commands: Any) -> None:
    """Add the commands for workloads and runs."""
    workloads = add_command(
        commands,
        "workloads",
        _workloads,
        "list the workloads, or show parameters and presets of one",
        add_help=False,
        epilog="Example: workbench workloads eofs --save-preset winds -p path=winds.nc -p variable=u -p k=4",
    )
    add_workload_name(workloads, nargs="?")
    change = workloads.add_mutually_exclusive_group()
    change.add_argument("--source", action="store_true", help="print the plain Dask code instead")
    change.add_argument("--save-preset", metavar="NAME", help="save the parameters given here as a preset of your own")
    change.add_argument("--forget-preset", metavar="NAME", help="forget a preset of your own")
    add_parameters(workloads)

    run = add_command(
        commands,
        "run",
        _run,
        "run a workload on a cluster and wait for the answer",
        add_help=False,
        epilog='Example: workbench run array_sum --on "cpu --workers 2" -p size=1GiB -p chunks=64MiB',
    )
    add_workload_name(run)
    add_where(run, "start a cluster for this run, with the options of up, and stop it")
    add_parameters(run)
    add_settings(run)
    text = "run it although the forecast says that it won't fit, on a cluster past the memory budget"
    run.add_argument("--force", action="store_true", help=text)
    run.add_argument("--replace", action="store_true", help="replace what is where the answer is to be saved")
    add_no_wait(run, "print its id at once, while it computes; with --cluster only")
    add_yes(run)

    runs = add_command(commands, "runs", _runs, "list the runs, the newest first")
    text = "only those in whose name, note, id, workload, cluster or parameters this stands"
    runs.add_argument("text", metavar="TEXT", nargs="?", help=text)
    runs.add_argument("--limit", metavar="N", type=whole_number, default=20, help="how many (20)")
    runs.add_argument(
        "--offset", metavar="N", type=whole_number, default=0, help="how many newer ones to pass over (0)"
    )
    runs.add_argument("--workload", metavar="NAME", help="only those of this workload")
    runs.add_argument("--cluster", metavar="NAME", help="only those on this cluster")
    runs.add_argument("--status", metavar="STATUS", help="only running, done, failed, cancelled or lost ones")

    runs.add_argument("--comparisons", action="store_true", help="list the comparisons instead")

    show = add_command(commands, "show", _show, "show a run or a comparison")
    add_run_name(show)
    how = show.add_mutually_exclusive_group()
    how.add_argument("--log", action="store_true", help="print what its process printed, tracebacks included")
    how.add_argument(
        "--open", action="store_true", help="write its report as one HTML file, and open it in the browser"
    )
    how.add_argument("--replay", action="store_true", help="the same, and play what the cluster did as it happened")
    how.add_argument("--report", action="store_true", help="only write the report, and print its path")
    how.add_argument("--code", action="store_true", help="print the Dask code that starts the same cluster")

    add_run_name(add_command(commands, "cancel", _cancel, "cancel a run and free its workers"))
