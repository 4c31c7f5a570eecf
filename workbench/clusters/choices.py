"""Choices for a cluster: their names, their types, and their place in the signatures of functions."""

from __future__ import annotations

import functools
import inspect
import os
import re
import textwrap
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from dask.utils import parse_bytes, parse_timedelta
from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema

from workbench import credentials, formats, named_choices
from workbench.errors import BadInputError

P = ParamSpec("P")
T = TypeVar("T")


def blank_is_none(value: Any) -> Any:
    """Return None for a field that was left empty."""
    return None if isinstance(value, str) and not value.strip() else value


def whole_number(value: Any) -> Any:
    """Return the value, None for an empty field. Raises ValueError for booleans, which pydantic takes for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("Give a whole number")
    return blank_is_none(value)


def _bytes(value: Any) -> Any:
    value = whole_number(value)
    try:
        return None if value is None else int(parse_bytes(value))
    except (TypeError, AttributeError, OverflowError) as err:
        raise ValueError("Give a size such as 8GiB") from err


def _seconds(value: Any) -> Any:
    value = whole_number(value)
    try:
        return value if value in (None, "never") else float(parse_timedelta(value))
    except (TypeError, AttributeError, KeyError, OverflowError) as err:
        raise ValueError("Give a duration such as 30m or 'never'") from err


def _word(value: Any) -> Any:
    # YAML reads an account name made of digits as a number.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else blank_is_none(value)


def _path(value: Any) -> Any:
    value = blank_is_none(value)
    return os.fspath(value) if isinstance(value, Path) else value


def _file(value: Any) -> Any:
    if blank_is_none(value) is None:
        return None
    return str(Path(value).expanduser().absolute()) if isinstance(value, str | Path) else value


def allowed_values(allowed: str) -> Any:
    """Return a field with its allowed values, for messages that begin with 'Give'."""
    return Field(json_schema_extra={"allowed": allowed})


# Larger numbers could not be formatted in messages.
_Positive = Annotated[int, Field(ge=1, lt=2**63)]
_MOST_AT_ALL = 1024
"""Threads of one worker: each is a system thread, and a machine has some ten thousand for all users."""
Count = Annotated[_Positive | None, BeforeValidator(whole_number), WithJsonSchema({"type": "integer", "minimum": 1})]
Threads = Annotated[
    Annotated[int, Field(ge=1, le=_MOST_AT_ALL)] | None,
    BeforeValidator(whole_number),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": _MOST_AT_ALL}),
]
Size = Annotated[
    _Positive | None,
    BeforeValidator(_bytes),
    WithJsonSchema({"type": "string", "examples": ["8 GiB", "512 MiB"], "unit": "bytes"}),
]
Duration = Annotated[
    Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["never"] | None,
    BeforeValidator(_seconds),
    WithJsonSchema({"type": "string", "examples": ["1h", "30m", "never"], "unit": "seconds"}),
]
IdleTimeout = Annotated[
    Duration,
    Field(
        title="Idle time-out",
        description="With nothing to do for this long, such as 30m, it ends; 'never' keeps it. "
        "Left out: the setting workbench.idle-timeout.",
    ),
    allowed_values("a duration above 0 such as '90s', '10m' or '1h', or 'never'"),
]
Interpreter = Annotated[
    str | None,
    BeforeValidator(_path),
    WithJsonSchema({"type": "string"}),
    allowed_values("the path of a Python interpreter"),
]
Text = Annotated[str | None, BeforeValidator(_word), WithJsonSchema({"type": "string"})]
File = Annotated[str | None, BeforeValidator(_file), WithJsonSchema({"type": "string"})]
Switch = Annotated[bool | None, BeforeValidator(blank_is_none), WithJsonSchema({"type": "boolean"})]


def _named_values(value: Any) -> Any:
    try:
        return named_choices.parsed(value) or {} if isinstance(value, str) else value
    except ValueError as err:
        raise ValueError("Give names and values such as {NAME: value}") from err


NamedValues = Annotated[
    dict[str, Any], BeforeValidator(_named_values), WithJsonSchema({"type": "string", "examples": ["{NAME: value}"]})
]


def check_variables(values: Mapping[str, str], parameter: str, server: str) -> None:
    """Check that each environment variable named by a value, as $NAME, is set and may be sent to a server.

    Raises as `credentials.check` does, and BadInputError if one isn't set.
    """
    for name, value in values.items():
        if not value.startswith("$"):
            continue
        if value[1:] not in os.environ:
            raise BadInputError(
                f"{parameter}.{name} is {value}, and this environment has no variable {value[1:]}. Set it before "
                "Jupyter, or this command, starts."
            )
        credentials.check(value[1:], server, parameter)


def without_defaults(schema: dict[str, Any]) -> None:
    """Remove `default: null`: a form shows an empty field, and the description explains it."""
    for properties in schema["properties"].values():
        properties.pop("default", None)


Workers = Annotated[Count, Field(title="Workers"), allowed_values("a whole number of worker processes, 1 or more")]
WorkerThreads = Annotated[
    Threads,
    Field(title="Threads per worker"),
    allowed_values(f"a whole number of threads for each worker, from 1 to {_MOST_AT_ALL}"),
]
Memory = Annotated[
    Size,
    Field(title="Memory"),
    allowed_values("the memory of all workers together, in bytes or as a size such as '8GiB'"),
]
Encrypt = Annotated[
    Switch,
    Field(
        title="Encrypt",
        description="Scheduler, workers and clients speak TLS. Left out: as workbench.encrypt says.",
    ),
    allowed_values("true or false"),
]
"""Fields without a description: each profile describes what it does by default."""


class AnyChoices(BaseModel, frozen=True, extra="forbid", json_schema_extra=without_defaults):
    """Choices for any cluster."""

    n_workers: Workers = Field(None, description="Worker processes. Left out: follows from the threads and the cores.")
    threads_per_worker: WorkerThreads = Field(None, description="Left out: the cores shared out among the workers.")
    memory: Memory = Field(
        None, description="Of all workers together, such as 8GiB. Left out: two thirds of what the budget leaves."
    )
    encrypt: Encrypt = None
    idle_timeout: IdleTimeout = None


class ClusterChoices(AnyChoices):
    """Choices for a cluster on this machine; those left out are chosen to match the hardware."""

    python: Interpreter = Field(
        None,
        title="Python",
        description="Path of the interpreter that the cluster runs in. Left out: the one that runs this.",
    )


def _device_names(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("not a device")
    if isinstance(value, list | tuple):
        return blank_is_none(",".join(map(str, value)))
    return str(value) if isinstance(value, int) else blank_is_none(value)


_Devices = Annotated[
    str | None,
    BeforeValidator(_device_names),
    WithJsonSchema({"type": "string", "examples": ["0", "0,2"]}),
    allowed_values("indices or UUIDs of GPUs with commas between them, such as '0,2'"),
]
_DeviceMemory = Annotated[
    Size,
    allowed_values("the memory of each GPU beyond which blocks move to the host, such as '8GiB'"),
]
_Pool = Annotated[Size, allowed_values("the memory of each GPU that RMM takes at the start, such as '8GiB'")]


class GpuChoices(ClusterChoices):
    """Choices for a cluster with GPUs."""

    devices: _Devices = Field(
        None,
        title="GPUs",
        description="Indices or UUIDs of GPUs, such as 0,2. Left out: the idle ones, or for one GPU the idlest.",
    )
    device_memory_limit: _DeviceMemory = Field(
        None,
        title="GPU memory limit",
        description="For each GPU. Blocks beyond it move to the host's memory. Left out: 0.8 of the card.",
    )
    rmm_pool_size: _Pool = Field(
        None,
        title="RMM pool",
        description="Memory of each GPU that is taken at the start and handed out quickly. Left out: no pool.",
    )


Interface = Annotated[
    Annotated[str, Field(pattern=r"^[\w.:@-]+(,[\w.:@-]+)*$")] | None,
    BeforeValidator(blank_is_none),
    WithJsonSchema({"type": "string", "examples": ["ib0", "mlx5_0:1"]}),
    allowed_values(
        "names of network interfaces or ports of cards with commas between them, such as 'ib0' or 'mlx5_0:1'"
    ),
]


class AllChoices(GpuChoices):
    """Choices that several profiles have; the others are a profile's own."""

    interface: Interface = Field(None, title="Interface", description="Network interface for the data, such as ib0.")


