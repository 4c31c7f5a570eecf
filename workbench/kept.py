"""What a person keeps under names.

It stands in a file workbench.yaml of the working folder, which a team may keep in git, in the data folder, where
`write` puts it, and in Dask's configuration. That of the working folder counts once the user trusts it (see
`workbench.trust`). All three are laid out alike:

    workbench:
      profiles:
        night: {profile: cpu, n_workers: 2, memory: 8GiB}
      presets:
        eofs:
          winds: {path: winds.nc, variable: u, k: 4}
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from workbench import config, formats, trust
from workbench.errors import BadInputError, ConflictError, quoted, reason_of
from workbench.redaction import redacted
from workbench.trust import FILE as FILE

LAST = ("what you kept", "Dask's configuration")
"""Places after that file, as they are told."""
_SECTIONS = {"profiles", "presets"}
_MOST_BYTES = 2**17
"""PyYAML reads that much in about a second."""
_MOST_LEVELS, _MOST_VALUES = 16, 10_000
"""Of one file. References (`*name`) let a short text stand for a billion values."""
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
    """Return what YAML stands for. Raises ValueError where it is none, or too much of it."""
    try:
        found = yaml.load(text, _Loader)
    except RecursionError as err:
        raise ValueError(f"it is nested more than {_MOST_LEVELS} levels deep") from err
    # PyYAML lets others pass where a tag such as !!int stands before an empty text.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as err:
        raise ValueError(str(err)) from err
    waiting, n_values = [(found, 0)], 0
    while waiting:
        value, level = waiting.pop()
        n_values += 1
        if level > _MOST_LEVELS:
            raise ValueError(f"it is nested more than {_MOST_LEVELS} levels deep")
        if n_values > _MOST_VALUES:
            raise ValueError(f"it has more than {formats.count(_MOST_VALUES)} values")
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | set | tuple) else ()
        waiting += ((each, level + 1) for each in inside)
    return found


class Place(NamedTuple):
    """One place, and what stands there under a section; where it can't be read, why."""

    name: str
    where: str
    told: dict[str, Any]
    error: str | None = None


def is_name(name: object) -> bool:
    """Return whether it may be the name of something kept, or of a cluster: part of addresses and of files' names."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(name: str, what: str, example: str) -> str:
    """Return `name`. Raises BadInputError where it can't be the name of such a thing."""
    if not is_name(name):
        raise BadInputError(
            f"A {what} can't be called {quoted(name)}. Use a lower-case letter, then up to 39 lower-case letters, "
            f"digits, hyphens or underscores, such as {example!r}."
        )
    return name


class Definitions(NamedTuple):
    """What a folder defines, by name only: nothing of it is imported or used."""

    folder: Path
    workloads: tuple[str, ...]
    """Names of the files whose functions are workloads."""
    profiles: tuple[str, ...]
    presets: tuple[str, ...]
    sha: str
    """Hash of the content."""
    problem: str | None = None
    """Why it can't be trusted."""

    def __str__(self) -> str:
        kinds = {"workload file": self.workloads, "profile": self.profiles, "preset": self.presets}
        return formats.listed(
            [
                f"{formats.count(len(names), kind)} ({formats.shortened([_plain(each) for each in names], _SHOWN)})"
                for kind, names in kinds.items()
                if names
            ]
        )

    @property
    def question(self) -> str:
        """What the user is asked."""
        return f"This folder defines {self}. Trust it?"


_SHOWN = 5


def _plain(name: str) -> str:
    """Return a name of a folder as it may be shown: it may be made to look like another."""
    return name if re.fullmatch(r"[\w.:-]{1,60}", name, re.ASCII) else ascii(name[:60])


def definitions(folder: Path | None = None) -> Definitions | None:
    """Return what a folder defines, the working folder by default; None where that is nothing."""
    try:
        folder = folder or Path.cwd()
    except FileNotFoundError:
        return None
    if folder == config.data_folder():
        return None  # of the user's own
    workloads = tuple(each.name for each in trust.workload_files(folder))
    profiles = tuple(map(str, _defined(folder / FILE, "profiles")))
    presets = tuple(
        f"{workload}.{name}"
        for workload, told in _defined(folder / FILE, "presets").items()
        for name in (told if isinstance(told, dict) else ())
    )
    if not (workloads or profiles or presets):
        return None
    try:
        return Definitions(folder, workloads, profiles, presets, trust.fingerprint(folder, digests(folder)))
    except BadInputError as err:
        return Definitions(folder, workloads, profiles, presets, "", str(err))


def digests(folder: Path) -> dict[Path, str]:
    """Return the files whose content a user trusts with a folder, each with its hash. Raises BadInputError."""
    named = [told.get("python") for told in _defined(folder / FILE, "profiles").values() if isinstance(told, dict)]
    paths = [folder / each for each in named if isinstance(each, str) and ".." not in Path(each).parts]
    return trust.read_digests(folder, [each for each in paths if each.is_relative_to(folder)])


