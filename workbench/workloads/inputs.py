"""Which array of a file a workload's parameters mean, and what its tasks import to read it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from workbench.errors import BadInputError, WorkbenchError
from workbench.storage import places
from workbench.storage.decoders import decoders
from workbench.storage.finding import existing_chunks, find_array, stored_at
from workbench.storage.formats import MODULES
from workbench.storage.formats.base import Found
from workbench.storage.places import Place
from workbench.storage.servers import options_of
from workbench.workloads import fields
from workbench.workloads.values import BadParameterError

SERVED: Mapping[str, tuple[Any, Any]] = {
    "anon": (fields.Anonymous, False),
    "endpoint_url": (fields.Endpoint | None, None),
    places.TOKEN: (fields.TokenVariable | None, None),
}
"""Fields of a form on the server of a URL, which `options_of` reads."""


def imports_of(resolved: Mapping[str, Any]) -> dict[str, str]:
    """Return what tasks import to read a file and to decompress it, as `Template.imports`."""
    options = resolved.get("options") or {}
    options = options["options"] if "part" in options else options
    source = options.get("source") or {key: resolved[key] for key in ("engine", "group") if key in resolved}
    engine, place = source.get("engine"), Place(resolved["path"], source.get("options", options))
    array = resolved.get("array") or resolved.get("variable")
    format, name = stored_at(place, resolved.get("format", ""), array, source)
    found = ("xarray", *MODULES.get(format, (format,))) if engine else MODULES.get(format, ())
    # What can't be read any more is for whoever opens it to tell.
    with contextlib.suppress(WorkbenchError, OSError, LookupError, ValueError):
        found += () if source.get("files") else decoders(place, format, name)
    return dict.fromkeys((*found, *places.modules_of(resolved["path"])), "")


def array_of(workload: str, values: Mapping[str, Any], **asked: Any) -> tuple[Found, dict[str, Any]]:
    """The array that a workload's parameters mean, found as `find_array` is asked, and what its function takes of it.

    Raises BadParameterError, which names the parameter.
    """
    options = options_of(workload, values["path"], values)
    try:
        found = find_array(values["path"], values["array"], options=options, select=values["select"], **asked)
    except BadParameterError as err:
        raise BadParameterError(f"{err.parameter} of {workload}: {err}", err.parameter) from err
    try:
        told = existing_chunks(found, places.full(values["path"], options), values["missing_chunks"])
    except BadInputError as err:
        raise BadParameterError(f"path of {workload}: {err}", "path") from err
    found = replace(found, remarks=(*told, *found.remarks))
    return found, found.facts(options)
