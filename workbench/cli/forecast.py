"""Commands that run nothing yet, or only measure: look and forecast."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.cli.answers import answer
from workbench.cli.clusters import add_yes, new_session, own_cluster, spec_of
from workbench.cli.options import add_parameters, add_where, where, workload_parameters
from workbench.cli.parsing import FORCE, add_command, add_workload_name
from workbench.cli.runs import refuse_what_wont_fit, run_on
from workbench.errors import FailedError

if TYPE_CHECKING:
    from workbench.clusters.records import ClusterRecord
    from workbench.clusters.spec import ClusterSpec
    from workbench.runs.forecasting.forecast import Forecast
    from workbench.session import Session
    from workbench.workloads.contents import Contents


def _look(arguments: argparse.Namespace) -> int:
    from workbench.views.path_process import Looking

    async def look() -> Contents:
        # A path may never answer.
        with contextlib.closing(Looking()) as looking:
            server = {name: getattr(arguments, name) for name in ("anon", "endpoint_url", "token_variable")}
            return await looking.ask("look", arguments.path, **server)

    contents = asyncio.run(look())
    return answer(arguments, contents, lambda terminal: terminal.show_contents(contents))


def _forecast(arguments: argparse.Namespace) -> int:
    if arguments.measure:
        return _measure(arguments)
    session = new_session()
    cluster, spec = _hardware_of(session, arguments)
    parameters = workload_parameters(arguments)
    forecast = session.forecast(arguments.workload, parameters, cluster)
    return _print_forecast(arguments, forecast, spec)


def _print_forecast(arguments: argparse.Namespace, forecast: Forecast, spec: ClusterSpec) -> int:
    value = forecast._asdict() | {"workload": arguments.workload}
    return answer(arguments, value, lambda terminal: terminal.show_forecast(forecast, spec.describe()))


def _hardware_of(session: Session, arguments: argparse.Namespace) -> tuple[ClusterRecord | ClusterSpec, ClusterSpec]:
    """Return the cluster or spec of the forecast, and its spec."""
    from workbench.clusters.profiles import seen

    if arguments.cluster is not None:
        record = session.cluster(arguments.cluster)
        return record, record.spec
    arguments.on = where(session, arguments)
    spec = seen(spec_of(session, arguments.on))
    return spec, spec


def _measure(arguments: argparse.Namespace) -> int:
    from workbench.runs.submit import part_of

    session, parameters = new_session(), workload_parameters(arguments)
    if arguments.cluster is not None:
        record = session.cluster(arguments.cluster)
        return _measured(session, record, parameters, arguments)
    # Everything is checked before anything starts.
    spec = spec_of(session, where(session, arguments))
    refuse_what_wont_fit(session.forecast(arguments.workload, parameters, spec), force=False)
    part_of(arguments.workload, parameters, spec)
    with own_cluster(session, spec, arguments) as record:
        return _measured(session, record, parameters, arguments)


def _measured(
    session: Session, record: ClusterRecord, parameters: Mapping[str, Any], arguments: argparse.Namespace
) -> int:
    """Measure a workload, then print its forecast."""
    run = run_on(session, lambda: session.measure(arguments.workload, parameters, record), arguments)
    if run.status != "done":
        raise FailedError(f"The measurement {run.id} is {run.status}. {run.error or ''}".strip())
    return _print_forecast(arguments, session.forecast(arguments.workload, parameters, record), record.spec)


def add_forecast_commands(commands: Any) -> None:
    """Add the command `forecast`."""
    forecast = add_command(
        commands,
        "forecast",
        _forecast,
        "say whether a workload fits, how long it takes and what it costs, here and elsewhere",
        add_help=False,
        epilog='Example: workbench forecast array_sum --on "cpu --workers 2" -p size=100GiB',
    )
    add_workload_name(forecast)
    add_where(forecast, "hardware as the options of up name it")
    add_parameters(forecast)
    text = "first run about a hundredth of it, on --cluster or on a cluster started for that"
    forecast.add_argument("--measure", action="store_true", help=text)
    forecast.add_argument("--force", action="store_true", help=f"with --measure, {FORCE}")
    add_yes(forecast)


def add_look(commands: Any) -> None:
    """Add the command that shows the contents of a file."""
    look = add_command(commands, "look", _look, "show what a file, folder or URL holds; nothing runs")
    known = "of .npy, .npz, HDF5, NetCDF, Zarr, GRIB, TIFF, Parquet, CSV or PLINK"
    look.add_argument("path", metavar="PATH", help=known)
    look.add_argument("--anon", action="store_true", help="read a URL of s3, gs or abfs without keys")
    look.add_argument("--endpoint-url", metavar="URL", help="who serves an s3 or gs URL")
    words = "variable of the environment that holds a token for https, hf or abfs"
    look.add_argument("--token-variable", metavar="NAME", help=words)
