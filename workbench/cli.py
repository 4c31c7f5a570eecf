"""The command `workbench`: hardware, clusters, workloads and runs from a terminal.

Exit codes: 0 for success, 1 for a cluster or run that failed, 2 for bad input (with one line on stderr), 130 after
Ctrl-C. With `--json` the answer is JSON on stdout, and nothing else is there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from workbench import __version__
from workbench.errors import BadInputError, FailedError, WorkbenchError

if TYPE_CHECKING:
    from workbench.clusters.records import ClusterRecord
    from workbench.clusters.spec import ClusterSpec
    from workbench.runs.store import Run
    from workbench.session import Session

_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
_CANCEL_PATIENCE = 20.0  # seconds
_BROKEN_PIPE = 141  # 128 + SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    try:
        arguments = _parse(argv)
        code: int = arguments.command(arguments)
        sys.stdout.flush()
        return code
    except WorkbenchError as err:
        _complain(str(err) if isinstance(err, FailedError) else " ".join(str(err).split()))
        return err.exit_code
    except SystemExit as err:
        return err.code if isinstance(err.code, int) else 0
    except KeyboardInterrupt:
        _complain("interrupted")
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has enough of it. What is still buffered must go nowhere, or Python complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except OSError as err:
        _complain(f"{err.strerror or err}{f': {err.filename}' if err.filename else ''}")
        return 1


# ---------------------------------------------------------------- commands


def _hardware(arguments: argparse.Namespace) -> int:
    from workbench.hardware import profiles, ucx_transports

    session = _session()
    inventory = session.hardware()
    offered = profiles(inventory)
    transports = ucx_transports() if arguments.transports else None
    if arguments.json:
        told = inventory.model_dump(mode="json", include={"cpu", "memory", "gpus", "ucx"})
        told |= {"profiles": [profile.model_dump(mode="json") for profile in offered]}
        told |= inventory.model_dump(mode="json", include={"network", "topology", "cuda"})
        return _print_json(told | ({"transports": transports.model_dump(mode="json")} if transports else {}))
    from workbench import terminal

    terminal.show_hardware(inventory, offered, session.budget(), transports)
    return 0


def _up(arguments: argparse.Namespace) -> int:
    session = _session()
    spec = _spec(session, arguments)
    if arguments.code:
        return _print_json({"code": spec.code()}) if arguments.json else _print(spec.code().rstrip("\n"))
    record = _start(session, spec, name=arguments.name, force=arguments.force)
    if arguments.json:
        return _print_json(cluster_json(record))
    from workbench import terminal

    terminal.show_cluster(record, spec)
    return 0


def _ls(arguments: argparse.Namespace) -> int:
    records = _session().clusters()
    if arguments.json:
        return _print_json([cluster_json(record) for record in records])
    from workbench import terminal

    terminal.show_clusters(records)
    return 0


def _scale(arguments: argparse.Namespace) -> int:
    session = _session()
    if (arguments.workers is None) == (arguments.adapt is None):
        raise BadInputError("workbench scale: give either a number of workers, or --adapt MIN MAX.")
    if arguments.adapt is None:
        asyncio.run(session.scale(arguments.name, arguments.workers, force=arguments.force))
        record = _until_scaled(session, arguments.name, arguments.workers)
    else:
        record = asyncio.run(session.adapt(arguments.name, *arguments.adapt, force=arguments.force))
    if arguments.json:
        return _print_json(cluster_json(record))
    bounds = f", adapting between {record.adaptive[0]} and {record.adaptive[1]}" if record.adaptive else ""
    return _print(f"{record.name}: {record.n_workers} of {record.n_workers_expected} workers{bounds}")


def _restart(arguments: argparse.Namespace) -> int:
    record = asyncio.run(_session().restart_workers(arguments.name))
    if arguments.json:
        return _print_json(cluster_json(record))
    return _print(f"{record.name}: workers restarted")


def _logs(arguments: argparse.Namespace) -> int:
    logs = asyncio.run(_session().logs(arguments.name))
    if arguments.json:
        return _print_json({"logs": logs})
    return _print("\n\n".join(f"==> {who} <==\n{text.rstrip()}" for who, text in logs.items()))


def _down(arguments: argparse.Namespace) -> int:
    session = _session()
    if (arguments.name is None) != arguments.all:
        raise BadInputError("workbench down: give either the name of a cluster, or --all.")
    if arguments.all:
        stopped = asyncio.run(session.stop_all())
    else:
        asyncio.run(session.stop(arguments.name))
        stopped = (arguments.name,)
    if arguments.json:
        return _print_json({"stopped": list(stopped)})
    return _print(f"Stopped: {', '.join(stopped)}" if stopped else "No cluster is running.")


def _workloads(arguments: argparse.Namespace) -> int:
    session = _session()
    chosen = session.workloads() if arguments.name is None else (session.workload(arguments.name),)
    if arguments.json:
        told = [_workload_json(template) for template in chosen]
        return _print_json(told if arguments.name is None else told[0])
    from workbench import terminal

    if arguments.source:
        return _print("\n\n".join(template.source.rstrip() for template in chosen))
    if arguments.name is None:
        terminal.show_workloads(chosen)
    else:
        terminal.show_workload(chosen[0])
    return 0


def _run(arguments: argparse.Namespace) -> int:
    session = _session()
    parameters = _parameters(arguments.parameters)
    if arguments.cluster is not None:
        run = _run_on(session, arguments.workload, parameters, session.cluster(arguments.cluster))
    else:
        # Everything is checked before anything starts.
        on = _up_options(arguments.on)
        spec = _spec(session, on)
        session.needs(arguments.workload, parameters, spec)
        with _own_cluster(session, spec, name=on.name, force=on.force) as record:
            run = _run_on(session, arguments.workload, parameters, record)
    return _tell_run(run, as_json=arguments.json)


def _runs(arguments: argparse.Namespace) -> int:
    runs = _session().runs(limit=arguments.limit, workload=arguments.workload, status=arguments.status)
    if arguments.json:
        return _print_json([run.model_dump(mode="json") for run in runs])
    from workbench import terminal

    terminal.show_runs(runs)
    return 0


def _show(arguments: argparse.Namespace) -> int:
    session = _session()
    run = session.show(arguments.run)
    if arguments.log:
        log = session.log(run.id)
        return _print_json({"log": log}) if arguments.json else _print(log.rstrip("\n"))
    if arguments.json:
        return _print_json(run.model_dump(mode="json"))
    from workbench import terminal

    terminal.show_run(run)
    return 0


def _cancel(arguments: argparse.Namespace) -> int:
    session = _session()
    run = session.show(arguments.run)
    asyncio.run(session.cancel(run.id))
    run = asyncio.run(session.wait_run(run.id))
    if arguments.json:
        return _print_json(run.model_dump(mode="json"))
    return _print(f"{run.id}: {run.status}")


def _open(arguments: argparse.Namespace) -> int:
    from workbench.runs import store

    run = _session().show(arguments.run)
    if run.active:
        raise BadInputError(f"The run {run.id} is still {run.status}. Its report is there when it has ended.")
    from workbench.figures.report import write_report

    path = write_report(run, store.folder(run.id))
    if arguments.json:
        return _print_json({"path": str(path)})
    if not arguments.no_browser:
        import webbrowser

        webbrowser.open(path.as_uri())
    return _print(str(path))


def _lab(arguments: argparse.Namespace) -> int:
    command = [sys.executable, "-m", "jupyterlab", *arguments.passed_on]
    if arguments.json:
        _print_json({"command": command, "pid": os.getpid()})
    sys.stdout.flush()
    os.execv(command[0], command)


# ---------------------------------------------------------------- what commands share


def _session() -> Session:
    from workbench.session import Session

    return Session()


def _spec(session: Session, arguments: argparse.Namespace) -> ClusterSpec:
    choices = {
        "n_workers": arguments.workers,
        "threads_per_worker": arguments.threads,
        "memory": arguments.memory,
        "devices": arguments.devices,
        "device_memory_limit": arguments.device_memory,
        "rmm_pool_size": arguments.rmm_pool,
        "encrypt": False if arguments.no_encrypt else None,
        "python": arguments.python,
    }
    return session.plan(arguments.profile, **{name: value for name, value in choices.items() if value is not None})


def _start(session: Session, spec: ClusterSpec, *, name: str | None, force: bool) -> ClusterRecord:
    """Start a cluster and wait until it is ready; an interrupted start leaves nothing behind."""
    record = None
    try:
        with _holding_back_signals():
            record = session.start(spec, name=name, force=force)
        with _stages(record) as on_change:
            return asyncio.run(session.wait(record.name, on_change))
    except (KeyboardInterrupt, SystemExit):
        if record is not None:
            asyncio.run(session.stop(record.name))
        raise


@contextlib.contextmanager
def _own_cluster(session: Session, spec: ClusterSpec, *, name: str | None, force: bool) -> Iterator[ClusterRecord]:
    """Run a block with a cluster that ends with the block, also when the terminal goes away."""
    with _ending_on(signal.SIGTERM, signal.SIGHUP):
        record = _start(session, spec, name=name, force=force)
        try:
            yield record
        finally:
            asyncio.run(session.stop(record.name))


def _run_on(session: Session, workload: str, parameters: dict[str, str], record: ClusterRecord) -> Run:
    """Run a workload and wait for it; Ctrl-C cancels it."""
    run = None
    try:
        with _ending_on(signal.SIGTERM):
            with _holding_back_signals():
                run = session.run(workload, parameters, record)
            with _progress(run) as on_change:
                return asyncio.run(session.wait_run(run.id, on_change))
    except (KeyboardInterrupt, SystemExit):
        if run is not None:
            with contextlib.suppress(WorkbenchError):
                asyncio.run(session.cancel(run.id))
            asyncio.run(session.wait_run(run.id, timeout=_CANCEL_PATIENCE))
        raise


def _tell_run(run: Run, *, as_json: bool) -> int:
    if as_json:
        _print_json(run.model_dump(mode="json"))
    else:
        from workbench import terminal

        terminal.show_run(run)
    if run.status != "done":
        _complain(f"The run {run.id} {_ending(run)}")
        return 1
    if run.check is not None and not run.check.passed:
        _complain(f"The run {run.id} is done, but its answer did not pass the check: {run.check.what}")
        return 1
    return 0


def _ending(run: Run) -> str:
    how = {"failed": "failed", "lost": "was lost", "cancelled": "was cancelled"}.get(run.status, f"is {run.status}")
    return f"{how}: {run.error}" if run.error else f"{how}."


def _until_scaled(session: Session, name: str, n_workers: int, patience: float = 30.0) -> ClusterRecord:
    deadline = time.monotonic() + patience
    record = session.cluster(name)
    while record.n_workers != n_workers and record.status == "ready" and time.monotonic() < deadline:
        time.sleep(0.1)
        record = session.cluster(name)
    return record


def cluster_json(record: ClusterRecord) -> dict[str, Any]:
    """Cluster as `up --json` and `ls --json` print it; `memory_limit` is bytes for each worker."""
    spec = record.spec
    return {
        "name": record.name,
        "status": record.status,
        "profile": spec.profile,
        "scheduler_address": record.scheduler_address,
        "n_workers": record.n_workers,
        "threads_per_worker": spec.threads_per_worker,
        "memory_limit": spec.memory_limit,
        "protocol": spec.protocol,
        "stage": record.stage,
        "n_workers_expected": record.n_workers_expected,
        "adaptive": record.adaptive,
        "python": spec.python,
        "dashboard_address": record.dashboard_address,
        "created": record.created,
        "expires_at": record.expires_at,
        "clients": record.clients,
        "message": record.message,
        "warning": record.warning,
        "devices": spec.devices,
        "why": spec.why,
    }


def _workload_json(template: Any) -> dict[str, Any]:
    return {
        "name": template.name,
        "title": template.title,
        "summary": template.summary,
        "help": template.help,
        "schema": template.schema(),
        "source": template.source,
    }


def _parameters(given: Sequence[str]) -> dict[str, str]:
    parameters = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise BadInputError(f"-p: given '{item}', allowed is KEY=VALUE, such as -p size=2GiB.")
        parameters[name.strip()] = value
    return parameters


def _up_options(text: str) -> argparse.Namespace:
    """Parse what stands behind --on: a profile and options of `up`."""
    try:
        words = shlex.split(text)
    except ValueError as err:
        raise BadInputError(f"--on: given '{text}' ({err}). Give a profile and options of `workbench up`.") from err
    parser = _Parser(prog="workbench run --on", add_help=False)
    _add_up_options(parser)
    return parser.parse_args(words)


@contextlib.contextmanager
def _ending_on(*signals: signal.Signals) -> Iterator[None]:
    """End the block in good order on these signals, as Ctrl-C does."""

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    try:
        before = {number: signal.signal(number, end) for number in signals}
    except ValueError:  # not in the main thread, where no signal arrives
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _holding_back_signals() -> Iterator[None]:
    """Let signals wait until the end of the block: what it starts must be known before it can be stopped."""
    held: list[int] = []
    watched = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    try:
        before = {number: signal.signal(number, lambda caught, _: held.append(caught)) for number in watched}
    except ValueError:  # not in the main thread, where no signal arrives
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for came in held:
        signal.raise_signal(came)


@contextlib.contextmanager
def _stages(record: ClusterRecord) -> Iterator[Callable[[ClusterRecord], None] | None]:
    """Show the stages of a start: a line on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from workbench import terminal

    with terminal.stages(record) as on_change:
        yield on_change


