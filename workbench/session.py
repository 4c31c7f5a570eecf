"""The common interface of all front ends: every request of a user, as methods of one class.

No Jupyter and no Bokeh here. A session has no state of its own: the state is in the data folder, so all
sessions in all processes see the same.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from workbench import config, hardware, named_choices
from workbench.clusters import budget, control, environments, launch, nearby, plan, records
from workbench.clusters.choices import choosing
from workbench.clusters.profiles import saved_profiles
from workbench.clusters.profiles.lookup import profiles as offered_profiles
from workbench.clusters.spec import ClusterSpec
from workbench.clusters.start import Cluster, record_of
from workbench.credentials import by_command, confirm
from workbench.jobs.ending import CANCEL_PATIENCE
from workbench.runs import array_budget, background_saves, exchange, store
from workbench.runs.comparing import comparisons
from workbench.threads import finish, in_thread, synchronous
from workbench.workloads import builtin, lookup, presets
from workbench.workloads.listing import Broken, listed
from workbench.workloads.user_functions import functions

if TYPE_CHECKING:
    from distributed import Client

    from workbench.clusters.budget import Budget
    from workbench.clusters.environments import Environment
    from workbench.clusters.profiles.lookup import Offered
    from workbench.clusters.records import ClusterRecord
    from workbench.hardware import Inventory
    from workbench.runs.background_saves import Saving
    from workbench.runs.comparing.comparisons import Comparison, Request
    from workbench.runs.comparing.table import Summary
    from workbench.runs.forecasting.forecast import Forecast
    from workbench.runs.run import Run
    from workbench.storage.browsing import Folder
    from workbench.workloads.contents import Contents
    from workbench.workloads.registry import Template

T = TypeVar("T")

_LIVENESS_INTERVAL = 1.0  # seconds between two checks that hosts and runners are alive
_DEBOUNCE = 30  # milliseconds in which changes are gathered
_STEP = 10  # milliseconds without a change that end the gathering


_KINDS: Mapping[str, Literal["cluster", "run", "comparison"]] = {
    "clusters": "cluster",
    "runs": "run",
    "comparisons": "comparison",
}


class Change(NamedTuple):
    """A cluster, a run or a comparison that is changed, new or gone."""

    kind: Literal["cluster", "run", "comparison"]
    name: str


class Session:
    """All actions of the sidebar, the panels and the command line.

    Methods return when the action is complete, also in a notebook with its running event loop. An event loop that must
    not block, such as a server's, uses the coroutine functions of `control`, and threads. Only `changes`, which never
    ends, is asynchronous itself.

    An `inventory` argument is the result of `hardware`: it saves another reading of the machine.
    """

    control = control

    hardware = staticmethod(hardware.inventory)

    def profiles(self, inventory: Inventory | None = None, /) -> tuple[Offered, ...]:
        """Return all profiles; unavailable ones give the reason."""
        return offered_profiles(inventory or self.hardware())

    def environments(self) -> tuple[Environment, ...]:
        """Return the Python environments that a cluster can run in."""
        return environments.environments()

    def budget(self, inventory: Inventory | None = None, /) -> Budget:
        """Return the memory that is left to promise."""
        return budget.budget(inventory or self.hardware(), records.read_all())

    @choosing
    def plan(self, profile: str, inventory: Inventory | None = None, /, **choices: Any) -> ClusterSpec:
        """Return a cluster spec that matches profile, hardware and choices; `spec.why` explains it. Nothing starts.

        Parameters
        ----------
        profile
            cpu, gpu, gpus, ucx, address, or another of `workbench.clusters.profiles`.
        **choices
            As in `AllChoices`.
        """
        inventory = inventory or self.hardware()
        memory = self.budget(inventory)
        return plan.plan(profile, inventory, promised=memory.promised, held=memory.held, **choices)

    start = staticmethod(launch.launch)
    confirm = staticmethod(confirm)

    def keep_profile(self, name: str, profile: str, **choices: Any) -> ClusterSpec:
        """Save choices of a profile as a profile of the user's; return its current spec.

        Raises BadInputError if the name or the choices are invalid; nothing is saved then.
        """
        self.plan(profile, **choices)
        saved_profiles.keep(name, profile, choices)
        return self.plan(name)

    forget_profile = staticmethod(saved_profiles.forget)
    nearby = staticmethod(nearby.schedulers)

    clusters = staticmethod(records.read_all)
    cluster = staticmethod(records.read)
    wait = staticmethod(synchronous(control.wait))
    stop_all = staticmethod(synchronous(control.stop_all))

    def stop(self, name: str) -> None:
        """Stop a cluster, cancel its start, or dismiss one that failed or is unreachable."""
        finish(control.stop(self.cluster(name)))

    def workloads(self, *, wait: bool = True) -> tuple[Template, ...]:
        """Return all workloads: built-in, from packages, and the user's. Without `wait`, skip those not loaded yet."""
        return (*builtin.templates(), *listed(wait=wait).workloads)

    def broken_workloads(self, *, wait: bool = True) -> tuple[Broken, ...]:
        """Return files and packages with broken workloads, and the reasons."""
        return listed(wait=wait).broken

    untrusted = staticmethod(named_choices.untrusted)

    def trust(self, sha: str, folder: Path | None = None) -> None:
        """Use the definitions of a folder until they change; `sha` is the hash of the version the user saw."""
        named_choices.trust_folder(folder or Path.cwd(), sha)

    workload = staticmethod(lookup.template)

    functions = staticmethod(functions)

    def keep_preset(self, workload: str, name: str, parameters: Mapping[str, Any]) -> bool:
        """Save parameters of a workload as a preset of the user's; return True if it replaced another.

        Raises BadInputError if the name or the parameters are invalid; nothing is saved then.
        """
        template = self.workload(workload)
        values = {key: value for key, value in parameters.items() if value not in (None, "")}
        # Any memory will do, for sizes that are fractions of it.
        checked = template.validate(values, memory=2**30)
        return presets.keep(template.reference, template.offered, name, checked.given)

    def forget_preset(self, workload: str, name: str) -> None:
        """Remove a saved preset."""
        presets.forget(self.workload(workload).reference, name)

    def look(
        self, path: str, *, anon: bool = False, endpoint_url: str | None = None, token_variable: str | None = None
    ) -> Contents:
        """Return the contents of a file, folder or URL: arrays, dimensions, and possible selections. Nothing starts."""
        from workbench.storage.servers import options_of
        from workbench.workloads.contents import look

        server = {"anon": anon, "endpoint_url": endpoint_url, "token_variable": token_variable}
        return look(path, options_of("look", path, server))

    def browse(
        self, path: str, *, anon: bool = False, endpoint_url: str | None = None, token_variable: str | None = None
    ) -> Folder:
        """Return the contents of a local or remote folder, or of a file's folder, to choose a file."""
        from workbench.storage.browsing import browse
        from workbench.storage.servers import options_of

        server = {"anon": anon, "endpoint_url": endpoint_url, "token_variable": token_variable}
        return browse(path, options_of("browse", path, server))

    def write_example(self, path: str) -> None:
        """Write a small example to a path where nothing exists: `example.npy`, or `example.py` with a function."""
        from workbench.workloads.examples import write_example

        write_example(path)

    def forecast(
        self,
        workload: str,
        parameters: Mapping[str, Any],
        cluster: str | ClusterRecord | Cluster | Client | ClusterSpec | None = None,
    ) -> Forecast:
        """Return the expected memory, time and cost of a workload, and whether it fits on this cluster.

        Nothing starts.
        """
        from workbench.runs.forecasting.forecast import forecast

        on = cluster if cluster is None or isinstance(cluster, ClusterSpec) else record_of(cluster)
        return forecast(self.workload(workload), parameters, on)

    def measure(
        self,
        workload: str,
        parameters: Mapping[str, Any],
        cluster: str | ClusterRecord | Cluster | Client,
    ) -> Run:
        """Run about a hundredth of a workload, so that forecasts know its speed on a cluster; return at once."""
        from workbench.runs.submit import measure

        inventory = self.hardware().model_dump(mode="json")
        return measure(workload, parameters, record_of(cluster), inventory=inventory)

    def run(
        self,
        workload: str,
        parameters: Mapping[str, Any],
        cluster: str | ClusterRecord | Cluster | Client,
        *,
        force: bool = False,
        settings: Mapping[str, Any] | str | None = None,
    ) -> Run:
        """Start a workload on a cluster and return at once. With `force`, start it even if it won't fit.

        `settings` are Dask's, for this run: {"array.rechunk.threshold": 5}, or a text of KEY=VALUE.
        """
        from workbench.runs.submit import submit

        inventory = self.hardware().model_dump(mode="json")
        return submit(workload, parameters, record_of(cluster), inventory=inventory, force=force, settings=settings)

    runs = staticmethod(store.select)
    count_runs = staticmethod(store.count)

    mark_run = staticmethod(store.mark)
    show = staticmethod(store.find)

    def log(self, run: str) -> str:
        """Return the end of the output of the run's process, tracebacks included."""
        return config.read_tail(store.folder(self.show(run).id) / "log.txt")

    def cancel(self, run: str) -> Run:
        """Request the end of a run; it has ended when `wait_run` returns."""
        from workbench.runs.submit import cancel

        return cancel(run)

    def wait_run(
        self,
        run: str,
        on_change: Callable[[Run], None] | None = None,
        *,
        timeout: float | None = None,
    ) -> Run:
        """Return the run when it has ended, or its current state after `timeout` seconds."""
        from workbench.runs.submit import finish

        return finish(run, on_change, timeout=timeout)

    def export_run(self, run: str, path: str | Path, *, replace: bool = False, with_answers: bool = False) -> Path:
        """Write a finished run as one zip file, which `import_run` reads on any machine, and return its path.

        With `with_answers`, include the arrays stored with it, but not those saved elsewhere, which `run.answers.apart`
        lists.
        """
        return exchange.export_run(self.show(run), Path(path), replace=replace, with_answers=with_answers)

    def import_run(self, path: str | Path) -> Run:
        """Take in a run from a file that `export_run` wrote, on any machine, and return it."""
        return exchange.import_run(Path(path))

    def save_run(
        self, run: str, path: str | Path, kind: str | None = None, *, only: Sequence[str] = (), replace: bool = False
    ) -> Saving:
        """Start to save a run's answer, or `only` some arrays of it, and return at once; `saving` reports the progress.

        `kind` is one of those of `workbench.save`, which waits; without it the path's extension decides.
        """
        return background_saves.start(self.show(run), path, kind, only=only, replace=replace)

    def cancel_saving(self, run: str) -> Saving:
        """Request the end of the current `save_run`, which removes half-written data."""
        return background_saves.cancel(self.show(run).id)

    room = staticmethod(array_budget.room)
    delete_run = staticmethod(store.delete)

    def compare(
        self,
        workload: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        on: Sequence[str] | None = None,
        agreed: bool | Callable[[str], bool] = False,
        judged: bool = False,
        **options: Any,
    ) -> Comparison:
        """Start to compare architectures and return at once; `wait_comparison` reports the progress.

        Parameters
        ----------
        parameters
            Parameters of the workload, by name.
        on
            Lines such as 'cpu --workers 2 --threads 1', or '--cluster NAME' for a running one.
            'numpy' and 'cupy' are rows without Dask. Without any, those of the preset that `parameters` names, or cpu.
        agreed
            True if the user agrees to the risks, such as UCX that listens on all network interfaces, or a function
            that asks.
        judged
            Refuse, before anything starts, too few rows or repeats for a limit such as `--fail-if-slower`.
        options
            `sweep` (values by name), `repeats` and `warmup`; see
            `workbench.runs.comparing.comparisons.Request`.
        """
        from workbench.runs.comparing.compare import submit

        return submit(*self._to_compare(workload, parameters, on, options), agreed=agreed, judged=judged)

    def forecast_comparison(
        self, workload: str, parameters: Mapping[str, Any] | None = None, *, on: Sequence[str] | None, **options: Any
    ) -> str:
        """Return one line: the number of runs of `compare`, and about how long they take. Nothing starts."""
        from workbench.runs.comparing.compare import forecast_comparison

        return forecast_comparison(*self._to_compare(workload, parameters, on, options))

    def _to_compare(
        self,
        workload: str,
        parameters: Mapping[str, Any] | None,
        on: Sequence[str] | None,
        options: Mapping[str, Any],
    ) -> tuple[Request, Inventory]:
        from workbench.runs.comparing.compare import read_request, usual_lines

        inventory, parameters = self.hardware(), parameters or {}
        on = usual_lines(workload, parameters, inventory) if on is None else on
        return read_request({"workload": workload, "parameters": parameters, "on": on, **options}), inventory

    def compare_runs(self, runs: Sequence[str]) -> Comparison:
        """Compare past runs, or all runs of a name in one row, with the settings in which they differ."""
        from workbench.runs.comparing.past import compare_runs

        return compare_runs(runs)

    comparison = staticmethod(comparisons.find)
    delete_comparison = staticmethod(comparisons.delete)
    comparisons = staticmethod(comparisons.select)

    def summary(self, comparison: str | Comparison) -> Summary:
        """Return rows with ratios, agreement and verdict of a comparison, which may still be running."""
        from workbench.runs.comparing.table import summarise

        return summarise(self.comparison(comparison) if isinstance(comparison, str) else comparison)

    def cancel_comparison(self, name: str) -> Comparison:
        """Request the end of a comparison: its clusters and runs end, its measurements stay."""
        return comparisons.cancel(self.comparison(name).id)

    def wait_comparison(
        self,
        name: str,
        on_change: Callable[[Comparison], None] | None = None,
        *,
        timeout: float | None = None,
    ) -> Comparison:
        """Return the comparison when it has ended, or its current state after `timeout` seconds."""
        from workbench.runs.comparing.compare import finish

        return finish(name, on_change, timeout=timeout)

    async def changes(self) -> AsyncIterator[set[Change]]:
        """Yield changed clusters, runs and comparisons at once, until the caller stops.

        Nothing that happens after the first `anext` is awaited is missed; the caller has to read the earlier state.
        """
        import watchfiles

        folder = config.data_folder().resolve()
        for name in ("clusters", "runs", "comparisons"):
            (folder / name).mkdir(exist_ok=True, mode=0o700)
        ended = asyncio.Event()
        liveness = asyncio.create_task(_keep_true())
        try:
            async for events in watchfiles.awatch(
                folder,
                watch_filter=lambda _, path: change_at(folder, Path(path)) is not None,
                debounce=_DEBOUNCE,
                step=_STEP,
                stop_event=ended,
            ):
                yield {change for _, path in events if (change := change_at(folder, Path(path))) is not None}
        finally:
            ended.set()
            liveness.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await liveness


