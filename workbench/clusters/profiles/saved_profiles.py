"""The user's own profiles: choices saved under a name (see `named_choices`), which are merged with those given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from workbench import named_choices
from workbench.clusters.profiles import registered
from workbench.errors import ConflictError, NotFoundError, quoted
from workbench.named_choices import FILE, is_name


class Saved(NamedTuple):
    """Choices of a profile, saved under a name."""

    profile: str = ""
    choices: Mapping[str, Any] = {}
    where: str = ""
    """File that has them."""
    problem: str | None = None
    """Reason why they can't be used."""
    is_trusted: bool = True


def saved() -> dict[str, Saved]:
    """Return them by name; for the same name, the working folder comes before the data folder."""
    definitions: dict[Any, tuple[Any, str]] = {}
    found: dict[str, Saved] = {}
    for place in named_choices.places("profiles"):
        definitions = {**{name: (about, place.where) for name, about in place.content.items()}, **definitions}
        if place.error:
            found[place.name] = Saved(problem=place.error)
    waiting = named_choices.untrusted()
    for name in () if waiting is None else waiting.profiles:
        if is_name(name) and name not in definitions and name not in registered():
            problem = f"It is defined in {FILE} of this folder, which you haven't trusted yet."
            found[name] = Saved(problem=problem, is_trusted=False)
    # A registered profile keeps its name, and the other one explains its different name.
    titles = {name: f"{name}-of-your-own" if name in registered() else str(name) for name in definitions}
    return {titles[name]: _merged(name, definitions) for name in definitions} | found


def keep(name: str, profile: str, choices: Mapping[str, Any]) -> None:
    """Save choices of a profile under a name, in the data folder; an earlier one of that name is replaced.

    Raises BadInputError if the name is invalid, and ConflictError if a profile has it that isn't the user's own. The
    choices are only checked when they are used in a plan.
    """
    named_choices.check_name(name, "profile", "night")
    if name in registered():
        raise ConflictError(f"There is a profile {name!r} already, which isn't one of yours. Choose another name.")
    below = saved().get(profile, Saved(profile))
    with named_choices.changing():
        about = {"profile": below.profile, **below.choices, **choices}
        named_choices.write("profiles", {**named_choices.read("profiles"), name: about})


def forget(name: str) -> None:
    """Remove a saved profile. Raises NotFoundError if there is none of this name."""
    with named_choices.changing():
        mine = named_choices.read("profiles")
        if name not in mine:
            where = f" It is defined in {FILE} or in Dask's configuration: remove it there." if name in saved() else ""
            raise NotFoundError(f"You saved no profile {quoted(name)}.{where} You saved: {', '.join(mine) or 'none'}.")
        named_choices.write("profiles", {each: about for each, about in mine.items() if each != name})


def _merged(name: Any, definitions: Mapping[Any, tuple[Any, str]], above: tuple[Any, ...] = ()) -> Saved:
    """Return the choices of this name, with those of the names that they are based on; `above` are based on it."""
    about, where = definitions[name]
    base: Any = about.get("profile") if isinstance(about, dict) else None
    if name in registered() or not is_name(name):
        return Saved(problem=f"A profile of your own can't be called so (in {where}). Choose another name.")
    exists = isinstance(base, str) and (base in registered() or base in definitions)
    if not exists or base in (name, *above):
        problem = "It names no profile" if base is None else f"There is no profile {quoted(base)}"
        problem = f"It is based on itself, by way of {base}" if exists else problem
        return Saved(problem=f"{problem} (in {where}). Give one of: {', '.join(registered())}.")
    below = Saved(base) if base in registered() else _merged(base, definitions, (name, *above))
    choices = {str(each): value for each, value in about.items() if each != "profile"}
    return below._replace(choices={**below.choices, **choices}, where=where)