@contextlib.contextmanager
def _progress(run: Run) -> Iterator[Callable[[Run], None] | None]:
    """Show the progress of a run: a bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from workbench import terminal

    with terminal.progress(run) as on_change:
        yield on_change


def _print(text: str) -> int:
    print(text)
    return 0


def _print_json(value: Any) -> int:
    print(json.dumps(value, indent=2))
    return 0


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):
        print(f"workbench: {text}", file=sys.stderr)


# ---------------------------------------------------------------- the words of the command line


_FORCE = "go past the budget of memory and workers that all clusters share"


class _Parser(argparse.ArgumentParser):
    """argparse whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        raise BadInputError(f"{message}. See: {self.prog.removesuffix(' --on')} --help")


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"given '{text}', allowed are whole numbers") from None


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    arguments, unknown = parser.parse_known_args(argv)
    if arguments.command is _lab:
        arguments.passed_on = unknown
    elif unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return arguments


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="workbench",
        description="Pick hardware, start the Dask cluster that matches it, run a workload, watch it.",
        epilog="Example: workbench run array_sum --on cpu -p size=1GiB",
    )
    parser.add_argument("--version", action="version", version=f"dask-workbench {__version__}")
    parser.set_defaults(command=lambda _: _print(parser.format_help().rstrip()))
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
    _add_hardware(commands)
    _add_cluster_commands(commands)
    _add_run_commands(commands)
    _add_lab(commands)
    return parser


