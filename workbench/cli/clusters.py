"""Commands for clusters: up, ls, scale, logs, down."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from workbench.cli import completions
from workbench.cli.answers import agreed, answer, complain, print_text, shown
from workbench.cli.help import add_help, of_profile
from workbench.cli.parsing import FORCE, add_cluster_name, add_command, whole_number
from workbench.cli.signals import ending_on, holding_back_signals
from workbench.errors import BadInputError, FailedError, NotFoundError
from workbench.threads import finish

if TYPE_CHECKING:
    from workbench.clusters.lines import Line
    from workbench.clusters.records import ClusterRecord
    from workbench.clusters.spec import ClusterSpec
    from workbench.session import Session

_LINES = 20
"""Number of lines of each log that --follow starts with."""

_FIELDS = (
    *("name", "status", "profile", "scheduler_address", "n_workers", "threads_per_worker", "memory_limit", "protocol"),
    *("memory_used", "stage", "n_workers_expected", "adaptive", "jobs", "python", "dashboard_address", "created"),
    *("expires_at", "clients", "message", "warning", "devices", "why"),
)


def _up(arguments: argparse.Namespace) -> int:
    session = new_session()
    if arguments.forget:
        session.forget_profile(arguments.profile)
        return answer(arguments, {"forgotten": arguments.profile}, f"Forgotten: {arguments.profile}")
    if arguments.save_as is not None:
        profile, choices = _profile_and_choices(_line(arguments))
        spec = session.keep_profile(arguments.save_as, profile, **choices)
        saved = {"name": arguments.save_as, "profile": spec.profile, "why": spec.why}
        return answer(arguments, saved, f"Saved: {arguments.save_as}, a profile of your own: {spec.describe()}")
    spec = spec_of(session, _line(arguments))
    if arguments.preview and not arguments.code:
        text = spec.preview
        if text is None:
            raise BadInputError(f"--preview: {spec.profile} submits nothing elsewhere. See what it starts with --code.")
        return answer(arguments, {"preview": text}, text.rstrip("\n"))
    if not arguments.code:
        check_consent(spec, arguments.yes)
    return _begin(session, spec, arguments, force=arguments.force)


def _begin(session: Session, spec: ClusterSpec, arguments: argparse.Namespace, *, force: bool = False) -> int:
    """Start a cluster, or only print its code."""
    if arguments.code:
        return answer(arguments, {"code": spec.code}, spec.code.rstrip("\n"))
    if arguments.no_wait:
        # The user agreed before.
        cluster = session.start(spec, name=arguments.name, force=force, agreed=True)
        text = f"{cluster.name} is starting. See how far it is: workbench ls. Stop it: workbench down {cluster.name}"
        return answer(arguments, cluster_json(cluster), text)
    record = start(session, spec, arguments, name=arguments.name, force=force)
    return answer(arguments, cluster_json(record), lambda terminal: terminal.show_cluster(record))


def _ls(arguments: argparse.Namespace) -> int:
    session = new_session()
    if arguments.nearby:
        schedulers = session.nearby()
        none = "No scheduler of yours was found on this machine. Give the address of one: workbench up tcp://host:8786"
        return answer(arguments, [each._asdict() for each in schedulers], "\n".join(map(str, schedulers)) or none)
    records = session.clusters()
    return answer(arguments, [*map(cluster_json, records)], lambda terminal: terminal.show_clusters(records))


def _scale(arguments: argparse.Namespace) -> int:
    from workbench.clusters import control

    requests = [each for each in (arguments.workers, arguments.adapt, arguments.restart or None) if each is not None]
    if len(requests) != 1:
        raise BadInputError("Give a number of workers, --adapt MIN MAX, or --restart.")
    if arguments.restart:
        record = finish(control.restart_workers(arguments.name))
        return answer(arguments, cluster_json(record), f"{record.name}: workers restarted")
    if arguments.adapt is None:
        finish(control.scale(arguments.name, arguments.workers, force=arguments.force))
        record = _until_scaled(arguments.name)
    else:
        record = finish(control.adapt(arguments.name, *arguments.adapt, force=arguments.force))
    bounds = f", adapting between {record.adaptive[0]} and {record.adaptive[1]}" if record.adaptive else ""
    return answer(arguments, cluster_json(record), f"{record.name}: {record.waiting}{bounds}")


def _logs(arguments: argparse.Namespace) -> int:
    from workbench.clusters import control

    logs = finish(control.logs(arguments.name))
    if arguments.follow:
        if arguments.json:
            raise BadInputError("--follow prints lines as they come, so it can't be JSON. Leave one of them out.")
        return _follow(arguments.name, logs)
    text = "\n\n".join(f"==> {name} <==\n{text.rstrip()}" for name, text in logs.items())
    return answer(arguments, {"logs": logs}, text)


def _follow(cluster: str, logs: dict[str, str], every: float = 1.0) -> int:
    """Print the last lines of each log, then new lines as they come, until the cluster ends."""
    from workbench.clusters import control, records

    printed: dict[str, list[str]] = {}
    while True:
        for name, text in logs.items():
            lines = text.splitlines()
            new = new_lines(printed[name], lines) if name in printed else lines[-_LINES:]
            for line in new:
                print_text(f"{name}: {line}")
            printed[name] = lines
        sys.stdout.flush()
        try:
            if records.read(cluster).is_over:
                return 0
            time.sleep(every)
            logs = finish(control.logs(cluster))
        except NotFoundError:
            return 0  # It was stopped.


def new_lines(before: list[str], now: list[str]) -> list[str]:
    """Return the lines that were added. Dask's logs lose their first lines as they grow, so counting isn't enough."""
    for start in range(len(before)):
        if before[start:] == now[: len(before) - start]:
            return now[len(before) - start :]
    return now


def _down(arguments: argparse.Namespace) -> int:
    from workbench.clusters import control

    session = new_session()
    if bool(arguments.names) == arguments.all:
        raise BadInputError("Give either names of clusters, or --all.")
    # All names are checked before the first cluster is stopped.
    clusters = [session.cluster(name) for name in arguments.names]
    if arguments.forget:
        if arguments.all:
            raise BadInputError("--forget is for clusters by name. Give their names.")
        warnings = {one.name: finish(control.forget(one)) for one in clusters}
        lines = [". ".join(filter(None, (f"Forgotten: {name}", why))) for name, why in warnings.items()]
        return answer(arguments, {"forgotten": list(warnings), "warnings": warnings}, "\n".join(lines))
    endings = {one.name: one.ending for one in session.clusters()}
    if arguments.all:
        ended = session.stop_all()
    else:
        ended = tuple(dict.fromkeys(one.name for one in clusters))
        for name in ended:
            session.stop(name)
    become = {how: [one for one in ended if endings.get(one, "stopped") == how] for how in _ENDINGS}
    unknown = [f"Left as it is: {one.name}. {one.message}" for one in session.clusters() if one.status == "unknown"]
    done = [f"{how.capitalize()}: {', '.join(names)}{_ENDINGS[how]}" for how, names in become.items() if names]
    going = [run.id for one in become["detached"] for run in session.runs(cluster=one, status="running")]
    on = [f"Runs that go on there: {', '.join(going)}. To end one: workbench cancel {going[0]}"] if going else []
    text = "\n".join([*(done or ["No cluster is running."]), *on, *(unknown if arguments.all else ())])
    return answer(arguments, become, text)


_ENDINGS = {"stopped": "", "detached": ". It goes on there.", "dismissed": ""}
"""Endings of clusters, and the text for each."""


def new_session() -> Session:
    """Return a session, imported only when a command runs."""
    from workbench.session import Session

    return Session()


def spec_of(session: Session, line: str | Line) -> ClusterSpec:
    """Return the spec of the cluster in a line: a profile and its options, or a scheduler's address."""
    from workbench.clusters.lines import Line, naming_options, read_line

    read = line if isinstance(line, Line) else read_line(line)
    if read.cluster is not None:
        raise BadInputError(f"--on: given '{line}'. Give a profile with its options, or else --cluster {read.cluster}.")
    profile, choices = _profile_and_choices(read)
    _check_options(profile, choices)
    with naming_options(choices):
        return session.plan(profile, **choices)


