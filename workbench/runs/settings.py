"""Dask's settings for one run: `array.rechunk.threshold=5`, held against Dask's own schema where it has one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import dask
import yaml
from dask.utils import parse_bytes, parse_timedelta

from workbench.errors import BadInputError, quoted
from workbench.formats import listed, meant
from workbench.redaction import complaint


def read_pairs(value: Any) -> Any:
    """Return names and values of a text such as 'array.chunk-size=64MiB'; what isn't a text as it is."""
    if not isinstance(value, str):
        return value
    try:
        words = shlex.split(value)
    except ValueError as err:
        raise BadInputError(f"'{value:.80}' can't be read ({err}). Give KEY=VALUE, such as {_PAIR}.") from err
    pairs = [word.partition("=") for word in words]
    wrong = next((name for name, equals, _ in pairs if not equals or not name), None)
    if wrong is not None:
        raise BadInputError(f"'{wrong:.80}' isn't KEY=VALUE. Give one such as {_PAIR}, or several with spaces between.")
    return {name: given for name, _, given in pairs}


def read_settings(given: Any) -> dict[str, Any]:
    """Settings by name, from values that may be text, or from one text of all. BadInputError names one that can't be.

    Examples
    --------
    >>> read_settings("array.rechunk.threshold=5")
    {'array.rechunk.threshold': 5}
    """
    given = read_pairs(given)
    if not isinstance(given, Mapping):
        raise BadInputError(f"settings is {quoted(given)}. Give Dask's by name: {_EXAMPLE}.")
    return {name.strip(): _read(name.strip(), value) for name, value in given.items()}


def of_graphs(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Those of the optimization of graphs, which the scheduler does with its own where nobody did it before."""
    return tuple(name for name in settings if name.startswith("optimization."))


def without_effect(settings: Mapping[str, Any], *, computes: bool) -> str | None:
    """A sentence on settings of graphs that change nothing; `computes` says that a run had no graph to optimize."""
    named = of_graphs(settings)
    if named and computes:
        return f"{listed(named)}: nothing was changed by it. This computes as it goes, and the scheduler has its own."
    read = [name for name in named if name.replace("_", "-") == "optimization.fuse.active"]
    unread = [name for name in named if name not in read and name.startswith("optimization.fuse.")]
    if unread:
        return f"{listed(unread)}: nothing was changed by it. This Dask fuses chains of tasks only, of any width."
    return None


def _check_known(name: str) -> None:
    """Raise BadInputError where neither Dask nor a package that is loaded here has settings that begin so."""
    first, known = name.replace("_", "-").partition(".")[0], {*_schemas(), *dask.config.config}
    if first not in {each.replace("_", "-") for each in known} and first not in _OF_NO_CLUSTER:
        hint = meant(first, known)
        raise BadInputError(f"Dask has no setting {quoted(name)}.{hint} They begin with: {', '.join(sorted(known))}.")


def _check_parsed(name: str, given: str, schema: Mapping[str, Any]) -> None:
    """Raise BadInputError where a text is no size or duration and Dask's own default is one."""
    if not isinstance(default := dask.config.get(name, None), str):
        return
    for parse, kind in ((parse_bytes, "size such as '128MiB'"), (parse_timedelta, "duration such as '30s'")):
        try:
            parse(default)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
        try:
            parse(given)
        except (ValueError, KeyError) as err:
            if given not in schema.get("enum", ()):
                raise BadInputError(f"The setting {name} is {quoted(given)}. Give a {kind}.") from err
        return


def _read(name: str, value: Any) -> Any:
    if (why := complaint(name, value)) is not None:
        raise BadInputError(why)
    found = _checked(name, value)
    key = name.replace("_", "-")
    if key in _OF_NO_CLUSTER:
        raise BadInputError(
            f"{name} is for Dask without a cluster, and a run has one: its workers compute. Leave it out."
        )
    if f"{key}.".startswith(_OF_CLUSTERS) and not f"{key}.".startswith(_OF_CLIENTS):
        variable = f"DASK_{key.upper().replace('-', '_').replace('.', '__')}={shlex.quote(str(value))}"
        raise BadInputError(
            f"{name} is fixed when schedulers and workers start, and no run changes it. Start the cluster with it: "
            f"{variable} workbench up cpu."
        )
    if f"{key}.".startswith(_OF_NO_RUN):
        raise BadInputError(
            f"{name} is read before a run begins, and no run changes it. Set it in Dask's own configuration."
        )
    return found


def _checked(name: str, value: Any) -> Any:
    try:
        found = yaml.safe_load(value) if isinstance(value, str) else value
    except yaml.YAMLError as err:
        raise BadInputError(
            f"The setting {name} is {quoted(value)}, which can't be read. Give a number, a text or null."
        ) from err
    schema, known = _schema_of(name)
    if schema is None:
        if known is not None:
            raise BadInputError(f"Dask has no setting {quoted(name)}. Beside it are: {', '.join(sorted(known))}.")
        _check_known(name)
        return found
    from jsonschema import ValidationError, validate  # type: ignore[import-untyped]

    if "properties" in schema:
        raise BadInputError(
            f"{name} holds several settings. Give one: {', '.join(f'{name}.{each}' for each in schema['properties'])}."
        )
    try:
        validate(found, schema)
    except ValidationError as err:
        raise BadInputError(f"The setting {name} can't be so: {err.message}.") from err
    if isinstance(found, str):
        _check_parsed(name, found, schema)
    return found


_OF_NO_CLUSTER = ("scheduler", "num-workers", "pool")
_OF_CLUSTERS = ("distributed.", "rmm.", "temporary-directory.", "ucx.", "ucxx.")
_OF_CLIENTS = (
    "distributed.admin.large-graph-warning-threshold.",
    "distributed.client.",
    "distributed.diagnostics.computations.ignore-",
    "distributed.diagnostics.computations.nframes.",
    "distributed.p2p.storage.disk.",
)
"""Of those, what the process of a run reads."""
_OF_NO_RUN = (
    "array.query-planning.",
    "dataframe.query-planning.",
    "jobqueue.",
    "kubernetes.",
    "gateway.",
    "workbench.",
)
_PAIR, _EXAMPLE = "array.rechunk.threshold=5", '{"array.rechunk.threshold": 5}'


def _schema_of(name: str) -> tuple[Mapping[str, Any] | None, tuple[str, ...] | None]:
    """Dask's schema of a setting; else the names that it might have, or None where that part isn't Dask's own."""
    first, *rest = name.replace("_", "-").split(".")
    schema = _schemas().get(first)
    if schema is None:
        return None, None
    for part in rest:
        known = schema.get("properties")
        if known is None:
            return None, None
        if part not in known:
            # What a schema leaves open may be anything.
            return None, None if schema.get("additionalProperties") else tuple(known)
        schema = known[part]
    return schema, None


@cache
def _schemas() -> dict[str, Any]:
    """What dask and distributed say of their settings, by the first part of the name."""
    schemas = (("dask", "dask-schema.yaml"), ("distributed", "distributed-schema.yaml"))
    of_dask, of_distributed = (
        yaml.safe_load(files(package).joinpath(file).read_text(encoding="utf-8"))["properties"]
        for package, file in schemas
    )
    return {**of_dask, **of_distributed}
