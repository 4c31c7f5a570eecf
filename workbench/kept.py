"""What a person keeps under names.

It stands in a file workbench.yaml of the working folder, which a team may keep in git, in the data folder, where
`write` puts it, and in Dask's configuration. All three are laid out alike:

    workbench:
      profiles:
        night: {profile: cpu, n_workers: 2, memory: 8GiB}
      presets:
        eofs:
          winds: {path: winds.nc, variable: u, k: 4}
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from workbench import config
from workbench.errors import BadInputError, quoted, reason_of

FILE = "workbench.yaml"
LAST = ("what you kept", "Dask's configuration")
"""Places after that file, as they are told."""
_SECTIONS = {"profiles", "presets"}
_MOST_BYTES = 2**20
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


class _Loader(yaml.SafeLoader):
    """Reads plain words as YAML 1.2 does, where a queue may be called `no`.

    1.1, which PyYAML reads, makes false of that, 5400 of the walltime 1:30:00, 83 of the account 0123, and a date of
    2026-01-01.
    """


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern in {
    "bool": "true|True|TRUE|false|False|FALSE",
    "null": "~|null|Null|NULL|",
    "int": "[-+]?(0|[1-9][0-9]*)",
    "float": r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan",
}.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), None)


def parsed(text: str) -> Any:
    """Return what YAML stands for. Raises ValueError where it is none."""
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as err:
        raise ValueError(str(err)) from err


class Place(NamedTuple):
    """One place, and what stands there under a section; where it can't be read, why."""

    name: str
    where: str
    told: dict[str, Any]
    error: str | None = None


def is_name(name: object) -> bool:
    """Whether it may be the name of something kept, or of a cluster: part of addresses and of files' names."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(name: str, what: str, example: str) -> str:
    """Return `name`. Raises BadInputError where it can't be the name of such a thing."""
    if not is_name(name):
        raise BadInputError(
            f"A {what} can't be called {quoted(name)}. Use a lower-case letter, then up to 39 lower-case letters, "
            f"digits, hyphens or underscores, such as {example!r}."
        )
    return name


def places(section: str) -> Iterator[Place]:
    """What is kept in each place; of two things with one name the first counts."""
    (kept, configured), mine = LAST, _kept_file(section)
    sources: tuple[tuple[str, str, Callable[[], dict[str, Any]]], ...] = (
        (FILE, f"{FILE} here", lambda: _read(Path(FILE), section)),
        (mine.name, kept, lambda: _read(mine, section)),
        ("configuration", configured, lambda: _checked(config.get(section) or {}, configured, section)),
    )
    for name, where, told in sources:
        try:
            yield Place(name, where, told())
        except BadInputError as err:
            yield Place(name, where, {}, str(err))


def read(section: str) -> dict[str, Any]:
    """What this person kept. Raises BadInputError where that can't be read."""
    return _read(_kept_file(section), section)


def write(section: str, told: Mapping[str, Any]) -> None:
    """Keep this, and nothing else."""
    text = yaml.safe_dump({"workbench": {section: dict(told)}}, sort_keys=False)
    config.write_atomically(_kept_file(section), text)


def changing() -> contextlib.AbstractContextManager[None]:
    """Let one process at a time read what was kept and write it changed, so that no change is lost."""
    return config.locked(config.data_folder() / ".kept")


def _kept_file(section: str) -> Path:
    return config.data_folder() / f"{section}.yaml"


def _read(path: Path, section: str) -> dict[str, Any]:
    """What stands in a file under `workbench: section:`, nothing where there is no file."""
    try:
        about = path.stat()
    except OSError:
        return {}
    found = _parsed(path.absolute(), about.st_mtime_ns, about.st_size)
    return _checked(found.get(section) or {}, str(path), section)


def _checked(told: Any, where: str, section: str) -> dict[str, Any]:
    if not isinstance(told, dict):
        raise BadInputError(f"{where}: {section} is {quoted(told)}. Give names, each with what it stands for.")
    return told


@lru_cache(maxsize=16)
def _parsed(path: Path, _changed: int, n_bytes: int) -> dict[str, Any]:
    try:
        if n_bytes > _MOST_BYTES:
            raise ValueError("it is larger than 1 MiB")
        whole = parsed(path.read_text(encoding="utf-8")) or {}
        found = whole.get("workbench") or {}
        if misplaced := _SECTIONS & whole.keys():
            raise ValueError(
                f"{misplaced.pop()} stands at the top. Put it, indented, under a line that says workbench:"
            )
        if not isinstance(found, dict):
            raise ValueError(f"workbench is {quoted(found)}, not names")
    except (OSError, ValueError, AttributeError) as err:
        raise BadInputError(f"{path} can't be read: {' '.join(reason_of(err).split())}.") from err
    return found
