"""The user's own profiles: choices saved under a name (see `workbench.kept`). Their specs name the base profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from workbench import kept
from workbench.clusters.profiles import Around, Broken, Profile, Untrusted, registered
from workbench.clusters.spec import ClusterSpec
from workbench.errors import ConflictError, NotFoundError, quoted
from workbench.hardware import Inventory
from workbench.kept import FILE, is_name


class Own(Profile):
    """Choices of another profile under a name."""

    def __init__(self, name: str, other: Profile, kept: Mapping[str, Any], where: str) -> None:
        self.name = self.title = name  # type: ignore[misc]
        self.verb, self.options, self.group = other.verb, other.options, other.group  # type: ignore[misc]
        self.kept = kept
        self.other = other
        self._where = where

    @property
    def base(self) -> str:
        """Name of the other profile."""
        return self.other.base

    def summary(self, inventory: Inventory) -> str:
        """Return the saved choices, and the file that has them."""
        chosen = ", ".join(f"{name}={value}" for name, value in self.kept.items())
        return f"{self.other.title}{f' with {chosen}' if chosen else ''}. From {self._where}."

    def unavailable(self, around: Around) -> str | None:
        """Return why the other profile is unavailable, or rejects the saved choices."""
        reason = self.other.unavailable(around)
        if reason is not None:
            return reason
        model = self.other.choices(around.inventory)
        # Choices that only a server knows are checked when it is asked.
        known = {name: each for name, each in self.kept.items() if name in model.model_fields or not self.takes(name)}
        wrong = self.other.complaint(known, model)
        return f"{wrong} It is kept so in {self._where}." if wrong else None

    def choices(self, inventory: Inventory) -> type[BaseModel]:
        return self.other.choices(inventory)

    def form(self, given: Mapping[str, Any], inventory: Inventory) -> type[BaseModel]:
        """Return the other profile's form for these choices and the saved ones."""
        return self.other.form({**self.kept, **given}, inventory)

    def refuse_unknown(self, given: Mapping[str, Any], inventory: Inventory) -> None:
        self.other.refuse_unknown({**self.kept, **given}, inventory)

    def takes(self, name: str) -> bool:
        return self.other.takes(name)

    def plan(self, given: Mapping[str, Any], around: Around) -> ClusterSpec:
        """Return the other profile's spec, for these choices and the saved ones."""
        return self.other.plan({**self.kept, **given}, around)

    def _is_the_others(self, *_: Any) -> Any:
        """Raise NotImplementedError: never called, since its specs name the other profile."""
        raise NotImplementedError

    code = engine = _is_the_others  # type: ignore[assignment]


def own() -> dict[str, Profile]:
    """Return them by name; for the same name, the working folder comes before the data folder."""
    told: dict[Any, tuple[Any, str]] = {}
    found: dict[str, Profile] = {}
    for place in kept.places("profiles"):
        told = {**{name: (about, place.where) for name, about in place.told.items()}, **told}
        if place.error:
            found[place.name] = Broken(place.name, place.error)
    waiting = kept.untrusted()
    for name in () if waiting is None else waiting.profiles:
        if is_name(name) and name not in told and name not in registered():
            found[name] = Untrusted(name)
    return {each.name: each for each in (_made(name, told) for name in told)} | found


def keep(name: str, profile: str, choices: Mapping[str, Any]) -> Profile:
    """Save choices of a profile under a name, in the data folder; an earlier one of that name is replaced.

    Raises BadInputError if the name is invalid, and ConflictError if a profile has it that isn't the user's own. The
    choices are only checked when they are used in a plan.
    """
    kept.check_name(name, "profile", "night")
    if name in registered():
        raise ConflictError(f"There is a profile {name!r} already, which isn't one of yours. Choose another name.")
    other = own().get(profile)
    before = other.kept if isinstance(other, Own) else {}
    base = other.base if other else profile
    with kept.changing():
        kept.write("profiles", {**kept.read("profiles"), name: {"profile": base, **before, **choices}})
    return own()[name]


def forget(name: str) -> None:
    """Remove a saved profile. Raises NotFoundError if there is none of this name."""
    with kept.changing():
        there = kept.read("profiles")
        if name not in there:
            where = f" It stands in {FILE} or in Dask's configuration: take it out there." if name in own() else ""
            raise NotFoundError(f"You kept no profile {quoted(name)}.{where} You kept: {', '.join(there) or 'none'}.")
        kept.write("profiles", {each: about for each, about in there.items() if each != name})


def _made(name: Any, told: Mapping[Any, tuple[Any, str]], above: tuple[Any, ...] = ()) -> Profile:
    """Return the profile of this name; those in `above` are based on it."""
    about, where = told[name]
    named: Any = about.get("profile") if isinstance(about, dict) else None
    if name in registered() or not is_name(name):
        # Our own profile keeps its name, and this one explains its different name.
        title = f"{name}-of-your-own" if name in registered() else str(name)
        return Broken(title, f"A profile of your own can't be called so (in {where}). Choose another name.")
    known = isinstance(named, str) and (named in registered() or named in told)
    if not known or named in (name, *above):
        what = "It names no profile" if named is None else f"There is no profile {quoted(named)}"
        what = f"It is based on itself, by way of {named}" if known else what
        return Broken(name, f"{what} (in {where}). Give one of: {', '.join(registered())}.")
    other = registered()[named] if named in registered() else _made(named, told, (name, *above))
    choices = {str(each): value for each, value in about.items() if each != "profile"}
    if isinstance(other, Own):
        return Own(name, other.other, {**other.kept, **choices}, where)
    return Broken(name, other.reason) if isinstance(other, Broken) else Own(name, other, choices, where)
