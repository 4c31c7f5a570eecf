"""Ways to start a cluster, one file for each: its choices, the plan made of them, and its engine.

An entry point of the group `workbench.profiles` names each, of this package and of others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from workbench import formats
from workbench.clusters.spec import ClusterSpec
from workbench.errors import (
    BadInputError,
    FailedError,
    MissingError,
    WorkbenchError,
    install,
    named,
    quoted,
)
from workbench.packages import entry_points, installed_version
from workbench.redaction import complaint
from workbench.threads import load_entry_point

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from distributed.security import Security

    from workbench.clusters.engine import Engine
    from workbench.hardware import Inventory

M = TypeVar("M", bound=BaseModel)

GROUP = "workbench.profiles"

DEFAULT_PROFILE = "cpu"

Group = Literal["here", "elsewhere", "more"]
_GROUPS: tuple[Group, ...] = get_args(Group)


_KINDS = {
    "int": "Give a whole number",
    "float": "Give a number",
    "bool": "Give true or false",
    "string": "Give a text, in a file in quotes",
    "list": "Give a list",
    "dict": "Give names and values",
}
"""Expected value, by the prefix of the type of pydantic's error."""


class Around(NamedTuple):
    """Context of a plan."""

    inventory: Inventory
    promised: int = 0
    """Bytes of this machine's memory promised to running clusters."""
    held: int = 0
    """Bytes of it that their workers already use."""
    version: Callable[[str], str | None] = installed_version


class Nearby(NamedTuple):
    """A scheduler that runs already, outside dask-workbench."""

    address: str
    n_workers: int | None
    """None if the scheduler can't be queried without a connection."""
    pid: int | None
    command: str
    """Short form of the command that started it."""

    def __str__(self) -> str:
        workers = None if self.n_workers is None else formats.count(self.n_workers, "worker")
        pid = None if self.pid is None else f"(pid {self.pid})"
        return "  ".join(filter(None, (self.address, workers, " ".join(filter(None, (self.command, pid))))))