def _add(
    commands: Any, name: str, command: Callable[[argparse.Namespace], int], text: str, **options: Any
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}.", **options
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.set_defaults(command=command)
    return parser


def _add_hardware(commands: Any) -> None:
    hardware = _add(commands, "hardware", _hardware, "show what this machine has, and the four profiles")
    hardware.add_argument(
        "--transports", action="store_true", help="ask UCX as well what it can move data over here (half a second)"
    )


def _add_cluster_commands(commands: Any) -> None:
    up = _add(
        commands,
        "up",
        _up,
        "start a cluster and wait until it is ready",
        epilog="Example: workbench up cpu --workers 4",
    )
    _add_up_options(up)
    up.add_argument(
        "--code", action="store_true", help="print the Dask code that starts the same cluster, start nothing"
    )

    _add(commands, "ls", _ls, "list the clusters")

    scale = _add(commands, "scale", _scale, "change the number of workers of a cluster")
    scale.add_argument("name", metavar="NAME")
    scale.add_argument("workers", metavar="N", nargs="?", type=_whole_number)
    scale.add_argument(
        "--adapt",
        metavar=("MIN", "MAX"),
        nargs=2,
        type=_whole_number,
        help="follow the load between two bounds instead",
    )
    scale.add_argument("--force", action="store_true", help=_FORCE)

    restart = _add(commands, "restart", _restart, "restart the workers of a cluster")
    restart.add_argument("name", metavar="NAME")

    logs = _add(commands, "logs", _logs, "print the logs of a cluster: host, scheduler and workers")
    logs.add_argument("name", metavar="NAME")

    down = _add(commands, "down", _down, "stop a cluster, or all of them")
    down.add_argument("name", metavar="NAME", nargs="?")
    down.add_argument("--all", action="store_true", help="stop every cluster")


