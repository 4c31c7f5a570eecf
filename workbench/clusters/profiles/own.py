"""Profiles of one's own: choices kept under a name. A spec that comes of one is the other profile's.

They stand under `workbench: profiles:` in a file workbench.yaml of the working folder, which a team may keep in git, in
Dask's configuration, and in the data folder, where `keep` writes them:

    workbench:
      profiles:
        night: {profile: cpu, n_workers: 2, memory: 8GiB}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from workbench import config
from workbench.clusters.names import is_name
from workbench.clusters.profiles import Around, Broken, Profile, registered
from workbench.errors import BadInputError, ConflictError, NotFoundError, reason_of

if TYPE_CHECKING:
    from distributed.security import Security
    from pydantic import BaseModel

    from workbench.clusters.handle import Handle
    from workbench.clusters.spec import ClusterSpec
    from workbench.hardware import Inventory

FILE = "workbench.yaml"
_MOST_BYTES = 2**20


class Own(Profile):
    """Choices of another profile under a name."""

    def __init__(self, name: str, other: Profile, kept: Mapping[str, Any], where: str) -> None:
        self.name = self.title = name  # type: ignore[misc]
        self.verb, self.options = other.verb, other.options  # type: ignore[misc]
        self.kept = kept
        self._other = other
        self._where = where

    @property
    def base(self) -> str:
        """Name of the other profile."""
        return self._other.base

    def summary(self, inventory: Inventory) -> str:
        """Return what is kept, and where."""
        chosen = ", ".join(f"{name}={value}" for name, value in self.kept.items())
        return f"{self._other.title}{f' with {chosen}' if chosen else ''}. From {self._where}."

    def unavailable(self, around: Around) -> str | None:
        """Return why the other can't be had."""
        return self._other.unavailable(around)

    def choices(self, inventory: Inventory) -> type[BaseModel]:
        """Return the choices of the other."""
        return self._other.choices(inventory)

    def form(self, given: Mapping[str, Any], inventory: Inventory) -> type[BaseModel]:
        """Return those of the other where these are given and the others kept."""
        return self._other.form({**self.kept, **given}, inventory)

    def takes(self, name: str) -> bool:
        """Return whether the other does."""
        return self._other.takes(name)

    def plan(self, given: Mapping[str, Any], around: Around) -> ClusterSpec:
        """Return the other's spec, with what is kept where nothing else is given."""
        return self._other.plan({**self.kept, **given}, around)

    def preview(self, spec: ClusterSpec) -> str | None:
        """Return what the other would submit."""
        return self._other.preview(spec)

    def code(self, spec: ClusterSpec) -> str:
        """Return the other's code."""
        return self._other.code(spec)

    async def launch(
        self, spec: ClusterSpec, security: Security | None, folder: Path, changed: Callable[[], None]
    ) -> Handle:
        """Start the other."""
        return await self._other.launch(spec, security, folder, changed)


def own() -> dict[str, Profile]:
    """Return them by name; of two with one name that of the working folder counts, then that of the data folder."""
    found: dict[str, Profile] = {}
    sources = (
        (Path(FILE), f"{FILE} here"),
        (_kept_file(), "what you kept"),
        (None, "Dask's configuration"),
    )
    for path, where in sources:
        try:
            told = config.get("profiles") if path is None else _read(path)
            found = {**dict(_made(told, where)), **found}
        except BadInputError as err:
            name = path.name if path else "configuration"
            found[name] = Broken(name, str(err))
    return found


def keep(name: str, profile: str, choices: Mapping[str, Any]) -> Profile:
    """Keep choices of a profile under a name, in the data folder; one of the same name that was kept is replaced.

    Raises
    ------
    BadInputError
        The name can't be used. Whether the choices can, whoever plans with them says.
    ConflictError
        It is the name of a profile that is not one's own.
    """
    if not is_name(name):
        raise BadInputError(
            f"A profile can't be called {name!r:.60}. Use a lower-case letter, then up to 39 lower-case letters, "
            "digits, hyphens or underscores, such as 'night'."
        )
    if name in registered():
        raise ConflictError(f"There is a profile {name!r} already, which isn't one of yours. Choose another name.")
    other = own().get(profile)
    kept = {**(other.kept if isinstance(other, Own) else {}), **choices}
    base = other.base if other else profile
    _write({**_read(_kept_file()), name: {"profile": base, **kept}})
    return own()[name]


def forget(name: str) -> None:
    """Forget one that was kept. Raises NotFoundError where none of this name was."""
    kept = _read(_kept_file())
    if name not in kept:
        where = f" It stands in {FILE} or in Dask's configuration: take it out there." if name in own() else ""
        raise NotFoundError(f"You kept no profile {name!r:.60}.{where} You kept: {', '.join(kept) or 'none'}.")
    _write({each: about for each, about in kept.items() if each != name})


def _kept_file() -> Path:
    return config.data_folder() / "profiles.yaml"


def _write(profiles: Mapping[str, Any]) -> None:
    config.write_atomically(_kept_file(), yaml.safe_dump({"workbench": {"profiles": dict(profiles)}}, sort_keys=False))


def _read(path: Path) -> dict[str, Any]:
    """What stands in a file under `workbench: profiles:`, nothing where there is no file."""
    try:
        about = path.stat()
    except OSError:
        return {}
    return _parsed(path.absolute(), about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=16)
def _parsed(path: Path, _changed: int, n_bytes: int) -> dict[str, Any]:
    try:
        if n_bytes > _MOST_BYTES:
            raise ValueError("it is larger than 1 MiB")
        told = yaml.safe_load(path.read_text()) or {}
        profiles = (told.get("workbench") or {}).get("profiles") or {}
    except (OSError, ValueError, AttributeError, yaml.YAMLError) as err:
        raise BadInputError(f"{path} can't be read: {' '.join(reason_of(err).split())}.") from err
    if not isinstance(profiles, dict):
        raise BadInputError(f"{path}: profiles is {profiles!r:.60}. Give names, each with a profile and its choices.")
    return profiles


def _made(told: Any, where: str) -> Iterator[tuple[str, Profile]]:
    for name, about in (told or {}).items():
        # One of ours keeps its name, and the other says why it has another.
        title = f"{name}-of-your-own" if name in registered() else str(name)
        yield title, _one(title, about, where, is_fine=title == name and is_name(title))


def _one(name: str, about: Any, where: str, *, is_fine: bool) -> Profile:
    if not is_fine:
        return Broken(name, f"A profile of your own can't be called so (in {where}). Choose another name.")
    if not isinstance(about, dict) or about.get("profile") not in registered():
        return Broken(name, f"It names no profile (in {where}). Give one of: {', '.join(registered())}.")
    other = registered()[about["profile"]]
    return Own(name, other, {each: value for each, value in about.items() if each != "profile"}, where)