class Profile(ABC):
    """One way to start a cluster."""

    name: ClassVar[str]
    title: ClassVar[str]
    line: ClassVar[str] = ""
    """Description in one line."""
    model: ClassVar[type[BaseModel]]
    """Choices for the user; the form is drawn from its JSON Schema."""
    needs: ClassVar[tuple[str, str] | None] = None
    """Required package, and the extra that installs it."""
    verb: ClassVar[str] = "Start"
    """Label of the button."""
    group: ClassVar[Group] = "elsewhere"
    """Part of the list of profiles: `here` is shown at once, `elsewhere` and `more` are folded."""

    reached_by: ClassVar[str] = "anyone who reaches its scheduler over the network"
    """Description of who can use the cluster if it isn't encrypted."""

    is_local: ClassVar[bool] = False
    """True if it uses this machine: those are listed first."""

    most_workers: ClassVar[int | None] = None
    """Largest number of workers; None if nothing limits it."""

    attaches: ClassVar[bool] = False
    """True if its scheduler is external, with external keys if it is encrypted."""

    ends_with_owner: ClassVar[bool] = False
    """True if what it started elsewhere is useless without its owner, and is ended when the owner has ended."""

    divides_cores: ClassVar[bool] = False
    """True if the plan divides this machine's cores among the workers, so that their number decides their threads."""

    protocol: ClassVar[str | None] = None
    """Protocol that it brings in addition to TCP and TLS, as in an address."""

    options: ClassVar[tuple[str, ...]] = ()
    """Names of its own choices; a spec keeps them in `ClusterSpec.options`."""

    def summary(self, inventory: Inventory) -> str:
        """Return a one-line description for this machine."""
        return self.line

    def unavailable(self, around: Around) -> str | None:
        """Return why it is unavailable here, None if it is available."""
        if self.needs is None or around.version(self.needs[0]) is not None:
            return None
        return f"Needs {self.needs[0]}: {install(self.needs[1])}."

    def choices(self, inventory: Inventory, given: Mapping[str, Any] = {}) -> type[BaseModel]:
        """Return the model of the choices on this machine, given some of them: an address may add further choices."""
        return self.model

    def takes(self, name: str) -> bool:
        """Return whether it has a choice of this name that other profiles lack."""
        return name in self.options

    def describe(self, spec: ClusterSpec) -> str:
        """Return a one-line description of a spec whose workers are unknown before they arrive; '' for their number."""
        return ""

    def usual_lines(self, inventory: Inventory) -> tuple[str, ...]:
        """Return the clusters that a comparison of this profile is about by default, each as in a terminal."""
        return (self.name,)

    def words(self, choices: Mapping[str, Any]) -> str:
        """Return a readable form of choices: 'CPU with 2 workers × 1 thread, not encrypted'."""
        return in_words(self.title, choices)

    def running(self) -> Iterable[Nearby]:
        """Return running clusters of its kind that can be attached to, if they can be listed."""
        return ()

    def checked(self, given: Mapping[str, Any], model: type[M]) -> M:
        """Return the given values as the model. Raises BadInputError naming the first invalid one."""
        secret = (complaint(name, value) for name, value in given.items() if name in model.model_fields)
        if (why := next(filter(None, secret), None)) is not None:
            raise BadInputError(why)
        try:
            return model.model_validate({name: value for name, value in given.items() if value is not None})
        except ValidationError as err:
            raise BadInputError(self._complaint(err.errors()[0], given, model)) from err

    def refuse_unknown(self, given: Mapping[str, Any], inventory: Inventory) -> None:
        """Raise BadInputError for a choice that the profile lacks, even if its model would ignore it."""
        model = self.model
        # A model that forbids extra fields refuses them itself.
        if model.model_config.get("extra") == "forbid":
            return
        fields = self.choices(inventory).model_fields
        names = {*fields, *(str(each.alias) for each in fields.values() if each.alias)}
        for name in given:
            if given[name] is not None and name not in names:
                unknown = {"type": "extra_forbidden", "loc": [name]}
                raise BadInputError(self._complaint(unknown, given, model))

    def complaint(self, given: Mapping[str, Any], model: type[BaseModel]) -> str | None:
        """Return a message about an invalid value, ignoring missing ones; None if there is none."""
        try:
            model.model_validate(given)
        except ValidationError as err:
            wrong = [each for each in err.errors() if each["loc"] and each["loc"][0] in given]
            return self._complaint(wrong[0], given, model) if wrong else None
        return None

    def _complaint(self, error: Any, given: Mapping[str, Any], model: type[BaseModel]) -> str:
        name = str(error["loc"][0])
        if error["type"] == "missing":
            return f"{name} is missing. {model.model_fields[name].description}"
        if error["type"] == "extra_forbidden":
            names = ", ".join(model.model_fields)
            value = "a secret" if complaint(name, given[name]) else quoted(given[name])
            return f"{name} is {value}, and the {self.name} profile takes no {name}. It takes: {names}."
        message = error["msg"].removeprefix("Value error, ")
        kind, _, wrong = error["type"].partition("_")
        meant = _KINDS.get(kind, message) if wrong in ("parsing", "type", "from_float") else message
        field = model.model_fields.get(name)
        extra = field.json_schema_extra if field is not None else None
        allowed = extra.get("allowed") if isinstance(extra, dict) else None
        remedy = f"Give {allowed}" if allowed else meant
        return f"{name} is {quoted(given[name])}. {remedy}."

    @abstractmethod
    def plan(self, given: Mapping[str, Any], around: Around) -> ClusterSpec:
        """Return the spec for these choices, with reasons. Nothing is started or contacted.

        Raises BadInputError naming the first invalid choice.
        """

    def check(self, spec: ClusterSpec) -> None:  # noqa: B027  Most have nothing to check.
        """Raise a WorkbenchError if it can't be started now; called just before the start, for 10 s at most."""

    def seen(self, spec: ClusterSpec) -> ClusterSpec:
        """Return the spec with the actual workers of a cluster that already runs.

        Raises a WorkbenchError as `check` does.
        """
        return spec

    def consent(self, spec: ClusterSpec) -> str | None:
        """Return the warning that the user must accept first; None if it is harmless."""
        if spec.encrypt or self.verb != "Start":
            return None
        return f"Warning: no encryption, so {self.reached_by} can run code as you."

    def preview(self, spec: ClusterSpec) -> str | None:
        """Return what would be submitted elsewhere: a job script, a manifest, commands; None if nothing would."""
        return None

    def environment(self, spec: ClusterSpec) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return variables for the cluster's host process: defaults, and those that the user chose."""
        return {}, {}

    def connecting(self, spec: ClusterSpec, name: str) -> None:  # noqa: B027  Most need nothing.
        """Prepare this process to connect to a cluster of this name."""

    @abstractmethod
    def code(self, spec: ClusterSpec) -> str:
        """Return code for the same cluster without this package."""

    @abstractmethod
    def engine(self, spec: ClusterSpec, security: Security | None, folder: Path, changed: Callable[[], None]) -> Engine:
        """Return the engine of a cluster. Nothing is started yet.

        `security` are the keys made for it, None if we don't encrypt it; `folder` is the folder of its record. Call
        `changed` when workers or jobs come, go or change.
        """

    async def end(self, spec: ClusterSpec, called: str) -> None:  # noqa: B027  Most leave nothing running.
        """End what still runs elsewhere under this name after its owner died.

        Raises FailedError with instructions if it can't be ended from here.
        """


def in_words(title: str, choices: Mapping[str, Any]) -> str:
    """Return a readable form of choices for a profile, or for saved choices, with this title."""
    remaining = dict(choices)
    workers, threads = (remaining.pop(name, None) for name in ("n_workers", "threads_per_worker"))
    shape = [_counted(each, what) for each, what in ((workers, "worker"), (threads, "thread")) if each is not None]
    others = [
        "not encrypted" if name == "encrypt" and value is False else f"{name.replace('_', ' ')} {value}"
        for name, value in remaining.items()
    ]
    details = ", ".join([*([" × ".join(shape)] if shape else []), *others])
    return f"{title} with {details}" if details else title


