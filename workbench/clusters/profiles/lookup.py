"""Profiles by name: those of packages, and choices that the user saved under one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from workbench.clusters.profiles import Around, Broken, Group, Profile, of_cluster, points, registered
from workbench.clusters.profiles.saved_profiles import saved
from workbench.errors import BadInputError, FailedError, MissingError, UntrustedError, quoted
from workbench.hardware import Inventory
from workbench.packages import installed_version


class Offered(BaseModel, frozen=True):
    """A profile as listed to the user; if unavailable, with the reason and a remedy."""

    name: str
    title: str
    summary: str
    available: bool
    reason: str | None
    group: Group


def look_up(name: str, given: Mapping[str, Any]) -> tuple[Profile, dict[str, Any]]:
    """Return a profile and the choices for it: those given, and those that the user saved under this name.

    Raises BadInputError with the known names, MissingError for a saved profile that can't be used, and UntrustedError
    for one of an untrusted folder.
    """
    if name in points():
        return of_cluster(name), dict(given)
    all_saved = saved()
    if name not in all_saved:
        # A file that can't be read is listed under its own name, and may contain the profile.
        unread = {each: str(about.problem) for each, about in all_saved.items() if each.endswith(".yaml")}
        names = ", ".join(each for each in (*registered(), *all_saved) if each not in unread)
        messages = (f"Unknown profile {quoted(name)}. Choose one of: {names or _NONE}.", *unread.values())
        raise BadInputError(" ".join(messages))
    entry = all_saved[name]
    if not entry.is_trusted:
        raise UntrustedError(f"Profile {name}: {entry.problem} See what it defines and trust it: workbench trust")
    if entry.problem is not None:
        raise MissingError(f"The {name} profile can't be had here. {entry.problem}")
    return of_cluster(entry.profile), {**entry.choices, **given}


_NONE = "none, since the entry points of dask-workbench are missing. Install it again"


def profile(name: str) -> Profile:
    """Return a profile, or the one that saved choices are for. Raises as `look_up` does."""
    return look_up(name, {})[0]


def takes(name: object, choice: str) -> bool:
    """Return whether a profile takes a choice that others lack; False if there is no such profile."""
    try:
        return isinstance(name, str) and profile(name).takes(choice)
    except (BadInputError, MissingError, UntrustedError):
        return False


def profiles(inventory: Inventory, *, version: Callable[[str], str | None] = installed_version) -> tuple[Offered, ...]:
    """Return all profiles; an unavailable one with the reason and a remedy."""
    around = Around(inventory, version=version)
    ours = [_offered(name, each, {}, "", around) for name, each in registered().items()]
    for name, about in saved().items():
        if about.problem is None:
            ours.append(_offered(name, of_cluster(about.profile), about.choices, about.where, around))
        else:
            broken = Broken(name, about.problem)
            ours.append(_offered(name, broken, {}, "", around))
    return tuple(ours)


def _offered(name: str, profile: Profile, choices: Mapping[str, Any], where: str, around: Around) -> Offered:
    title, summary, reason = profile.title, profile.line, None
    try:
        reason, summary = profile.unavailable(around), profile.summary(around.inventory)
        if where:
            choices_text = ", ".join(f"{each}={value}" for each, value in choices.items())
            title, summary = name, f"{title}{f' with {choices_text}' if choices_text else ''}. From {where}."
            model = profile.choices(around.inventory)
            # Choices that only a server knows are checked when it is contacted.
            relevant = {
                each: value for each, value in choices.items() if each in model.model_fields or not profile.takes(each)
            }
            wrong = profile.complaint(relevant, model)
            reason = reason or (f"{wrong} It is saved so in {where}." if wrong else None)
    except FailedError as err:
        reason = str(err)
    described = {"name": name, "title": title, "summary": summary, "group": profile.group}
    return Offered(**described, available=reason is None, reason=reason)
