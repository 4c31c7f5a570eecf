"""Functions of users and other packages that are listed as workloads.

These are functions in files in `workloads/` of the working folder, once the user trusts it (see `workbench.trust`), and
of the data folder, and those of other packages by entry points:

    [project.entry-points."workbench.workloads"]
    tea = "somebodys_workload:steep"
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NamedTuple

from workbench import config, named_choices, trust
from workbench.errors import BadInputError
from workbench.packages import entry_points
from workbench.workloads import importing
from workbench.workloads.builtin import templates
from workbench.workloads.extensions import unusable
from workbench.workloads.importing import Contents
from workbench.workloads.user_functions import Own, contents, known, made

GROUP = "workbench.workloads"
_AT_ONCE = 4  # processes that read files at a time


class Broken(NamedTuple):
    """A file, or a package's entry point, that is no workload, with the reason."""

    where: str
    why: str


class Listed(NamedTuple):
    """Listed workloads besides our own."""

    workloads: tuple[Own, ...]
    broken: tuple[Broken, ...]


class _Source(NamedTuple):
    where: str
    """Path of a file, or name of a module."""
    origin: str
    only: EntryPoint | None = None


def added_folder() -> Path:
    """Return the folder for saved notebook cells."""
    return config.data_folder() / trust.FOLDER


def listed(*, wait: bool = True) -> Listed:
    """Read all of them; without `wait` only those with known contents."""
    sources = list(_sources())
    paths = list(dict.fromkeys(source.where for source in sources))
    if wait:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            by_file = dict(zip(paths, threads.map(contents, paths), strict=True))
    else:
        by_file = {where: known_contents for where in paths if (known_contents := known(where)) is not None}
    names = {each.name for each in templates()}
    workloads: list[Own] = []
    broken = [*_waiting(), *(Broken(*each) for each in unusable())]
    for source in sources:
        if source.where in by_file:
            for each in _of(source, by_file[source.where], names):
                if isinstance(each, Broken):
                    broken.append(each)
                else:
                    workloads.append(each)
                    names.add(each.name)
    return Listed(tuple(workloads), tuple(broken))


def _waiting() -> Iterator[Broken]:
    waiting = named_choices.untrusted()
    if waiting is not None:
        for name in waiting.workloads:
            yield Broken(f"{trust.FOLDER}/{name}", "You haven't trusted this folder yet.")


def title_of(workload: str) -> str:
    """Return the title of a workload, or its name if the title isn't known yet."""
    workloads = (*templates(), *listed(wait=False).workloads)
    return next((each.title for each in workloads if each.name == workload), workload)


def stamp() -> list[Any]:
    """Return a stamp that changes when a listed file is added, removed or written."""
    return [importing.stamp(str(path)) for folder in _folders() for path in trust.workload_files(folder)]


def _folders() -> tuple[Path, ...]:
    """Yield folders that may contain workloads: the working folder, while there is one, and the data folder."""
    mine = config.data_folder()
    try:
        return tuple({Path.cwd(): None, mine: None})
    except FileNotFoundError:
        return (mine,)


def _sources() -> Iterator[_Source]:
    mine = config.data_folder()
    for folder in _folders():
        if folder == mine or named_choices.untrusted() is None:
            for path in trust.workload_files(folder):
                yield _Source(str(path), f"{path.name} {'added' if folder == mine else 'here'}")
    for point in entry_points(GROUP):
        package = point.dist.name if point.dist else point.module
        yield _Source(point.module, f"package {package}", point)


def _of(source: _Source, module: Contents, names: set[str]) -> Iterator[Own | Broken]:
    if module.error is not None:
        yield Broken(source.where, module.error)
        return
    point, path = source.only, Path(source.where)
    only = point.attr if point else path.stem if importing.is_added(path) else None
    chosen = [each for each in module.functions if only in (None, each.name)]
    if not chosen:
        yield Broken(source.where, f"It has no function {only!r}." if only else "It has no public function.")
    for each in chosen:
        name = each.name if point is None else point.name if len(chosen) == 1 else f"{point.name}:{each.name}"
        if name in names:
            name = f"{path.stem}:{name}"
        if name in names:
            yield Broken(
                f"{source.where}:{each.name}", f"Another workload is called {name}. Rename the file or function."
            )
            continue
        try:
            yield made(each, source.where, name, module.sha, source.origin)
        except BadInputError as err:
            yield Broken(f"{source.where}:{each.name}", str(err))
