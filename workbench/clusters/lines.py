"""A cluster in one line, as in the command line's `--on`: 'cpu --workers 2 --threads 1'."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from workbench.clusters.choices import metavar, options
from workbench.clusters.profiles import Profile, registered
from workbench.clusters.spec import WITHOUT_DASK
from workbench.errors import BadInputError, quoted
from workbench.hardware import Inventory

ONE_CORE = "One core"

_SET = "--set"
_EXAMPLES = {_SET: "queue=gpu"}
_SWITCHES = {"--no-encrypt": ("encrypt", False)}


class Option(NamedTuple):
    """An option of a profile, as typed in a terminal."""

    name: str
    """'--workers N' or '--set queue=TEXT'."""
    default: str | None
    description: str


def options_of(profile: Profile, inventory: Inventory) -> list[Option]:
    """Return the options of a profile, in the order of its form."""
    model = profile.choices(inventory)
    schema = model.model_json_schema(by_alias=False)["properties"]
    return [_option(name, about, model.model_fields[name].get_default()) for name, about in schema.items()]


def _option(name: str, about: Mapping[str, Any], default: Any) -> Option:
    kind = metavar(about)
    names = {choice: option for option, choice in options().items()}
    option = f"{names[name]} {kind}" if name in names else f"{_SET} {name}={kind}"
    shown = str(default) if isinstance(default, str | int | float) and default != "" else None
    return Option("--no-encrypt" if name == "encrypt" else option, shown, about.get("description", ""))


class Line(NamedTuple):
    """A cluster to start, or one that already runs."""

    profile: str | None
    choices: dict[str, Any]
    cluster: str | None = None
    """Name of the running cluster."""

    def __str__(self) -> str:
        if self.cluster is not None:
            return f"--cluster {self.cluster}"
        names = {choice: option for option, choice in options().items()}
        words = [str(self.profile)]
        for choice, value in self.choices.items():
            # Choices of the profile alone are set by name.
            other = ["--set", f"{choice}={value}"] if choice != "encrypt" else ["--no-encrypt"]
            words += [names[choice], str(value)] if choice in names else other
        return shlex.join(words)

    def words(self) -> str:
        """Return a readable form: 'CPU with 2 workers × 1 thread, not encrypted'."""
        if self.cluster is not None:
            return self.cluster
        if self.profile in WITHOUT_DASK:
            return {"numpy": "NumPy", "cupy": "CuPy"}[str(self.profile)]
        rest = dict(self.choices)
        workers, threads = (rest.pop(name, None) for name in ("n_workers", "threads_per_worker"))
        if self.profile == "cpu" and not rest and str(workers) == str(threads) == "1":
            return ONE_CORE
        shape = [_counted(each, what) for each, what in ((workers, "worker"), (threads, "thread")) if each is not None]
        others = [
            "not encrypted" if name == "encrypt" and value is False else f"{name.replace('_', ' ')} {value}"
            for name, value in rest.items()
        ]
        details = ", ".join([*([" × ".join(shape)] if shape else []), *others])
        title = _title(str(self.profile))
        return f"{title} with {details}" if details else title

    def having(self, **choices: Any) -> Line:
        """Return the line with these choices changed."""
        return self._replace(choices={**self.choices, **choices})


def _title(name: str) -> str:
    """Return the title of a profile, or the name of saved choices."""
    return registered()[name].title if name in registered() else name


def _counted(number: Any, what: str) -> str:
    return f"{number} {what}" if str(number) == "1" else f"{number} {what}s"


def read_line(text: str) -> Line:
    """Parse a line: a profile with options of `workbench up`, or '--cluster NAME'.

    Raises BadInputError for an unknown option, or one without its value; the plan checks the rest.
    """
    try:
        words = shlex.split(text)
    except ValueError as err:
        raise BadInputError(f"'{text:.80}' can't be read ({err}). Give a line such as 'cpu --workers 2'.") from err
    if not words:
        raise BadInputError("A line that names a cluster is empty. Give one such as 'cpu --workers 2'.")
    if words[0] == "--cluster":
        if len(words) != 2:
            raise BadInputError(f"'{text:.80}': after --cluster stands the name of one cluster that runs.")
        return Line(None, {}, words[1])
    if words[0].startswith("-"):
        raise BadInputError(f"'{text:.80}': a profile comes first, such as 'cpu {words[0]:.40} …'.")
    return Line(words[0], _choices(text, words[1:]))


def _choices(text: str, words: list[str]) -> dict[str, Any]:
    choices: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in _SWITCHES and not equals:
            name, switched = _SWITCHES[option]
            choices[name] = switched
        elif option in (*options(), _SET):
            given = value if equals else next(rest, None)
            if given is None:
                raise BadInputError(
                    f"'{text:.80}': {option} needs a value, such as '{option} {_EXAMPLES.get(option, 2)}'."
                )
            name, is_set, chosen = given.partition("=")
            if option == _SET and not (name and is_set):
                raise BadInputError(f"'{text:.80}': after --set stand a name and a value, such as {_EXAMPLES[_SET]}.")
            choices |= {name: chosen} if option == _SET else {options()[option]: given}
        else:
            allowed = ", ".join([*options(), _SET, *_SWITCHES])
            raise BadInputError(f"'{text:.80}': unknown {quoted(word)}. After the profile may stand: {allowed}.")
    return choices