def _profile_and_choices(line: Line) -> tuple[str, dict[str, Any]]:
    """Return the profile of a line and its choices: for a scheduler's address, the profile for those."""
    profile = str(line.profile)
    if ":" not in profile and not profile.endswith(".json"):
        return profile, line.choices
    from workbench.clusters.profiles.address import address_in

    return "address", {**line.choices, "address": address_in(profile)}


def _check_options(name: str, choices: Iterable[str]) -> None:
    """Raise BadInputError with the options of a profile if it has none for one of these choices."""
    from workbench.clusters.lines import option_of
    from workbench.clusters.profiles.lookup import profile, takes
    from workbench.formats import meant
    from workbench.hardware import inventory

    # The profile's own options are known without its model, which would require a request to a gateway.
    others = [each for each in choices if not takes(name, each)]
    known = profile(name).choices(inventory()).model_fields if others else {}
    for option in (option_of(each) for each in others if each not in known):
        options = [option_of(each) for each in known]
        raise BadInputError(f"{name} has no option {option}.{meant(option, options)} It has: {', '.join(options)}.")


def _line(arguments: argparse.Namespace) -> Line:
    """Return the cluster that the arguments of `up` describe."""
    from workbench.clusters.lines import Line, read_options

    return Line(arguments.profile, read_options(arguments.rest))


