"""Array in a file, found from a workload's parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from workbench.errors import BadInputError, WorkbenchError
from workbench.storage import places
from workbench.storage.decoders import decoders
from workbench.storage.finding import existing_chunks, find_array, stored_as
from workbench.storage.formats import MODULES
from workbench.storage.formats.base import Found
from workbench.storage.places import Place
from workbench.storage.selecting import parse
from workbench.storage.servers import options_of
from workbench.storage.zarrs import recent
from workbench.workloads.values import BadParameterError


def found_in(workload: str, values: Mapping[str, Any], **how: Any) -> Found:
    """Return the array for `path`, `array`, `select` and the server; `how` is passed to `find_array`.

    At a URL it is searched once for preparing, computing and checking, since each search takes a dozen requests.

    Raises BadParameterError, which names the parameter.
    """
    place = Place(values["path"], options_of(workload, values["path"], values))
    array, select = values["array"], values["select"]

    def find() -> Found:
        return find_array(place.path, array, options=place.options, select=select, **how)

    try:
        return recent(find, "found", place, array, select, str(how), slow=0) if place.is_url else find()
    except BadParameterError as err:
        raise BadParameterError(f"{err.parameter} of {workload}: {err}", err.parameter) from err


def checked(workload: str, found: Found, missing_chunks: str) -> Found:
    """Return the array with remarks on chunks that don't exist. Raises BadParameterError if most don't."""
    try:
        remarks = existing_chunks(found, missing_chunks)
    except BadInputError as err:
        raise BadParameterError(f"path of {workload}: {err}", "path") from err
    return replace(found, remarks=(*remarks, *found.remarks))


def facts_of(found: Found, select: str | None) -> dict[str, Any]:
    """Return the facts for estimates and checks about an array in a file, as JSON."""
    same = {name: getattr(found, name) for name in ("path", "array", "shape")}
    recipe = found.recipe or {}
    return same | {
        "columns": recipe.get("columns"),
        "selected": _selected(found, recipe, parse(select)),
        "remarks": list(found.remarks),
        "stored": found.number_type,
        "dtype": found.working_type,
        "imports": list(modules_of(found)),
    }


def _selected(found: Found, recipe: Mapping[str, Any], selected_dims: Collection[str]) -> dict[str, Any]:
    """Return the selected positions along the named dimensions, in the terms of `storage.open`."""
    if "part" not in recipe:
        places = recipe.get("places", {})
        return {
            name: at if isinstance(at, int) else list(at)
            for axis, (name, at) in enumerate(places.items())
            if name in selected_dims or str(axis) in selected_dims
        }
    names = recipe["names"] or [f"{found.array or 'array'}_{axis}" for axis in range(len(recipe["part"]))]
    return {
        name: at[0] if len(at) == 1 else list(at)
        for axis, (name, at) in enumerate(zip(names, recipe["part"], strict=True))
        if name in selected_dims or str(axis) in selected_dims
    }


def modules_of(found: Found) -> tuple[str, ...]:
    """Return the modules that tasks import to read an array and to decompress it."""
    source = (found.recipe or {}).get("source") or {}
    format, name = stored_as(found)
    modules = MODULES.get(format, (format,) if source.get("engine") else ())
    modules = ("xarray", *modules) if source.get("engine") else modules
    # Opening the file reports if it can't be read any more.
    with contextlib.suppress(WorkbenchError, OSError, LookupError, ValueError):
        if not source.get("files"):
            modules += decoders(Place(found.path, found.options), format, name)
    return tuple(dict.fromkeys((*modules, *places.modules_of(found.path))))


def imports_of(resolved: Mapping[str, Any]) -> dict[str, str]:
    """Return the modules that tasks import to read a file, as `Template.imports`."""
    return dict.fromkeys(resolved["imports"], "")
