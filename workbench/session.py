"""What the three faces share: everything that a person can ask for, as methods of one class.

No Jupyter, no Panel and no Bokeh here. A session holds nothing: the state is in the data folder, so any number of
them, in any number of processes, see the same.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, Unpack

from workbench import config, hardware, kept
from workbench.clusters import budget, control, environments, launch, nearby, plan, profiles, records
from workbench.clusters.choices import Choices, choosing
from workbench.clusters.profiles import own
from workbench.clusters.spec import ClusterSpec
from workbench.clusters.start import Cluster, record_of
from workbench.credentials import by_command, confirm
from workbench.runs import exchange, room, savings, store
from workbench.runs.comparing import comparisons
from workbench.threads import finish, in_thread, synchronous
from workbench.workloads import presets, registry
from workbench.workloads.listing import Broken, listed
from workbench.workloads.own import functions

if TYPE_CHECKING:
    from distributed import Client

    from workbench.clusters.budget import Budget
    from workbench.clusters.environments import Environment
    from workbench.clusters.profiles import Offered
    from workbench.clusters.records import ClusterRecord
    from workbench.hardware import Inventory
    from workbench.runs.comparing.comparisons import Comparison, Request
    from workbench.runs.comparing.table import Summary
    from workbench.runs.forecasting.forecast import Forecast
    from workbench.runs.run import Run
    from workbench.runs.savings import Saving
    from workbench.storage.browsing import Folder
    from workbench.workloads.contents import Contents
    from workbench.workloads.registry import Template

T = TypeVar("T")

_LIVENESS_INTERVAL = 1.0  # seconds between two looks at whether hosts and runners are alive
_CANCEL_PATIENCE = 20.0  # seconds
_DEBOUNCE = 30  # milliseconds in which changes are gathered
_STEP = 10  # milliseconds without a change that end the gathering


_KINDS: Mapping[str, Literal["cluster", "run", "comparison"]] = {
    "clusters": "cluster",
    "runs": "run",
    "comparisons": "comparison",
}


class Change(NamedTuple):
    """A cluster, a run or a comparison that is no longer as it was: changed, new or gone."""

    kind: Literal["cluster", "run", "comparison"]
    name: str


class Session:
    """All that the sidebar, the panels and the command line can do.

    Methods return when it is done, also in a notebook, whose event loop runs. An event loop that must not wait, as that
    of a server, uses the coroutine functions of `control`, and threads. Only `changes`, which never ends, is
    asynchronous itself.

    Where a method takes an `inventory`, that is what `hardware` found: it saves another reading of the machine.
    """

    control = control

    hardware = staticmethod(hardware.inventory)

    def profiles(self, inventory: Inventory | None = None, /) -> tuple[Offered, ...]:
        """All profiles; those that can't be had say why."""
        return profiles.profiles(inventory or self.hardware())

    def environments(self) -> tuple[Environment, ...]:
        """Pythons that a cluster can run in."""
        return environments.environments()

    def budget(self, inventory: Inventory | None = None, /) -> Budget:
        """Memory that is left to promise."""
        return budget.budget(inventory or self.hardware(), records.read_all())

    @choosing
    def plan(self, profile: str, inventory: Inventory | None = None, /, **choices: Unpack[Choices]) -> ClusterSpec:
        """Spec of a cluster that matches profile, hardware and choices; `spec.why` explains it. Nothing starts.

        Parameters
        ----------
        profile
            cpu, gpu, gpus, ucx, address, or another of `workbench.clusters.profiles`.
        **choices
            As in `AllChoices`.
        """
        inventory = inventory or self.hardware()
        left = self.budget(inventory)
        return plan.plan(profile, inventory, promised=left.promised, held=left.held, **choices)

    start = staticmethod(launch.launch)
    confirm = staticmethod(confirm)

    def keep_profile(self, name: str, profile: str, **choices: Any) -> ClusterSpec:
        """Keep choices of a profile under a name, which then is a profile of this person's; what it comes to now.

        Raises BadInputError where name or choices can't be used; nothing is kept then.
        """
        self.plan(profile, **choices)
        own.keep(name, profile, choices)
        return self.plan(name)

    forget_profile = staticmethod(own.forget)
    nearby = staticmethod(nearby.schedulers)

    clusters = staticmethod(records.read_all)
    cluster = staticmethod(records.read)
    wait = staticmethod(synchronous(control.wait))

    scale = staticmethod(synchronous(control.scale))
    adapt = staticmethod(synchronous(control.adapt))
    restart_workers = staticmethod(synchronous(control.restart_workers))
    logs = staticmethod(synchronous(control.logs))
    stop_all = staticmethod(synchronous(control.stop_all))

    def stop(self, name: str) -> None:
        """Stop a cluster, cancel its start, or dismiss one that failed or was lost."""
        finish(control.stop(self.cluster(name)))

    def forget(self, name: str) -> str | None:
        """Remove the record of a cluster that can't be ended from here, after a try; why it may go on, or None."""
        return finish(control.forget(self.cluster(name)))

    def workloads(self, *, wait: bool = True) -> tuple[Template, ...]:
        """All workloads: ours, those of packages, and a person's; without `wait` those only that are known by now."""
        return (*registry.templates(), *listed(wait=wait).workloads)

    def broken_workloads(self, *, wait: bool = True) -> tuple[Broken, ...]:
        """Files and packages whose workloads can't be had, and why."""
        return listed(wait=wait).broken

    untrusted = staticmethod(kept.untrusted)

    def trust(self, sha: str, folder: Path | None = None) -> None:
        """Use what a folder defines from now on, until it changes; `sha` is that of what the user saw."""
        kept.trust_folder(folder or Path.cwd(), sha)

    workload = staticmethod(registry.template)

    functions = staticmethod(functions)

    def keep_preset(self, workload: str, name: str, parameters: Mapping[str, Any]) -> bool:
        """Keep parameters of a workload under a name, which then is a preset of this person's; whether one is replaced.

        Raises BadInputError where name or parameters can't be used; nothing is kept then.
        """
        chosen = self.workload(workload)
        given = {key: value for key, value in parameters.items() if value not in (None, "")}
        # Some memory, for sizes that are fractions of it.
        checked = chosen.validate(given, memory=2**30)
        return presets.keep(chosen.reference, chosen.offered, name, checked.given)

    def forget_preset(self, workload: str, name: str) -> None:
        """Forget a preset that was kept."""
        presets.forget(self.workload(workload).reference, name)

    def look(
        self, path: str, *, anon: bool = False, endpoint_url: str | None = None, token_variable: str | None = None
    ) -> Contents:
        """What a file, folder or URL holds: arrays, dimensions, and what can be chosen of them. Nothing starts."""
        from workbench.storage.servers import options_of
        from workbench.workloads.contents import look

        server = {"anon": anon, "endpoint_url": endpoint_url, "token_variable": token_variable}
        return look(path, options_of("look", path, server))

    def browse(
        self, path: str, *, anon: bool = False, endpoint_url: str | None = None, token_variable: str | None = None
    ) -> Folder:
        """Return what lies in a folder, here or behind a URL, or beside a file: for who looks for one."""
        from workbench.storage.browsing import browse
        from workbench.storage.servers import options_of

        server = {"anon": anon, "endpoint_url": endpoint_url, "token_variable": token_variable}
        return browse(path, options_of("browse", path, server))

    def write_example(self, path: str) -> None:
        """Write a small example where nothing is yet: `example.npy`, or `example.py` with a function."""
        from workbench.workloads.examples import write_example

        write_example(path)

    def forecast(
        self,
        workload: str,
        parameters: Mapping[str, Any],
        cluster: str | ClusterRecord | Cluster | Client | ClusterSpec | None = None,
    ) -> Forecast:
        """Return what it would need, and on this cluster: will it fit, how long will it take, what will it cost.

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
        """Start a run of about a hundredth of a workload, so that forecasts know how long it takes on a cluster."""
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
        """Start a workload on a cluster and return at once, with `force` also where it won't fit.

        `settings` are Dask's, for this run: {"array.rechunk.threshold": 5}, or a text of KEY=VALUE.
        """
        from workbench.runs.submit import submit

        inventory = self.hardware().model_dump(mode="json")
        return submit(workload, parameters, record_of(cluster), inventory=inventory, force=force, settings=settings)

    runs = staticmethod(store.select)
    count_runs = staticmethod(store.count)

    mark_run = staticmethod(store.mark)
    show = staticmethod(store.find)

    def diagnosed(self, run: Run) -> Run:
        """`run` with where its time went; of one that ended just now this comes a moment after its answer."""
        from workbench.runs.explaining.diagnosis import awaited

        return awaited(run)

    def log(self, run: str) -> str:
        """Return the end of what the run's process printed, tracebacks included."""
        return config.read_tail(store.folder(self.show(run).id) / "log.txt")

    def cancel(self, run: str) -> Run:
        """Ask a run to end; it has ended when `wait_run` returns."""
        from workbench.runs.submit import cancel

        return cancel(run)

    def wait_run(
        self,
        run: str,
        on_change: Callable[[Run], None] | None = None,
        *,
        timeout: float | None = None,
    ) -> Run:
        """Run when it has ended, or as it is after `timeout` seconds."""
        from workbench.runs.submit import finish

        return finish(run, on_change, timeout=timeout)

    def export_run(self, run: str, path: str | Path, *, replace: bool = False, with_answers: bool = False) -> Path:
        """Write a run that has ended as one zip file, which `import_run` reads on any machine, and return its path.

        `with_answers` says whether the arrays that are kept with it go along. What is only saved elsewhere does not:
        `run.answers.apart` says what that is.
        """
        return exchange.export_run(self.show(run), Path(path), replace=replace, with_answers=with_answers)

    def save_run(
        self, run: str, path: str | Path, kind: str | None = None, *, only: Sequence[str] = (), replace: bool = False
    ) -> Saving:
        """Start to save a run's answer, or `only` some arrays of it, and return at once; `saving` tells how it goes on.

        `kind` is one of those of `workbench.save`, which waits; without it the ending says it.
        """
        return savings.start(self.show(run), path, kind, only=only, replace=replace)

    def saving(self, run: str) -> Saving:
        """Return what `save_run` is doing or did last: how many blocks are written, and how it ended."""
        return savings.get(self.show(run).id)

    def cancel_saving(self, run: str) -> Saving:
        """Ask what `save_run` began to end; nothing half-written stays."""
        return savings.cancel(self.show(run).id)

    def import_run(self, file: str | Path | IO[bytes], *, new_id: bool = False, max_size: int | None = None) -> Run:
        """Take in a run that `export_run` wrote; `new_id` gives it another id where its own is taken.

        `max_size` is how many bytes it may be unpacked to, 2 GiB by default, and take in memory, 256 MiB by default.
        """
        path = Path(file) if isinstance(file, str) else file
        return exchange.import_run(path, new_id=new_id, max_size=max_size)

    room = staticmethod(room.room)
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
        """Start to compare architectures and return at once; `wait_comparison` tells how it goes on.

        Parameters
        ----------
        parameters
            Those of the workload, by name.
        on
            Lines such as 'cpu --workers 2 --threads 1', or '--cluster NAME' for one that runs.
            'numpy' and 'cupy' are rows without Dask. Without any, those of the preset that `parameters` names, or cpu.
        agreed
            Whether a person agrees to what starts, such as UCX that listens on all network interfaces, or a function
            that asks.
        judged
            Refuse, before anything starts, too few rows or repeats for a limit such as of `--fail-if-slower`.
        options
            `sweep` (values by name), `repeats` and `warmup`; see
            `workbench.runs.comparing.comparisons.Request`.
        """
        from workbench.runs.comparing.compare import submit

        return submit(*self._to_compare(workload, parameters, on, options), agreed=agreed, judged=judged)

    def forecast_comparison(
        self, workload: str, parameters: Mapping[str, Any] | None = None, *, on: Sequence[str] | None, **options: Any
    ) -> str:
        """Return one line: how many runs `compare` would make, and about how long they take. Nothing starts."""
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
        """Put runs of the past beside one another, with that in which they differ."""
        from workbench.runs.comparing.past import compare_runs

        return compare_runs(runs)

    def compare_groups(self, names: Sequence[str]) -> Comparison:
        """Put groups of runs beside one another, each of all runs of one name."""
        from workbench.runs.comparing.past import compare_groups

        return compare_groups(names)

    comparison = staticmethod(comparisons.find)
    delete_comparison = staticmethod(comparisons.delete)
    comparisons = staticmethod(comparisons.select)

    def summary(self, comparison: str | Comparison) -> Summary:
        """Rows with ratios, agreement and verdict of a comparison, which may be going on."""
        from workbench.runs.comparing.table import summarise

        return summarise(self.comparison(comparison) if isinstance(comparison, str) else comparison)

    def cancel_comparison(self, name: str) -> Comparison:
        """Ask a comparison to end: what it started is stopped, what it measured is kept."""
        from workbench.runs.comparing.compare import cancel

        return cancel(self.comparison(name).id)

    def wait_comparison(
        self,
        name: str,
        on_change: Callable[[Comparison], None] | None = None,
        *,
        timeout: float | None = None,
    ) -> Comparison:
        """Comparison when it has ended, or as it is after `timeout` seconds."""
        from workbench.runs.comparing.compare import finish

        return finish(name, on_change, timeout=timeout)

    async def changes(self) -> AsyncIterator[set[Change]]:
        """Clusters, runs and comparisons that changed, as soon as they do, for as long as somebody listens.

        Nothing that happens after the first `anext` is awaited is missed; what was before is for the caller to read.
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
    """Run a workload on a cluster, which has a name, and wait for the answer; an interrupt cancels it.

    Examples
    --------
    >>> workbench.run("array_sum", "calm-otter", size="256MiB").result
    {'value': 92258885.28...}
    """
    session = Session()
    started = session.run(workload, parameters, cluster)
    return _finished(started.id, session.wait_run, session.cancel)


def _finished(id: str, wait: Callable[..., T], cancel: Callable[[str], T]) -> T:
    """Return what has ended; where somebody interrupts the waiting, it is called off."""
    try:
        return wait(id)
    except KeyboardInterrupt:
        cancel(id)
        wait(id, timeout=_CANCEL_PATIENCE)
        raise


@by_command()
def compare(
    workload: str, /, *, on: Sequence[str] | None = None, parameters: Mapping[str, Any] | None = None, **options: Any
) -> Summary:
    """Compare architectures and wait for the table; an interrupt ends it in good order.

    Examples
    --------
    >>> workbench.compare("array_sum", on=["cpu --workers 1", "cpu --workers 2"]).verdict
    'cpu --workers 2 is the fastest (0.61 s), 1.9 times as fast as cpu --workers 1.'
    """
    session = Session()
    started = session.compare(workload, parameters, on=on, **options)
    return session.summary(_finished(started.id, session.wait_comparison, session.cancel_comparison))


def change_at(folder: Path, path: Path) -> Change | None:
    """Tell the cluster, run or comparison that a change of the file at `path` is about; None where it is of none."""
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
    """Look now and then whether hosts and runners are alive; what died is written down, and so noticed."""
    while True:
        await in_thread(_settle)
        await asyncio.sleep(_LIVENESS_INTERVAL)


def _settle() -> None:
    records.read_all()
    store.settle()
