"""A cluster in one line, as in the command line's `--on`: 'cpu --workers 2 --threads 1'.

The option of a choice has the choice's name: `rmm_pool_size` is `--rmm-pool-size`, but for two shorter ones. Any
profile's choices can so be read without the profile, as for a comparison that a colleague made with one of theirs.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from workbench.clusters.choices import metavar
from workbench.clusters.profiles import Profile, in_words, registered
from workbench.clusters.spec import WITHOUT_DASK
from workbench.errors import BadInputError, quoted
from workbench.hardware import Inventory

_SHORT = {"n_workers": "--workers", "threads_per_worker": "--threads"}
_NO = "--no-"


def option_of(choice: str) -> str:
    """Return the option of a choice in a terminal: '--workers' for 'n_workers'."""
    return _SHORT.get(choice) or f"--{choice.replace('_', '-')}"


@contextlib.contextmanager
def naming_options(choices: Mapping[str, Any]) -> Iterator[None]:
    """Name the option in an error about a choice: '--workers is …' for 'n_workers is …'."""
    try:
        yield
    except BadInputError as err:
        name, _, rest = str(err).partition(" ")
        if name not in choices:
            raise
        raise type(err)(f"{option_of(name)} {rest}") from err


def read_options(words: Sequence[str]) -> dict[str, str | bool]:
    """Return the choices in options: '--queue', 'gpu' or '--queue=gpu' gives queue, and '--no-encrypt' encrypt=False.

    Of an option that is given twice the last value counts. Raises BadInputError for one without a value; the plan
    checks the rest.
    """
    long = {option: choice for choice, option in _SHORT.items()}
    choices: dict[str, str | bool] = {}
    remaining = iter(words)
    for word in remaining:
        option, equals, text = word.partition("=")
        if not option.startswith("--") or not option.strip("-"):
            raise BadInputError(f"Given {quoted(word)}. After the profile come its options, such as --workers 2.")
        value: str | bool | None = text
        if option.startswith(_NO) and not equals:
            option, value = f"--{option.removeprefix(_NO)}", False
        elif not equals:
            value = next(remaining, None)
        if value is None or (not equals and isinstance(value, str) and value.startswith("--")):
            raise BadInputError(f"{option} needs a value. Give one, such as {option} 2.")
        choices[long.get(option) or option.removeprefix("--").replace("-", "_")] = value
    return choices


class Option(NamedTuple):
    """An option of a profile, as typed in a terminal."""

    name: str
    """'--workers N'."""
    default: str | None
    description: str


def options_of(profile: Profile, inventory: Inventory) -> list[Option]:
    """Return the options of a profile, in the order of its form."""
    model = profile.choices(inventory)
    schema = model.model_json_schema(by_alias=False)["properties"]
    return [_option(name, about, model.model_fields[name].get_default()) for name, about in schema.items()]


def _option(name: str, about: Mapping[str, Any], default: Any) -> Option:
    # A switch whose value the settings decide can be both.
    kind = about.get("type") == "boolean"
    option = f"{_NO}{option_of(name)[2:]}" if kind else f"{option_of(name)} {metavar(about)}"
    placeholder = str(default) if isinstance(default, str | int | float) and default != "" else None
    return Option(option, placeholder, about.get("description", ""))


class Line(NamedTuple):
    """A cluster to start, or one that already runs."""

    profile: str | None
    choices: dict[str, Any]
    cluster: str | None = None
    """Name of the running cluster."""

    def __str__(self) -> str:
        if self.cluster is not None:
            return f"--cluster {self.cluster}"
        words = [str(self.profile)]
        for choice, value in self.choices.items():
            option, text = option_of(choice), "true" if value is True else str(value)
            if value is False:
                words.append(f"{_NO}{option[2:]}")
            else:
                # After a space, -p would be read as an option.
                words += [f"{option}={text}"] if text.startswith("-") else [option, text]
        return shlex.join(words)

    def words(self) -> str:
        """Return a readable form: 'CPU with 2 workers × 1 thread, not encrypted'."""
        if self.cluster is not None:
            return self.cluster
        name = str(self.profile)
        if name in WITHOUT_DASK:
            return WITHOUT_DASK[name].title
        profile = registered().get(name)
        return in_words(name, self.choices) if profile is None else profile.words(self.choices)

    def having(self, **choices: Any) -> Line:
        """Return the line with these choices changed."""
        return self._replace(choices={**self.choices, **choices})


def read_line(text: str) -> Line:
    """Parse a line: a profile with its options, or '--cluster NAME'.

    Raises BadInputError for an option without its value; the plan checks the rest.
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
    try:
        return Line(words[0], read_options(words[1:]))
    except BadInputError as err:
        raise BadInputError(f"'{text:.80}': {err}") from err