def _defined(path: Path, section: str) -> dict[str, Any]:
    try:
        return _read(path, section)
    except BadInputError:
        return {}  # whoever uses the file says what is wrong with it


def untrusted() -> Definitions | None:
    """Return what the working folder defines, where the user hasn't trusted that; None where nothing waits for it."""
    found = definitions()
    return None if found is None or trust.trusted_sha(found.folder) == found.sha else found


def trust_folder(folder: Path, sha: str) -> None:
    """Trust what a folder defines. Raises ConflictError where it isn't what the user saw."""
    found = definitions(folder)
    if found is not None and found.problem is not None:
        raise ConflictError(found.problem)
    if found is None or found.sha != sha:
        raise ConflictError(f"What {folder} defines was changed since you saw it. Look at it again.")
    trust.trust(folder, sha)


def is_tour_over() -> bool:
    """Return whether the user dismissed the tour of first steps."""
    return _toured().exists()


def end_tour() -> None:
    """Keep that the user has seen enough of the tour."""
    config.write_atomically(_toured(), "")


def _toured() -> Path:
    return config.data_folder() / "toured"


def places(section: str) -> Iterator[Place]:
    """Yield what is kept in each place; of two things with one name the first counts."""
    (kept, configured), mine = LAST, _kept_file(section)
    sources: tuple[tuple[str, str, Callable[[], dict[str, Any]]], ...] = (
        (FILE, f"{FILE} here", lambda: _read_here(section)),
        (mine.name, kept, lambda: _read(mine, section)),
        ("configuration", configured, lambda: _checked(config.get(section) or {}, configured, section)),
    )
    for name, where, told in sources:
        try:
            yield Place(name, where, told())
        except BadInputError as err:
            yield Place(name, where, {}, str(err))


def read(section: str) -> dict[str, Any]:
    """Return what this person kept. Raises BadInputError where that can't be read."""
    return _read(_kept_file(section), section)


def write(section: str, told: Mapping[str, Any]) -> None:
    """Keep this, and nothing else."""
    text = yaml.safe_dump({"workbench": {section: redacted(told)}}, sort_keys=False)
    config.write_atomically(_kept_file(section), text)


def changing() -> contextlib.AbstractContextManager[None]:
    """Let one process at a time read what was kept and write it changed, so that no change is lost."""
    return config.locked(config.data_folder() / ".kept")


def _kept_file(section: str) -> Path:
    return config.data_folder() / f"{section}.yaml"


def _read_here(section: str) -> dict[str, Any]:
    """Return what stands in the file of the working folder, nothing where the user hasn't trusted that."""
    try:
        path = Path(FILE).absolute()
    except FileNotFoundError:  # the working folder is gone
        return {}
    content = trust.read_file(path, _MOST_BYTES)
    found = _section(content, path, section)
    return found if found and content is not None and _is_trusted(path, content) else {}


def _is_trusted(path: Path, content: bytes) -> bool:
    """Return whether this content, however the file looks by now, is what the user trusted with its folder."""
    folder = path.parent
    if folder == config.data_folder():
        return True  # of the user's own
    try:
        found = digests(folder)
    except BadInputError:
        return False
    same = found.get(path) == hashlib.sha256(content).hexdigest()
    return same and trust.trusted_sha(folder) == trust.fingerprint(folder, found)


def _read(path: Path, section: str) -> dict[str, Any]:
    """Return what stands in a file under `workbench: section:`, nothing where there is no file."""
    return _section(trust.read_file(path, _MOST_BYTES), path, section)


def _section(content: bytes | None, path: Path, section: str) -> dict[str, Any]:
    if content is None:
        return {}
    found = _parsed(content)
    if isinstance(found, str):
        raise BadInputError(f"{path} can't be read: {found}.")
    return _checked(found.get(section) or {}, str(path), section)


def _checked(told: Any, where: str, section: str) -> dict[str, Any]:
    if not isinstance(told, dict):
        raise BadInputError(f"{where}: {section} is {quoted(told)}. Give names, each with what it stands for.")
    return told


@lru_cache(maxsize=16)
def _parsed(content: bytes) -> dict[str, Any] | str:
    """Return what stands in a file under `workbench`, or why it can't be read: that, too, takes long to find out."""
    try:
        whole = parsed(content.decode()) or {}
        found = whole.get("workbench") or {}
        if misplaced := _SECTIONS & whole.keys():
            raise ValueError(
                f"{misplaced.pop()} stands at the top. Put it, indented, under a line that says workbench:"
            )
        if not isinstance(found, dict):
            raise ValueError(f"workbench is {quoted(found)}, not names")
    except (ValueError, AttributeError) as err:
        return " ".join(reason_of(err).split())
    return found
