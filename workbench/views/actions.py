"""Actions of pages: functions by name, whose signatures validate the arguments of a message.

A button names one, `data-action="scale"`, and its arguments. No tornado here. Errors are WorkbenchErrors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from workbench.errors import BadInputError, NotFoundError, quoted
from workbench.threads import in_thread
from workbench.views.answers import connecting_cell
from workbench.views.messages import Theme, check
from workbench.views.service import Service

Action = Callable[..., Coroutine[Any, Any, Any]]

ACTIONS: dict[str, Action] = {}
"""Actions by name. An action is completed though its page closes."""

CANCELLABLE: set[Action] = set()
"""Actions that end with their page: they only read, or first open a user's paths, which may hang."""

READING = ("cell", "figure")
"""Names of actions that change nothing and open no user's path."""


def action(function: Action) -> Action:
    """Register an action under its name."""
    ACTIONS[function.__name__] = function
    return function


def cancellable(function: Action) -> Action:
    """Register an action that ends with its page."""
    CANCELLABLE.add(function)
    return action(function)


async def perform(service: Service, name: str, arguments: Mapping[str, Any]) -> Any:
    """Return the result of an action. Raises WorkbenchError."""
    function = ACTIONS.get(name)
    if function is None:
        raise NotFoundError(f"Unknown action {quoted(name)}. Available actions: {', '.join(ACTIONS)}.")
    performing = function(service, **check(function, arguments))
    return await (performing if function in CANCELLABLE else service.finish(performing))


async def _read_state(service: Service) -> None:
    """Read the state now, so that views are made again."""
    await (await service.watching()).state.read()


# -- this machine


@action
async def keep_profile(service: Service, name: str, profile: str, choices: dict[str, Any] | None = None) -> None:
    """Save choices as a profile of the user's."""
    await service.ask(lambda session: session.keep_profile(name, profile, **_check_choices(profile, choices)))


@action
async def forget_profile(service: Service, profile: str) -> None:
    """Delete a profile of the user's."""
    await service.ask(lambda session: session.forget_profile(profile))


@cancellable
async def keep_preset(service: Service, workload: str, name: str, parameters: dict[str, Any]) -> None:
    """Save parameters of a workload under a name."""
    await service.look("keep_preset", workload=workload, name=name, parameters=parameters)


@action
async def forget_preset(service: Service, workload: str, preset: str) -> None:
    """Delete saved parameters."""
    await service.ask(lambda session: session.forget_preset(workload, preset))


def _check_choices(profile: str, choices: dict[str, Any] | None) -> Any:
    """Return the choices. Raises BadInputError if a name is unknown."""
    from workbench.clusters.choices import properties
    from workbench.clusters.profiles.lookup import profile as find, takes

    for name in choices or {}:
        if name not in properties() and not takes(profile, name):
            available = (*properties(), *find(profile).options)
            raise BadInputError(f"Unknown choice {quoted(name)}. Choose among: {', '.join(available)}.")
    return choices or {}


@action
async def trust(service: Service, sha: str) -> None:
    """Trust the definitions in the folder, if their hash is still this one."""
    await service.ask(lambda session: session.trust(sha))
    await _read_state(service)


@action
async def confirm(service: Service, credential: str, server: str) -> None:
    """Allow sending a credential to a server."""
    await service.ask(lambda session: session.confirm(credential, server))
    await _read_state(service)


@action
async def end_tour(service: Service) -> None:
    """Hide the tour from now on."""
    from workbench.named_choices import end_tour as end

    await in_thread(end)
    await _read_state(service)


# -- clusters


@cancellable
async def cell(service: Service, cluster: str) -> dict[str, str]:
    """Return the code that connects a notebook to a cluster."""
    return {"cell": connecting_cell((await service.ask(lambda session: session.cluster(cluster))).name)}


@action
async def start(
    service: Service,
    profile: str,
    choices: dict[str, Any] | None = None,
    name: str | None = None,
    force: bool = False,
    agreed: bool = False,
) -> None:
    """Start a cluster."""
    await service.ask(
        lambda session: session.start(
            session.plan(profile, **_check_choices(profile, choices)), name=name, force=force, agreed=agreed
        )
    )


@action
async def scale(
    service: Service,
    cluster: str,
    n_workers: int | None = None,
    minimum: int | None = None,
    maximum: int | None = None,
    force: bool = False,
) -> None:
    """Scale a cluster to a number of workers, or adapt that number between bounds."""
    control = (await service.session()).control
    match n_workers, minimum, maximum:
        case int(number), None, None:
            await control.scale(cluster, number, force=force)
        case None, int(low), int(high):
            await control.adapt(cluster, low, high, force=force)
        case _:
            raise BadInputError("Give either n_workers, or minimum and maximum.")