def check_consent(spec: ClusterSpec, yes: bool) -> None:
    """Ask for consent to this cluster if it needs any, unless `yes`.

    Raises BadInputError if the user declines, or if no one can answer.
    """
    from workbench.clusters.plan import check_agreed

    check_agreed(spec.consent, yes or agreed)


def start(
    session: Session,
    spec: ClusterSpec,
    arguments: argparse.Namespace,
    *,
    name: str | None,
    force: bool,
    own: bool = False,
) -> ClusterRecord:
    """Start a cluster and wait until it is ready. Stop it if that is interrupted, or if a command's `own` one fails."""
    record = None
    try:
        with ending_on(signal.SIGTERM, signal.SIGHUP):
            with holding_back_signals():
                # The user agreed before.
                record = session.start(spec, name=name, force=force, agreed=True)
            with shown("stages", record, arguments) as on_change:
                return session.wait(record.name, on_change)
    except (KeyboardInterrupt, SystemExit, FailedError) as err:
        # A failed cluster stays in the list, to show the reason.
        if record is not None and (own or not isinstance(err, FailedError)):
            session.stop(record.name)
            if not isinstance(err, FailedError):
                complain(f"The start of {record.name} was cancelled. Nothing of it is left.")
        raise


@contextlib.contextmanager
def own_cluster(session: Session, spec: ClusterSpec, arguments: argparse.Namespace) -> Iterator[ClusterRecord]:
    """Run a block with a cluster of its own, which stops at the end, also when the terminal is closed."""
    check_consent(spec, arguments.yes)
    with ending_on(signal.SIGTERM, signal.SIGHUP):
        record = start(session, spec, arguments, name=None, force=arguments.force, own=True)
        try:
            yield record
        except (KeyboardInterrupt, SystemExit):
            complain(f"The cluster {record.name}, which was started for this, is being stopped.")
            raise
        finally:
            session.stop(record.name)


