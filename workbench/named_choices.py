"""Profiles and presets that the user saves under names.

They come from a file workbench.yaml of the working folder, which a team may keep in git; from the data folder, which
`write` uses; and from Dask's configuration. Those of the working folder count once the user trusts it (see
`workbench.trust`). All three have the same layout:

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
"""Names of the two sources after that file, as shown to the user."""
_SECTIONS = {"profiles", "presets"}
_MOST_BYTES = 2**17
"""Limit on a file's size. PyYAML reads this much in about a second."""
_MOST_LEVELS, _MOST_VALUES = 16, 10_000
"""Limits on one file. References (`*name`) let a short text stand for a billion values."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


class _Loader(yaml.SafeLoader):
    """YAML loader that reads plain words as YAML 1.2 does, so that a queue may be called `no`.

    YAML 1.1, which PyYAML reads, turns it into false, the walltime 1:30:00 into 5400, the account 0123 into 83, and
    2026-01-01 into a date.
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
    """Return the value of a YAML text. Raises ValueError if it is invalid or too large."""
    try:
        content = yaml.load(text, _Loader)
    except RecursionError as err:
        raise ValueError(f"it is nested more than {_MOST_LEVELS} levels deep") from err
    # PyYAML raises other errors for a tag such as !!int before an empty text.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as err:
        raise ValueError(str(err)) from err
    waiting, n_values = [(content, 0)], 0
    while waiting:
        value, level = waiting.pop()
        n_values += 1
        if level > _MOST_LEVELS:
            raise ValueError(f"it is nested more than {_MOST_LEVELS} levels deep")
        if n_values > _MOST_VALUES:
            raise ValueError(f"it has more than {formats.count(_MOST_VALUES)} values")
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | set | tuple) else ()
        waiting += ((each, level + 1) for each in inside)
    return content


class Place(NamedTuple):
    """One source: its content under a section, or the reason why it can't be read."""

    name: str
    where: str
    content: dict[str, Any]
    error: str | None = None


def is_name(name: object) -> bool:
    """Return whether this is a valid name for saved items and clusters: it is used in addresses and file names."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(name: str, noun: str, example: str) -> str:
    """Return `name`. Raises BadInputError if it isn't a valid name."""
    if not is_name(name):
        raise BadInputError(
            f"A {noun} can't be called {quoted(name)}. Use a lower-case letter, then up to 39 lower-case letters, "
            f"digits, hyphens or underscores, such as {example!r}."
        )
    return name


class Definitions(NamedTuple):
    """Definitions of a folder, by name only: nothing is imported or used."""

    folder: Path
    workloads: tuple[str, ...]
    """Names of the files with functions that are workloads."""
    profiles: tuple[str, ...]
    presets: tuple[str, ...]
    sha: str
    """Hash of the content."""
    problem: str | None = None
    """Reason why it can't be trusted."""

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
        """Question to the user."""
        return f"This folder defines {self}. Trust it?"


_SHOWN = 5


def _plain(name: str) -> str:
    """Return a name of a folder in a form that is safe to show: it may imitate another."""
    return name if re.fullmatch(r"[\w.:-]{1,60}", name, re.ASCII) else ascii(name[:60])


def definitions(folder: Path | None = None) -> Definitions | None:
    """Return the definitions of a folder, the working folder by default; None if there are none."""
    try:
        folder = folder or Path.cwd()
    except FileNotFoundError:
        return None
    if folder == config.data_folder():
        return None  # the user's own
    workloads = tuple(each.name for each in trust.workload_files(folder))
    profiles = tuple(map(str, _defined(folder / FILE, "profiles")))
    presets = tuple(
        f"{workload}.{name}"
        for workload, items in _defined(folder / FILE, "presets").items()
        for name in (items if isinstance(items, dict) else ())
    )
    if not (workloads or profiles or presets):
        return None
    try:
        return Definitions(folder, workloads, profiles, presets, trust.fingerprint(folder, digests(folder)))
    except BadInputError as err:
        return Definitions(folder, workloads, profiles, presets, "", str(err))


def digests(folder: Path) -> dict[Path, str]:
    """Return the files with content that a user trusts with a folder, each with its hash. Raises BadInputError."""
    names = [
        definition.get("python")
        for definition in _defined(folder / FILE, "profiles").values()
        if isinstance(definition, dict)
    ]
    paths = [folder / each for each in names if isinstance(each, str) and ".." not in Path(each).parts]
    return trust.read_digests(folder, [each for each in paths if each.is_relative_to(folder)])


