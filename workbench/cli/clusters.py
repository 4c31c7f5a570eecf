"""Commands for clusters: up, ls, scale, restart, logs, down."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import signal
import textwrap
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from workbench.cli.answers import agreed, answer, complain, shown
from workbench.cli.signals import ending_on, holding_back_signals
from workbench.cli.words import FORCE, Parser, add_command, add_pairs, parameters_of, whole_number
from workbench.errors import BadInputError, FailedError, WorkbenchError
from workbench.threads import finish

if TYPE_CHECKING:
    from workbench.clusters.records import ClusterRecord
    from workbench.clusters.spec import ClusterSpec
    from workbench.session import Session

_TOLD = (
    *("name", "status", "profile", "scheduler_address", "n_workers", "threads_per_worker", "memory_limit", "protocol"),
    *("memory_used", "stage", "n_workers_expected", "adaptive", "jobs", "python", "dashboard_address", "created"),
    *("expires_at", "clients", "message", "warning", "devices", "why"),
)


def _up(arguments: argparse.Namespace) -> int:
    session = new_session()
    spec = spec_of(session, arguments)
    if arguments.preview and not arguments.code:
        text = spec.preview()
        if text is None:
            raise BadInputError(f"--preview: {spec.profile} submits nothing elsewhere. See what it starts with --code.")
        return answer(arguments, {"preview": text}, text.rstrip("\n"))
    if not arguments.code:
        check_consent(spec, arguments)
    return _begin(session, spec, arguments, force=arguments.force)


def _begin(session: Session, spec: ClusterSpec, arguments: argparse.Namespace, *, force: bool = False) -> int:
    """Start a cluster, or only print its code."""
    if arguments.code:
        return answer(arguments, {"code": spec.code()}, spec.code().rstrip("\n"))
    if arguments.no_wait:
        # The user agreed before.
        begun = session.start(spec, name=arguments.name, force=force, agreed=True)
        text = f"{begun.name} is starting. See how far it is: workbench ls. Stop it: workbench down {begun.name}"
        return answer(arguments, cluster_json(begun), text)
    record = start(session, spec, arguments, name=arguments.name, force=force)
    return answer(arguments, cluster_json(record), lambda terminal: terminal.show_cluster(record))


def _attach(arguments: argparse.Namespace) -> int:
    from workbench.clusters.profiles.address import spec_of

    session = new_session()
    if arguments.address is None:
        return _nearby(session, arguments)
    spec = spec_of(arguments.address, ca=arguments.ca, cert=arguments.cert, key=arguments.key)
    return _begin(session, spec, arguments)


def _keep(arguments: argparse.Namespace) -> int:
    session = new_session()
    spec = session.keep_profile(arguments.called, arguments.profile, **choices_in(arguments))
    told = {"name": arguments.called, "profile": spec.profile, "why": spec.why}
    return answer(arguments, told, f"Kept: {arguments.called}, which comes to {spec.describe()}")


def _forget(arguments: argparse.Namespace) -> int:
    new_session().forget_profile(arguments.called)
    return answer(arguments, {"forgotten": arguments.called}, f"Forgotten: {arguments.called}")


def _nearby(session: Session, arguments: argparse.Namespace) -> int:
    """List the schedulers to which the user may attach."""
    found = session.nearby()
    none = "No scheduler of yours was found on this machine. Give the address of one: workbench attach tcp://host:8786"
    return answer(arguments, [each._asdict() for each in found], "\n".join(map(str, found)) or none)


def _ls(arguments: argparse.Namespace) -> int:
    records = new_session().clusters()
    return answer(arguments, [*map(cluster_json, records)], lambda terminal: terminal.show_clusters(records))


def _scale(arguments: argparse.Namespace) -> int:
    from workbench.clusters import control

    if (arguments.workers is None) == (arguments.adapt is None):
        raise BadInputError("Give either a number of workers, or --adapt MIN MAX.")
    if arguments.adapt is None:
        finish(control.scale(arguments.name, arguments.workers, force=arguments.force))
        record = _until_scaled(arguments.name)
    else:
        record = finish(control.adapt(arguments.name, *arguments.adapt, force=arguments.force))
    bounds = f", adapting between {record.adaptive[0]} and {record.adaptive[1]}" if record.adaptive else ""
    return answer(arguments, cluster_json(record), f"{record.name}: {record.waiting}{bounds}")


def _restart(arguments: argparse.Namespace) -> int:
    from workbench.clusters import control

    record = finish(control.restart_workers(arguments.name))
    return answer(arguments, cluster_json(record), f"{record.name}: workers restarted")


def _logs(arguments: argparse.Namespace) -> int:
    from workbench.clusters import control

    logs = finish(control.logs(arguments.name))
    text = "\n\n".join(f"==> {who} <==\n{text.rstrip()}" for who, text in logs.items())
    return answer(arguments, {"logs": logs}, text)


def _down(arguments: argparse.Namespace) -> int:
    from workbench.clusters import control

    session = new_session()
    if (arguments.name is None) != arguments.all:
        raise BadInputError("Give either the name of a cluster, or --all.")
    if arguments.forget:
        if arguments.all:
            raise BadInputError("--forget is for one cluster. Give its name.")
        why = finish(control.forget(session.cluster(arguments.name)))
        told = {"forgotten": arguments.name, "may_go_on": why}
        return answer(arguments, told, ". ".join(filter(None, (f"Forgotten: {arguments.name}", why))))
    endings = {one.name: one.ending for one in session.clusters()}
    if arguments.all:
        ended = session.stop_all()
    else:
        session.stop(arguments.name)
        ended = (arguments.name,)
    become = {how: [one for one in ended if endings.get(one, "stopped") == how] for how in _ENDINGS}
    left = [f"Left as it is: {one.name}. {one.message}" for one in session.clusters() if one.status == "unknown"]
    done = [f"{how.capitalize()}: {', '.join(names)}{_ENDINGS[how]}" for how, names in become.items() if names]
    going = [run.id for one in become["detached"] for run in session.runs(cluster=one, status="running")]
    on = [f"Runs that go on there: {', '.join(going)}. To end one: workbench cancel {going[0]}"] if going else []
    text = "\n".join([*(done or ["No cluster is running."]), *on, *(left if arguments.all else ())])
    return answer(arguments, become, text)


_ENDINGS = {"stopped": "", "detached": ". It goes on there.", "dismissed": ""}
"""Endings of clusters, and the text for each."""


def new_session() -> Session:
    """Return a session, imported only when a command runs."""
    from workbench.session import Session

    return Session()


def spec_of(session: Session, arguments: argparse.Namespace) -> ClusterSpec:
    """Return the spec of the cluster for the options of `up`."""
    return session.plan(arguments.profile, **choices_in(arguments))


def choices_in(arguments: argparse.Namespace) -> Any:
    """Return the choices in the options of `up`, by name."""
    from workbench.clusters.lines import OPTIONS

    choices = {name: getattr(arguments, option[2:].replace("-", "_")) for option, name in OPTIONS.items()}
    choices["encrypt"] = False if arguments.no_encrypt else None
    return {name: value for name, value in choices.items() if value is not None} | parameters_of(
        arguments.set, "--set", "queue=gpu"
    )


def check_consent(spec: ClusterSpec, arguments: argparse.Namespace) -> None:
    """Ask for consent to this cluster if it needs any, unless --yes was given.

    Raises BadInputError if the user declines, or if no one can answer.
    """
    from workbench.clusters.plan import check_agreed, consent

    check_agreed(consent(spec), arguments.yes or agreed)


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
def own_cluster(
    session: Session, spec: ClusterSpec, on: argparse.Namespace, arguments: argparse.Namespace
) -> Iterator[ClusterRecord]:
    """Run a block with the cluster for these options of `up`; `arguments` are the command's.

    The cluster stops at the end of the block, also when the terminal is closed.
    """
    check_consent(spec, on)
    with ending_on(signal.SIGTERM, signal.SIGHUP):
        record = start(session, spec, arguments, name=on.name, force=on.force, own=True)
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

    told = {**record.spec.model_dump(), **record.model_dump(), "memory_used": memory_used(record)}
    return {name: told[name] for name in _TOLD}


def up_options(text: str) -> argparse.Namespace:
    """Parse the value of --on: a profile and options of `up`."""
    try:
        words = shlex.split(text)
    except ValueError as err:
        raise BadInputError(f"--on: given '{text}' ({err}). Give a profile and options of `workbench up`.") from err
    # The options are those of `up`, and so is their help.
    parser = Parser(prog="workbench up", add_help=False)
    add_up_options(parser)
    try:
        return parser.parse_args(words)
    except BadInputError as err:
        raise BadInputError(f"--on: {err}") from err


def add_cluster_commands(commands: Any) -> None:
    """Add the commands for clusters."""
    up = add_command(
        commands,
        "up",
        _up,
        "start a cluster and wait until it is ready",
        epilog="Example: workbench up cpu --workers 4. Options of a profile: workbench up slurm --help",
        add_help=False,
    )
    up.add_argument("-h", "--help", action=_Help, nargs=0, help="show this message, or after PROFILE its options")
    add_up_options(up)
    up.add_argument(
        "--code", action="store_true", help="print the Dask code that starts the same cluster, start nothing"
    )
    add_no_wait(up, "print its name at once, while it starts")
    up.add_argument(
        "--preview", action="store_true", help="print what would be submitted, such as the job script, start nothing"
    )

    attach = add_command(
        commands,
        "attach",
        _attach,
        "use a Dask scheduler that runs already; `down` detaches, and the scheduler goes on",
        epilog="Example: workbench attach tcp://login-1:8786 --name there",
    )
    attach.add_argument(
        "address",
        metavar="ADDRESS",
        nargs="?",
        help="tcp://host:8786, tls://host:8786 or a scheduler file (.json); left out: list those on this machine",
    )
    attach.add_argument("--ca", metavar="FILE", help="certificate of who signed the scheduler's, for tls://")
    attach.add_argument("--cert", metavar="FILE", help="certificate of yours, for tls://")
    attach.add_argument("--key", metavar="FILE", help="key of your certificate, for tls://")
    attach.add_argument("--name", metavar="NAME", help="what to call it; a name is made up otherwise")
    add_no_wait(attach, "print its name at once, while it is asked what it has")
    attach.add_argument("--code", action="store_true", help="print the Dask code that connects to it, do nothing")

    keep = add_command(
        commands,
        "keep",
        _keep,
        "keep a profile with these choices under a name, which then is a profile of your own",
        epilog="Example: workbench keep night cpu --workers 2 --memory 8GiB",
    )
    keep.add_argument("called", metavar="NAME")
    add_choice_options(keep)

    forget = add_command(commands, "forget", _forget, "forget a profile that was kept")
    forget.add_argument("called", metavar="NAME")

    add_command(commands, "ls", _ls, "list the clusters")

    scale = add_command(commands, "scale", _scale, "change the number of workers of a cluster")
    scale.add_argument("name", metavar="NAME")
    scale.add_argument("workers", metavar="N", nargs="?", type=whole_number)
    scale.add_argument(
        "--adapt",
        metavar=("MIN", "MAX"),
        nargs=2,
        type=whole_number,
        help="follow the load between two bounds instead",
    )
    scale.add_argument("--force", action="store_true", help=FORCE)

    restart = add_command(commands, "restart", _restart, "restart the workers of a cluster")
    restart.add_argument("name", metavar="NAME")

    logs = add_command(commands, "logs", _logs, "print the logs of a cluster: host, scheduler and workers")
    logs.add_argument("name", metavar="NAME")

    down = add_command(commands, "down", _down, "stop a cluster or detach from it, or all of them")
    down.add_argument("name", metavar="NAME", nargs="?")
    down.add_argument("--all", action="store_true", help="stop every cluster")
    down.add_argument(
        "--forget", action="store_true", help="remove its record even if it can't be ended from here and may go on"
    )


def add_choice_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe a cluster: a profile and its choices."""
    parser.add_argument(
        "profile", metavar="PROFILE", help="cpu, gpu, gpus, ucx, slurm or another; see: workbench hardware"
    )
    parser.add_argument("--workers", metavar="N", type=whole_number, help="worker processes")
    parser.add_argument("--threads", metavar="N", type=whole_number, help="threads of each worker")
    parser.add_argument("--memory", metavar="SIZE", help="memory of all workers together, such as 8GiB")
    parser.add_argument("--devices", metavar="LIST", help="GPUs by index or UUID, such as 0,2")
    parser.add_argument("--device-memory", metavar="SIZE", help="memory of a GPU beyond which blocks move to the host")
    parser.add_argument("--rmm-pool", metavar="SIZE", help="memory of each GPU that RMM takes at the start")
    parser.add_argument("--ucx-tls", metavar="LIST", help="transports that UCX may use, such as tcp,cuda_copy,cuda_ipc")
    parser.add_argument("--interface", metavar="NAME", help="network interface for UCX, such as ib0, or mlx5_0:1")
    parser.add_argument("--no-encrypt", action="store_true", help="speak plain TCP instead of TLS")
    add_pairs(parser, "--set", help="any other choice that the profile has")
    parser.add_argument("--python", metavar="PATH", help="Python of the environment that the cluster runs in")


