"""Commands for what is not yet run: look, forecast, calibrate."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import config
from workbench.cli.answers import answer, complain, tell
from workbench.cli.clusters import new_session, own_cluster, spec_of, up_options
from workbench.cli.runs import add_parameters, add_where, where, workload_parameters
from workbench.cli.signals import ending_on
from workbench.cli.words import add_command, check_writable
from workbench.errors import BadInputError

if TYPE_CHECKING:
    from workbench.clusters.records import ClusterRecord
    from workbench.clusters.spec import ClusterSpec
    from workbench.runs.forecasting.calibration import Calibration
    from workbench.runs.forecasting.forecast import Forecast
    from workbench.session import Session
    from workbench.workloads.contents import Contents


def _look(arguments: argparse.Namespace) -> int:
    from workbench.views.looking import Looking

    async def asked() -> Contents:
        # A path may never answer.
        with contextlib.closing(Looking()) as looking:
            server = {name: getattr(arguments, name) for name in ("anon", "endpoint_url", "token_variable")}
            return await looking.ask("look", arguments.path, **server)

    found = asyncio.run(asked())
    return answer(arguments, found, lambda terminal: terminal.show_contents(found))


def _forecast(arguments: argparse.Namespace) -> int:
    session = new_session()
    cluster, spec = _hardware_of(session, arguments)
    parameters = workload_parameters(arguments)
    found = session.forecast(arguments.workload, parameters, cluster)
    if _would_help(found) and not arguments.no_calibrate:
        complain("This hardware was never measured: that is done now, once, and takes some seconds.")
        _measured(session, arguments)
        found = session.forecast(arguments.workload, parameters, cluster)
    value = found._asdict() | {"workload": arguments.workload}
    return answer(arguments, value, lambda terminal: terminal.show_forecast(found, spec.describe()))


def _would_help(found: Forecast) -> bool:
    """Whether a calibration would tell how long it takes, where nothing else does and it can start at all."""
    possible = found.verdict not in ("won't fit", "can't run")
    return found.seconds is None and bool(found.needs.get("work")) and possible


def _hardware_of(session: Session, arguments: argparse.Namespace) -> tuple[ClusterRecord | ClusterSpec, ClusterSpec]:
    """Return what the forecast is for, and its spec."""
    from workbench.clusters.profiles import seen

    if arguments.cluster is not None:
        record = session.cluster(arguments.cluster)
        return record, record.spec
    arguments.on = where(session, arguments)
    spec = seen(spec_of(session, up_options(arguments.on)))
    return spec, spec


def _calibrate(arguments: argparse.Namespace) -> int:
    session = new_session()
    if arguments.load is not None:
        if arguments.on is not None or arguments.cluster is not None or arguments.save is not None:
            raise BadInputError("--load reads a file and measures nothing. Give it alone.")
        found = session.load_calibration(arguments.load)
    else:
        if arguments.save is not None:
            check_writable(arguments.save)
        found = _measured(session, arguments)
    if arguments.save is not None:
        with config.writing(arguments.save):
            arguments.save.write_text(found.model_dump_json(indent=2) + "\n", encoding="utf-8")
    answer(arguments, found, lambda terminal: terminal.show_calibration(found))
    return tell(f"Written to {arguments.save}.") if arguments.save is not None and not arguments.json else 0


def _measured(session: Session, arguments: argparse.Namespace) -> Calibration:
    if arguments.cluster is not None:
        with ending_on(signal.SIGTERM, signal.SIGHUP):
            return session.calibrate(arguments.cluster)
    on = up_options(arguments.on or "cpu")
    with own_cluster(session, spec_of(session, on), on, arguments) as record:
        return session.calibrate(record)


def add_forecast_commands(commands: Any) -> None:
    """Add the commands for what is not yet run."""
    forecast = add_command(
        commands,
        "forecast",
        _forecast,
        "say whether a workload fits, how long it takes and what it costs, here and elsewhere",
        epilog='Example: workbench forecast array_sum --on "cpu --workers 2" -p size=100GiB',
    )
    forecast.add_argument("workload", metavar="WORKLOAD", help="see: workbench workloads")
    add_where(forecast, "hardware as the options of up name it")
    add_parameters(forecast)
    forecast.add_argument(
        "--no-calibrate",
        action="store_true",
        help="don't measure hardware that was never measured, so nothing starts; then only earlier runs tell a time",
    )

    calibrate = add_command(
        commands,
        "calibrate",
        _calibrate,
        "measure hardware for a few seconds, so that forecasts know it",
        epilog='Example: workbench calibrate --on "cpu --workers 2" --save laptop.json',
    )
    add_where(calibrate, 'start such a cluster, measure it and stop it ("cpu")')
    calibrate.add_argument("--save", metavar="FILE", type=Path, help="write it to a file as well, for somebody else")
    calibrate.add_argument(
        "--load", metavar="FILE", type=Path, help="measure nothing; keep a colleague's file as a reference machine"
    )


def add_look(commands: Any) -> None:
    """Add the command that shows what a file holds."""
    look = add_command(commands, "look", _look, "show what a file, folder or URL holds; nothing runs")
    look.add_argument("path", metavar="PATH", help="of .npy, .npz, HDF5, NetCDF, Zarr, GRIB, TIFF, Parquet or CSV")
    look.add_argument("--anon", action="store_true", help="read a URL of s3, gs or abfs without keys")
    look.add_argument("--endpoint-url", metavar="URL", help="who serves an s3 or gs URL")
    words = "variable of the environment that holds a token for https, hf or abfs"
    look.add_argument("--token-variable", metavar="NAME", help=words)