def _defined(path: Path, section: str) -> dict[str, Any]:
    try:
        return _read(path, section)
    except BadInputError:
        return {}  # the user of the file reports its error


def untrusted() -> Definitions | None:
    """Return the definitions of the working folder that the user hasn't trusted yet, or None."""
    unseen = definitions()
    return None if unseen is None or trust.trusted_sha(unseen.folder) == unseen.sha else unseen


def trust_folder(folder: Path, sha: str) -> None:
    """Trust the definitions of a folder. Raises ConflictError if they changed after the user saw them."""
    current = definitions(folder)
    if current is not None and current.problem is not None:
        raise ConflictError(current.problem)
    if current is None or current.sha != sha:
        raise ConflictError(f"What {folder} defines was changed since you saw it. Look at it again.")
    trust.trust(folder, sha)


def is_tour_over() -> bool:
    """Return whether the user dismissed the tour of first steps."""
    return _toured().exists()


def end_tour() -> None:
    """Store that the user dismissed the tour."""
    config.write_atomically(_toured(), "")


def _toured() -> Path:
    return config.data_folder() / "toured"


def places(section: str) -> Iterator[Place]:
    """Yield each source with its content; of two items with one name the first counts."""
    (saved, configured), mine = LAST, _own_file(section)
    sources: tuple[tuple[str, str, Callable[[], dict[str, Any]]], ...] = (
        (FILE, f"{FILE} here", lambda: _read_here(section)),
        (mine.name, saved, lambda: _read(mine, section)),
        ("configuration", configured, lambda: _checked(config.get(section) or {}, configured, section)),
    )
    for name, where, read_content in sources:
        try:
            yield Place(name, where, read_content())
        except BadInputError as err:
            yield Place(name, where, {}, str(err))


def read(section: str) -> dict[str, Any]:
    """Return the user's saved items. Raises BadInputError if they can't be read."""
    return _read(_own_file(section), section)


def write(section: str, items: Mapping[str, Any]) -> None:
    """Save these items, and remove all others."""
    text = yaml.safe_dump({"workbench": {section: redacted(items)}}, sort_keys=False)
    config.write_atomically(_own_file(section), text)


def changing() -> contextlib.AbstractContextManager[None]:
    """Hold a lock to read and change the saved items, so that no change is lost."""
    return config.locked(config.data_folder() / ".kept")


def _own_file(section: str) -> Path:
    return config.data_folder() / f"{section}.yaml"


def _read_here(section: str) -> dict[str, Any]:
    """Return the content of the working folder's file, empty if the user hasn't trusted it."""
    try:
        path = Path(FILE).absolute()
    except FileNotFoundError:  # the working folder is gone
        return {}
    content = trust.read_file(path, _MOST_BYTES)
    choices = _section(content, path, section)
    return choices if choices and content is not None and _is_trusted(path, content) else {}


def _is_trusted(path: Path, content: bytes) -> bool:
    """Return whether the user trusted this content with its folder, even if the file has changed meanwhile."""
    folder = path.parent
    if folder == config.data_folder():
        return True  # the user's own
    try:
        shas = digests(folder)
    except BadInputError:
        return False
    same = shas.get(path) == hashlib.sha256(content).hexdigest()
    return same and trust.trusted_sha(folder) == trust.fingerprint(folder, shas)


def _read(path: Path, section: str) -> dict[str, Any]:
    """Return the content of a file under `workbench: section:`, empty if there is no file."""
    return _section(trust.read_file(path, _MOST_BYTES), path, section)


def _section(content: bytes | None, path: Path, section: str) -> dict[str, Any]:
    if content is None:
        return {}
    parsed_content = _parsed(content)
    if isinstance(parsed_content, str):
        raise BadInputError(f"{path} can't be read: {parsed_content}.")
    return _checked(parsed_content.get(section) or {}, str(path), section)


def _checked(content: Any, where: str, section: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise BadInputError(f"{where}: {section} is {quoted(content)}. Give names, each with what it stands for.")
    return content


@lru_cache(maxsize=16)
def _parsed(content: bytes) -> dict[str, Any] | str:
    """Return the content of a file under `workbench`, or its error, which is also cached: parsing is slow."""
    try:
        whole = parsed(content.decode()) or {}
        choices = whole.get("workbench") or {}
        if misplaced := _SECTIONS & whole.keys():
            raise ValueError(
                f"{misplaced.pop()} stands at the top. Put it, indented, under a line that says workbench:"
            )
        if not isinstance(choices, dict):
            raise ValueError(f"workbench is {quoted(choices)}, not names")
    except (ValueError, AttributeError) as err:
        return " ".join(reason_of(err).split())
    return choices