def _until_scaled(name: str, patience: float = 30.0) -> ClusterRecord:
    from workbench.clusters import records

    deadline = time.monotonic() + patience
    record = records.read(name)
    while record.n_workers != record.n_workers_expected and record.status == "ready" and time.monotonic() < deadline:
        time.sleep(0.1)
        record = records.read(name)
    return record


def cluster_json(record: ClusterRecord) -> dict[str, Any]:
    """Return a cluster as `up --json` and `ls --json` print it.

    In bytes: `memory_limit` of each worker, and `memory_used` by all.
    """
    from workbench.clusters.records import memory_used

    values = {**record.spec.model_dump(), **record.model_dump(), "memory_used": memory_used(record)}
    return {name: values[name] for name in _FIELDS}


def add_cluster_commands(commands: Any) -> None:
    """Add the commands for clusters."""
    up = add_command(
        commands,
        "up",
        _up,
        "start a cluster, or use a scheduler that runs already, and wait until it is ready",
        epilog="Examples: workbench up cpu --workers 4, workbench up tcp://host:8786. "
        "Options of a profile: workbench up slurm --help",
        usage="workbench up PROFILE [options of PROFILE] [options]",
        # Unknown options belong to the profile, whose choices read them.
        allow_abbrev=False,
        add_help=False,
    )
    up.set_defaults(rest=[])
    add_help(up, "profile", of_profile)
    up.add_argument(
        "profile",
        metavar="PROFILE",
        help="cpu, gpu, gpus, ucx, slurm or another; or for a scheduler that runs already tcp://host:8786, "
        "tls://host:8786 or its scheduler file (.json). See: workbench hardware",
    ).completer = completions.profiles  # type: ignore[attr-defined]
    up.add_argument("--name", metavar="NAME", help="name of the cluster; one is made up otherwise")
    up.add_argument("--force", action="store_true", help=FORCE)
    add_yes(up)
    up.add_argument(
        "--code", action="store_true", help="print the Dask code that starts the same cluster, start nothing"
    )
    add_no_wait(up, "print its name at once, while it starts")
    completions.add_profile_options(up)
    up.add_argument(
        "--preview", action="store_true", help="print what would be submitted, such as the job script, start nothing"
    )

    up.add_argument("--save-as", metavar="NAME", help="save these choices as a profile of your own, start nothing")
    up.add_argument("--forget", action="store_true", help="forget PROFILE, one of your own")

    listed = add_command(commands, "ls", _ls, "list the clusters")
    listed.add_argument("--nearby", action="store_true", help="list schedulers on this machine that aren't ours yet")

    scale = add_command(commands, "scale", _scale, "change the number of workers of a cluster, or restart them")
    add_cluster_name(scale)
    scale.add_argument("workers", metavar="N", nargs="?", type=whole_number)
    scale.add_argument(
        "--adapt",
        metavar=("MIN", "MAX"),
        nargs=2,
        type=whole_number,
        help="follow the load between two bounds instead",
    )
    scale.add_argument("--force", action="store_true", help=FORCE)

    scale.add_argument("--restart", action="store_true", help="restart the workers: their memory becomes free")

    logs = add_command(commands, "logs", _logs, "print the logs of a cluster: host, scheduler and workers")
    add_cluster_name(logs)
    logs.add_argument("-f", "--follow", action="store_true", help="go on with new lines, until the cluster ends")

    down = add_command(commands, "down", _down, "stop clusters, or detach from schedulers that aren't ours")
    add_cluster_name(down, nargs="*")
    down.add_argument("--all", action="store_true", help="stop every cluster")
    down.add_argument(
        "--forget", action="store_true", help="remove the record even if it can't be ended from here and may go on"
    )


def add_no_wait(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the option that waits for nothing."""
    parser.add_argument("--no-wait", action="store_true", help=text)


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Add the option that answers questions with yes."""
    text = "don't ask: without encryption, or over UCX, others may run code as you"
    parser.add_argument("--yes", action="store_true", help=text)