@action
async def restart(service: Service, cluster: str, worker: str | None = None) -> None:
    """Restart one worker of a cluster, or all."""
    control = (await service.session()).control
    await (control.restart_workers(cluster) if worker is None else control.restart_worker(cluster, worker))


@action
async def stop(service: Service, cluster: str) -> None:
    """Stop a cluster, or dismiss a failed one."""
    session = await service.session()
    await session.control.stop(await in_thread(session.cluster, cluster))


@action
async def stop_all(service: Service, clusters: list[str] | None = None) -> None:
    """Stop these clusters, or all."""
    if clusters is None:
        await (await service.session()).control.stop_all()
    else:
        await asyncio.gather(*(stop(service, each) for each in clusters))


# -- runs


@cancellable
async def write_example(service: Service, path: str) -> None:
    """Write an example file."""
    await service.look("write_example", path=path)


@cancellable
async def measure(service: Service, workload: str, cluster: str, parameters: dict[str, Any] | None = None) -> None:
    """Run a part of a workload, for forecasts."""
    await service.look("measure", workload=workload, cluster=cluster, parameters=parameters or {})


@cancellable
async def run(
    service: Service,
    workload: str,
    cluster: str,
    parameters: dict[str, Any] | None = None,
    force: bool = False,
    settings: Any = None,
) -> dict[str, str]:
    """Run a workload, and return the run's id."""
    arguments = {"parameters": parameters or {}, "force": force, "settings": settings}
    started = await service.look("run", workload=workload, cluster=cluster, **arguments)
    # The form asks before a second run of the same workload, so the state must include this one.
    await _read_state(service)
    return {"id": started.id}


@action
async def mark_run(
    service: Service, run: str, name: str | None = None, note: str | None = None, star: bool | None = None
) -> None:
    """Name, annotate or star a run."""
    values: dict[str, Any] = {"name": name, "note": note, "star": star}
    marks = {key: value for key, value in values.items() if value is not None}
    await service.ask(lambda session: session.mark_run(run, **marks))


@action
async def cancel_run(service: Service, run: str) -> None:
    """Cancel a run."""
    await service.ask(lambda session: session.cancel(run))


@action
async def delete_run(service: Service, run: str) -> None:
    """Delete a run."""
    await service.ask(lambda session: session.delete_run(run))


@action
async def delete_runs(service: Service, runs: list[str]) -> None:
    """Delete runs."""
    for each in runs:
        await delete_run(service, each)


@cancellable
async def save_run(service: Service, run: str, path: str) -> None:
    """Start to save a run's arrays; a view shows progress and outcome."""
    await service.look("save_run", run, path=path)


@cancellable
async def import_run(service: Service, path: str) -> dict[str, str]:
    """Take in a run from a zip file, and return its id."""
    imported = await service.look("import_run", path)
    await _read_state(service)
    return {"id": imported.id}


@action
async def cancel_saving(service: Service, run: str) -> None:
    """Cancel saving a run's arrays."""
    await service.ask(lambda session: session.cancel_saving(run))


# -- comparisons


@cancellable
async def compare(
    service: Service,
    workload: str,
    parameters: dict[str, Any] | None = None,
    on: list[str] | None = None,
    sweep: dict[str, Any] | None = None,
    repeats: Any = None,
    settings: Any = None,
    agreed: bool = False,
) -> dict[str, str]:
    """Start to compare architectures."""
    arguments = {"parameters": parameters, "on": on, "sweep": sweep, "repeats": repeats, "settings": settings}
    # An empty field of a form counts as absent.
    filled = {name: value for name, value in arguments.items() if value not in (None, "")}
    return _opened(await service.look("compare", workload=workload, agreed=agreed, **filled))


@cancellable
async def compare_runs(service: Service, runs: list[str]) -> dict[str, str]:
    """Compare past runs."""
    return _opened(await service.look("compare_runs", runs=runs))


def _opened(comparison: Any) -> dict[str, str]:
    """Return arguments of the command that opens its tab."""
    from workbench.views.comparisons import tab

    return tab(comparison)


@action
async def cancel_comparison(service: Service, comparison: str) -> None:
    """Cancel a comparison."""
    await service.ask(lambda session: session.cancel_comparison(comparison))


@action
async def delete_comparison(service: Service, comparison: str) -> None:
    """Delete a comparison."""
    await service.ask(lambda session: session.delete_comparison(comparison))


# -- figures


@cancellable
async def figure(service: Service, theme: Theme, cluster: str | None = None, run: str | None = None) -> Any:
    """Return a figure for a page to embed; its data arrive as patches."""

    def document(session: Any) -> dict[str, Any]:
        from workbench.views import drawing

        match cluster, run:
            case str(name), None:
                session.cluster(name)
            case None, str(name):
                session.show(name)
            case _:
                raise BadInputError("Name one cluster or run.")
        return drawing.document(theme, service.base_url)

    return await service.ask(document)