@cache
def properties() -> dict[str, dict[str, Any]]:
    """Return the JSON Schema of these choices by name."""
    found: dict[str, dict[str, Any]] = AllChoices.model_json_schema()["properties"]
    return found


def metavar(about: Mapping[str, Any]) -> str:
    """Return the word for a value of a choice with this schema: 'N', 'SIZE', 'here|job'."""
    kinds = {"integer": "N", "number": "X", "boolean": "true|false", "array": "LIST", "object": "NAMES"}
    units = {"bytes": "SIZE", "seconds": "DURATION"}
    kind = units.get(about.get("unit", "")) or kinds.get(about.get("type", ""), "TEXT")
    return "|".join(map(str, about["enum"])) if "enum" in about else kind


OTHER_WORDS = {
    "workers": "n_workers",
    "memory_limit": "memory, which is that of all workers together",
    "threads": "threads_per_worker",
    "nthreads": "threads_per_worker",
    "gpus": "devices",
    "CUDA_VISIBLE_DEVICES": "devices",
}
"""Names that Dask, Dask-CUDA and the command line use for these choices."""


def choosing(function: Callable[P, T]) -> Callable[P, T]:
    """Spell out the `**choices` of a function in its signature and docstring, and suggest the right name for a typo.

    In the docstring their descriptions replace the entry `**choices`, which has one line.
    """
    signature = inspect.signature(function)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    parameters = sorted([*_spelled_out(), *own], key=lambda each: each.kind)
    known = [each.name for each in parameters if each.name != "self"]

    @functools.wraps(function)
    def spelled(*args: P.args, **kwargs: P.kwargs) -> T:
        from workbench.clusters.profiles.lookup import takes

        profile = kwargs.get("profile", next((each for each in args if isinstance(each, str)), None))
        for name in kwargs:
            if name not in known and not takes(profile, name):
                other = OTHER_WORDS.get(name)
                hint = f" Did you mean {other}?" if other else formats.meant(name, known)
                if not hint and profile is not None:
                    continue  # the profile reports what it takes
                raise BadInputError(f"There is no choice {name!r}.{hint} Choose from: {', '.join(known)}.")
        return function(*args, **kwargs)

    spelled.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    spelled.__doc__ = re.sub(r"^\*\*choices\n.*", _described(), inspect.getdoc(function) or "", flags=re.MULTILINE)
    return spelled


def _spelled_out() -> list[inspect.Parameter]:
    kinds = {"integer": "int | str | None", "boolean": "bool | str | None"}
    measures = {"bytes": "int | str | None", "seconds": "float | str | None"}
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=measures.get(about.get("unit", "")) or kinds.get(about["type"], "str | None"),
        )
        for name, about in properties().items()
    ]


def _described() -> str:
    texts = {name: about["description"] for name, about in properties().items()}
    return "\n".join(f"{name}\n{textwrap.indent(textwrap.fill(text, 100), ' ' * 4)}" for name, text in texts.items())