def _counted(number: Any, noun: str) -> str:
    return f"{number} {noun}" if str(number) == "1" else f"{number} {noun}s"


class Broken(Profile):
    """A profile that is unavailable on any machine."""

    line = "A profile that can't be read."

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.title = name, name  # type: ignore[misc]
        self.reason = reason

    def unavailable(self, around: Around) -> str | None:
        """Return the reason."""
        return self.reason

    def plan(self, *_: Any) -> Any:
        """Raise MissingError."""
        raise MissingError(self.reason)

    choices = code = engine = plan  # type: ignore[assignment]

    async def end(self, spec: ClusterSpec, called: str) -> None:
        """Raise FailedError: only the profile that started the cluster can end it."""
        raise FailedError(self.reason)


@cache
def registered() -> Mapping[str, Profile]:
    """Return the profiles of all packages by name, those of this machine first."""
    profiles = {name: _loaded(point) for name, point in points().items()}
    return dict(sorted(profiles.items(), key=lambda each: (not each[1].is_local, each[0])))


def points() -> dict[str, EntryPoint]:
    """Return the entry points by name, without importing them; of two with one name, ours counts."""
    points = sorted(entry_points(GROUP), key=lambda point: point.module.startswith("workbench."))
    return {point.name: point for point in points}


@cache
def _loaded(point: EntryPoint) -> Profile:
    try:
        profile = load_entry_point(point, call=True)
    except FailedError as err:
        return Broken(point.name, f"Its package can't be imported ({point.value}: {err}).")
    if not isinstance(profile, Profile) or profile.name != point.name:
        return Broken(point.name, f"{point.value} is no Profile with the name {point.name!r}.")
    for field, (kind, expected) in _FIELDS.items():
        if not isinstance(value := getattr(profile, field, None), kind):
            return Broken(point.name, f"{field} of {point.value} is {value!r}, which is no {expected}. {_REPORT}")
    if profile.group not in _GROUPS:
        allowed = ", ".join(_GROUPS)
        return Broken(point.name, f"group of {point.value} is {profile.group!r}. Allowed: {allowed}. {_REPORT}")
    for verb, (kind, expected) in _ANSWERS.items():
        called = f"{verb}() of the {profile.name} profile, of {point.value},"
        setattr(profile, verb, _safe(getattr(profile, verb), called, kind, expected))
    return profile


_REPORT = "Report this to its author."
_TEXT, _OPTIONAL, _SPEC = (str, "text"), (str | None, "text and not None"), (ClusterSpec, "ClusterSpec")
_MODEL = (type(BaseModel), "pydantic model")
_FIELDS: Mapping[str, tuple[Any, str]] = {
    "title": _TEXT,
    "line": _TEXT,
    "verb": _TEXT,
    "model": _MODEL,
    "options": (tuple, "tuple of names"),
    "divides_cores": (bool, "bool"),
    "protocol": _OPTIONAL,
}
_ANSWERS: Mapping[str, tuple[Any, str]] = {
    "summary": _TEXT,
    "describe": _TEXT,
    "words": _TEXT,
    "code": _TEXT,
    "plan": _SPEC,
    "seen": _SPEC,
    "choices": _MODEL,
    "takes": (bool, "bool"),
    "usual_lines": (tuple, "tuple of lines"),
    "running": (tuple | list, "list of clusters"),
    **dict.fromkeys(("unavailable", "complaint", "consent", "preview"), _OPTIONAL),
    "check": (object, ""),
}
"""Required types of a profile's fields, and of the answers of its methods outside the host process."""


def _safe(method: Callable[..., Any], called: str, kind: Any, expected: str) -> Callable[..., Any]:
    """Wrap a method of a third-party profile, to report exceptions and wrong return types in a message."""

    @wraps(method)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            result = method(*args, **kwargs)
            # Items of an iterator would raise later.
            result = tuple(result) if isinstance(result, Iterator) else result
        except WorkbenchError:
            raise
        except Exception as err:
            raise FailedError(f"{called} broke ({named(err)}). {_REPORT}") from err
        if not isinstance(result, kind):
            raise FailedError(f"{called} gave {result!r}, which is no {expected}. {_REPORT}")
        return result

    return wrapper


def seen(spec: ClusterSpec) -> ClusterSpec:
    """Return a spec with the actual workers, asking the cluster if they are unknown. Raises as `Profile.check` does."""
    return spec if spec.is_known else of_cluster(spec.profile).seen(spec)


def of_cluster(name: str) -> Profile:
    """Return the profile of an existing cluster; a broken one if its package is gone."""
    missing = f"There is no profile {name!r} here any more. Install the package, or the dask-workbench, that brings it."
    return _loaded(point) if (point := points().get(name)) else Broken(name, missing)