@by_command()
def run(workload: str, cluster: str | Cluster | Client, /, **parameters: Any) -> Run:
    """Run a workload on a cluster, given by name, and wait for the answer; an interrupt cancels it.

    A run that fails is returned, too: its `status` is "failed", and its `error` says why.

    Examples
    --------
    >>> workbench.run("array_sum", "calm-otter", size="256MiB").result
    {'value': 92258885.28...}
    """
    session = Session()
    started = session.run(workload, parameters, cluster)
    return _finished(started.id, session.wait_run, session.cancel)


def _finished(id: str, wait: Callable[..., T], cancel: Callable[[str], T]) -> T:
    """Return the ended run or comparison; cancel it if the wait is interrupted."""
    try:
        return wait(id)
    except KeyboardInterrupt:
        cancel(id)
        wait(id, timeout=CANCEL_PATIENCE)
        raise


@by_command()
def compare(
    workload: str, /, *, on: Sequence[str] | None = None, parameters: Mapping[str, Any] | None = None, **options: Any
) -> Summary:
    """Compare architectures and wait for the table; an interrupt ends it cleanly.

    Examples
    --------
    >>> workbench.compare("array_sum", on=["cpu --workers 1", "cpu --workers 2"]).verdict
    'cpu --workers 2 is the fastest (0.61 s), 1.9 times as fast as cpu --workers 1.'
    """
    session = Session()
    started = session.compare(workload, parameters, on=on, **options)
    return session.summary(_finished(started.id, session.wait_comparison, session.cancel_comparison))


def change_at(folder: Path, path: Path) -> Change | None:
    """Return the cluster, run or comparison that a changed file at `path` belongs to, or None."""
    try:
        parts = path.relative_to(folder).parts
    except ValueError:
        return None
    if len(parts) < 2 or parts[1].startswith("."):
        return None
    kind = _KINDS.get(parts[0])
    is_record = parts[2:] in ((), ("record.json",)) or (kind == "run" and parts[2] == "marks" and len(parts) == 4)
    return Change(kind, parts[1]) if kind is not None and is_record else None


async def _keep_true() -> None:
    """Check regularly that hosts and runners are alive; this records dead ones, which `changes` then yields."""
    while True:
        await in_thread(_settle)
        await asyncio.sleep(_LIVENESS_INTERVAL)


def _settle() -> None:
    records.read_all()
    store.listed()