class _Help(argparse.Action):
    """Action that prints the options of the profile given before `--help`, or else the help of the command."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        name = getattr(namespace, "profile", None)
        if name is None:
            parser.print_help()
            parser.exit()
        from workbench.clusters.lines import options_of
        from workbench.clusters.profiles import profile
        from workbench.hardware import inventory

        here = inventory()
        try:
            found = profile(name)
            options = options_of(found, here)
        except WorkbenchError as err:
            parser.error(str(err).rstrip("."))
        print(f"usage: {parser.prog} {name} [options]\n\n{found.summary(here)}\n\noptions of {name}:")
        for option in options:
            default = f" Default: {option.default}." if option.default else ""
            text = textwrap.fill(f"{option.description}{default}", 80)
            print(f"  {option.name}")
            print(textwrap.indent(text, " " * 8))
        print(f"\nMore options, for any profile: {parser.prog} --help")
        parser.exit()


def add_up_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `up`: a profile, its choices, and the way to start it."""
    add_choice_options(parser)
    parser.add_argument("--name", metavar="NAME", help="name of the cluster; one is made up otherwise")
    parser.add_argument("--force", action="store_true", help=FORCE)
    add_yes(parser)


def add_no_wait(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the option that waits for nothing."""
    parser.add_argument("--no-wait", action="store_true", help=text)


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Add the option that answers questions with yes."""
    said = "don't ask: without encryption, or over UCX, others may run code as you"
    parser.add_argument("--yes", action="store_true", help=said)