def _add_up_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", metavar="PROFILE", help="cpu, gpu, gpus or ucx; see: workbench hardware")
    parser.add_argument("--workers", metavar="N", type=_whole_number, help="worker processes")
    parser.add_argument("--threads", metavar="N", type=_whole_number, help="threads of each worker")
    parser.add_argument("--memory", metavar="SIZE", help="memory of all workers together, such as 8GiB")
    parser.add_argument("--devices", metavar="LIST", help="GPUs by index or UUID, such as 0,2")
    parser.add_argument("--device-memory", metavar="SIZE", help="memory of a GPU beyond which blocks move to the host")
    parser.add_argument("--rmm-pool", metavar="SIZE", help="memory of each GPU that RMM takes at the start")
    parser.add_argument("--no-encrypt", action="store_true", help="speak plain TCP instead of TLS")
    parser.add_argument("--name", metavar="NAME", help="name of the cluster; one is made up otherwise")
    parser.add_argument("--python", metavar="PATH", help="Python of the environment that the cluster runs in")
    parser.add_argument("--force", action="store_true", help=_FORCE)


def _add_run_commands(commands: Any) -> None:
    workloads = _add(commands, "workloads", _workloads, "list the workloads, or show the parameters of one")
    workloads.add_argument("name", metavar="NAME", nargs="?")
    workloads.add_argument("--source", action="store_true", help="print the plain Dask code instead")

    run = _add(
        commands,
        "run",
        _run,
        "run a workload on a cluster and wait for the answer",
        epilog='Example: workbench run array_sum --on "cpu --workers 2" -p size=1GiB -p chunks=64MiB',
    )
    run.add_argument("workload", metavar="WORKLOAD", help="see: workbench workloads")
    where = run.add_mutually_exclusive_group(required=True)
    where.add_argument("--cluster", metavar="NAME", help="a cluster that is up")
    where.add_argument(
        "--on", metavar='"PROFILE …"', help="start a cluster for this run, with the options of up, and stop it"
    )
    run.add_argument(
        "-p",
        "--parameter",
        dest="parameters",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a parameter of the workload; may be given again for others",
    )

    runs = _add(commands, "runs", _runs, "list the runs, the newest first")
    runs.add_argument("--limit", metavar="N", type=_whole_number, default=20, help="how many (20)")
    runs.add_argument("--workload", metavar="NAME", help="only those of this workload")
    runs.add_argument("--status", metavar="STATUS", help="only running, done, failed, cancelled or lost ones")

    show = _add(commands, "show", _show, "show a run")
    _add_run_name(show)
    show.add_argument("--log", action="store_true", help="print what its process printed, tracebacks included")

    _add_run_name(_add(commands, "cancel", _cancel, "cancel a run and free its workers"))

    opened = _add(commands, "open", _open, "write the report of a run as one HTML file, and open it in the browser")
    _add_run_name(opened)
    opened.add_argument("--no-browser", action="store_true", help="only write it and print its path")


def _add_run_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="id of the run, its beginning or end, or: last")


def _add_lab(commands: Any) -> None:
    text = "open JupyterLab with the Workbench in its sidebar"
    _add(commands, "lab", _lab, text, usage="workbench lab [-h] [--json] [what jupyter lab takes]")
