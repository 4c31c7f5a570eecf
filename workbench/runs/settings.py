"""Dask's settings for one run, such as `array.rechunk.threshold=5`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import dask.config
import yaml

from workbench.errors import BadInputError, quoted
from workbench.formats import listed, meant
from workbench.redaction import complaint


def read_pairs(value: Any) -> Any:
    """Return names and values of a text such as 'array.chunk-size=64MiB'; other values unchanged."""
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
    return {name: text for name, _, text in pairs}


def read_settings(given: Any) -> dict[str, Any]:
    """Return settings by name, from values that may be text, or from one text of all.

    Raises BadInputError for one that no run can change. Dask itself reports invalid values.

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
    """Return the settings of graph optimization, which the scheduler applies with its own unless it was done before."""
    return tuple(name for name in settings if name.startswith("optimization."))


def without_effect(settings: Mapping[str, Any], *, computes: bool) -> str | None:
    """Return a message about graph settings without effect; `computes` says that a run had no graph to optimize."""
    named = of_graphs(settings)
    if named and computes:
        return f"{listed(named)}: nothing was changed by it. This computes as it goes, and the scheduler has its own."
    read = [name for name in named if name.replace("_", "-") == "optimization.fuse.active"]
    unread = [name for name in named if name not in read and name.startswith("optimization.fuse.")]
    if unread:
        return f"{listed(unread)}: nothing was changed by it. This Dask fuses chains of tasks only, of any width."
    return None


def _check_known(name: str) -> None:
    """Raise BadInputError if a part of Dask with settings has none of this name: Dask ignores unknown ones."""
    section, _, last = name.rpartition(".")
    first = name.replace("_", "-").partition(".")[0]
    if not any(first in each for each in dask.config.defaults):
        return  # of another package
    there = dask.config.get(section, None) if section else None
    if dask.config.get(name, _ABSENT) is _ABSENT and isinstance(there, Mapping):
        hint = meant(last, there)
        raise BadInputError(f"Dask has no setting {quoted(name)}.{hint} Available there: {', '.join(sorted(there))}.")


def _read(name: str, value: Any) -> Any:
    if (why := complaint(name, value)) is not None:
        raise BadInputError(why)
    try:
        parsed = yaml.safe_load(value) if isinstance(value, str) else value
    except yaml.YAMLError as err:
        raise BadInputError(
            f"The setting {name} is {quoted(value)}, which can't be read. Give a number, a text or null."
        ) from err
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
    _check_known(name)
    return parsed


_ABSENT = object()
_OF_NO_CLUSTER = ("scheduler", "num-workers", "pool")
_OF_CLUSTERS = ("distributed.", "rmm.", "temporary-directory.", "ucx.", "ucxx.")
_OF_CLIENTS = (
    "distributed.admin.large-graph-warning-threshold.",
    "distributed.client.",
    "distributed.diagnostics.computations.ignore-",
    "distributed.diagnostics.computations.nframes.",
    "distributed.p2p.storage.disk.",
)
"""Those settings that the process of a run reads."""
_OF_NO_RUN = (
    "array.query-planning.",
    "dataframe.query-planning.",
    "jobqueue.",
    "kubernetes.",
    "gateway.",
    "workbench.",
)
_PAIR, _EXAMPLE = "array.rechunk.threshold=5", '{"array.rechunk.threshold": 5}'
