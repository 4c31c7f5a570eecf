"""User functions as workloads: `mine.py:total`.

Nothing of the user's is imported here: a separate process describes a file (see `importing`), ends after some seconds,
and its answer is cached while the file is unchanged. Only a run's process has the function.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pydantic import ValidationError

from workbench import config, formats
from workbench.errors import BadInputError, FailedError, NotFoundError, quoted
from workbench.redaction import redact
from workbench.workloads import forms, function_results, importing, presets, signatures
from workbench.workloads.fields import TITLES
from workbench.workloads.importing import Contents, Described
from workbench.workloads.presets import Preset
from workbench.workloads.registry import Resolution, Template
from workbench.workloads.values import Function, Needs, Parameters, Surroundings

if TYPE_CHECKING:
    import xarray as xr

DEADLINE = 10.0
"""Time limit in seconds to import a file if only its forms are wanted."""

_PATIENCE = 30.0  # additional seconds for the process to start on a busy machine
_FORGET = 300.0  # seconds after which a file that could not be imported is tried again: a package may be there now
_REFUSED = "workbench.errors.BadInputError: "  # prefix of the message if a function refuses parameters
_MOST_PRINTED = 2**20  # characters of a run's output that are stored in its log
_remembered: dict[str, tuple[float, Contents]] = {}


def _absent(*_: Any, **__: Any) -> Any:
    raise FailedError("User functions can only be called in a run's process.")


@dataclass(frozen=True, kw_only=True)
class Own(Template):
    """A user's function. `function` is set in a run's process; elsewhere only its description is."""

    description: Described
    where: str
    """Path of its file, or name of its module."""
    brought_by: str
    """Origin: a file or a package."""
    shown: str
    """Displayed name: the function's, after the file's if it isn't listed."""
    sha: str

    @property
    def name(self) -> str:
        """Name in lists and records."""
        return self.shown

    @property
    def origin(self) -> str:
        """Short description of its origin."""
        return self.brought_by

    @property
    def reference(self) -> str:
        """Reference that finds it from everywhere."""
        return f"{self.where}:{self.description.name}"

    @property
    def help(self) -> str:
        """Its docstring, or where it is."""
        return self.description.help or f"{self.description.name} of {self.where}."

    @property
    def source(self) -> str:
        """Its text in the file."""
        return self.description.source

    @property
    def pinned(self) -> Function:
        """Facts that a record stores about it."""
        return Function(
            reference=self.reference,
            source=self.description.source,
            sha=self.sha,
            checked="check" in self.description.declares,
        )

    def _own_presets(self) -> tuple[dict[str, Preset], tuple[str, ...]]:
        """Return those that are declared with it, and those that the user saved."""
        mine, wrong = super()._own_presets()
        if not self._takes_preset:
            return mine, wrong
        file = Path(self.where).name
        theirs = {name: presets.named(name, each, file) for name, each in self.description.presets.items()}
        return {**mine, **theirs}, wrong

    @property
    def _saving(self) -> Mapping[str, tuple[Any, Any]]:
        """Parameters that say where arrays go, unless it has parameters of these names itself."""
        return {} if super()._saving.keys() & self.description.form["properties"].keys() else super()._saving

    @property
    def title(self) -> str:
        """Its name in lists."""
        return self.description.title

    @property
    def declares(self) -> tuple[str, ...]:
        """Names of the functions that are declared with it."""
        return self.description.declares

    def _ask(self, which: str, parameters: Mapping[str, Any], **around: Any) -> Any:
        """Ask a process that can be killed to call a function that is declared with it."""
        return _ask_process(self.where, self.description.name, which, parameters, around)

    def _prepared(self, values: dict[str, Any], given: Mapping[str, Any], around: Surroundings) -> Resolution:
        """Resolve given paths against the folder where they were given, default paths against the working folder."""
        works_in = importing.folder_of(self.where) if self.where.endswith(".py") else Path()
        for name, field in self.description.form["properties"].items():
            values[name] = signatures.absolute(field, values[name], Path() if name in given else works_in)
        return super()._prepared(values, given, around)

    def _changed(self, values: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
        return values | forms.read(self.description.form, {**values, **changed})

    def build(self, parameters: Parameters) -> dict[str, Any]:
        """Call it and return its results by name."""
        try:
            with _briefly():
                result = self.function(**self._arguments(parameters))
        except (SystemExit, KeyboardInterrupt) as err:
            did = "ended Python (sys.exit)" if isinstance(err, SystemExit) else "raised KeyboardInterrupt"
            raise FailedError(f"{self.description.name} {did}. Let it return, or raise an error.") from err
        return function_results.named(result, self.description.name, signatures.returned_names(self.function))

    def collections(self, built: Mapping[str, Any]) -> dict[str, Any]:
        """Return those parts of the answer that are Dask's."""
        return function_results.collections(built)

    def gathered(self, collections: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of small parts, which come back; the others stay on the cluster."""
        return function_results.gathered(collections)

    def measured(self, built: Mapping[str, Any], threads_per_worker: int) -> Needs | None:
        """Return its needs by its graph and the sizes of its blocks."""
        return function_results.needs(self.collections(built), threads_per_worker)

    def remarks(self, results: Mapping[str, Any]) -> tuple[str, ...]:
        """Return messages about parts of the answer that aren't stored, and the reasons."""
        return function_results.remarks(results, self.description.name)

    def arrays(self, results: Mapping[str, Any], resolved: Mapping[str, Any] | None = None) -> xr.Dataset:
        """Return arrays, columns of tables, and xarray's own with their dimensions."""
        return function_results.arrays(results)

    def _checked(self, parameters: Parameters, results: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
        return self._arguments(parameters), function_results.whole(results)

    def _plain_cell(self, parameters: Parameters, cluster: str | None, on_gpu: bool) -> str:
        """Return a cell with the text of the file, or an import, and the call."""
        arguments = "".join(f"    {name}={value!r},\n" for name, value in self._arguments(parameters).items())
        path = Path(self.where)
        importing = f"from {self.where} import {self.description.name}\n"
        text = path.read_text(encoding="utf-8", errors="replace").strip() + "\n" if path.suffix == ".py" else importing
        connected = [] if cluster is None else [f'import workbench\n\nclient = workbench.connect("{cluster}")\n']
        kind = type(path).__name__
        imports = f"import dask\nfrom pathlib import {kind}\n" if f"{kind}(" in arguments else "import dask\n"
        call = f"{imports}\n(answer,) = dask.compute({self.description.name}(\n{arguments}))\nanswer\n"
        # A future import comes first in its cell.
        return "\n\n".join((text, *connected, call))

    def _arguments(self, parameters: Parameters) -> dict[str, Any]:
        return signatures.arguments(self.description.form, parameters.resolved)

    @cached_property
    def _form(self) -> signatures.Schema:
        return signatures.joined(
            self.description.name,
            self.description.form,
            signatures.of_fields(self._saving, self.description.name, TITLES),
        )


_NAMED = re.compile(r"(?P<where>.+?\.py)(?::(?P<function>.*))?", re.DOTALL)


def is_named(name: object) -> bool:
    """Return whether a text names a function by its file, which may not exist."""
    return isinstance(name, str) and _NAMED.fullmatch(name) is not None


def find(name: str) -> Own | None:
    """Return the workload of `mine.py:total`; None where the text names no file.

    Raises
    ------
    NotFoundError
        The file, or the function in it, doesn't exist.
    BadInputError
        The file can't be imported, or the function can't have a form.
    """
    match = _NAMED.fullmatch(name)
    if match is None:
        return None
    path = _there(match["where"])
    return _one(str(path), match["function"], f"{path.name}:{{}}")


def find_once(path: Path, function: str) -> Own:
    """Return a function of a temporary file, without caching it. Raises as `find` does."""
    try:
        return _one(str(path), function, "{}")
    finally:
        _remembered.pop(str(path), None)
        _cache(str(path)).unlink(missing_ok=True)


def functions(where: str) -> tuple[Described, ...]:
    """Return the public functions of a Python file, each of which is a workload as `path:name`, or has a problem.

    Raises BadInputError if it can't be imported, and NotFoundError if there is no such file.
    """
    result = contents(str(_there(where)))
    if result.error is not None:
        raise BadInputError(result.error)
    return result.functions


def _there(where: str) -> Path:
    path = Path(where).expanduser().absolute()
    if not path.is_file():
        raise NotFoundError(f"There is no file {path}. Give the path of one, and a function: analysis.py:my_function.")
    return path


def again(reference: str) -> Own:
    """Return the function of a record's reference. Raises as `find` does."""
    where, _, name = reference.rpartition(":")
    return _one(where, name, f"{Path(where).name}:{{}}")


def _one(where: str, name: str | None, shown: str) -> Own:
    result = contents(where)
    if result.error is not None:
        raise BadInputError(result.error)
    by_name = {each.name: each for each in result.functions}
    if not name and len(by_name) == 1:
        name = next(iter(by_name))
    if name in result.others:
        raise BadInputError(f"{Path(where).name} has {name}, but {result.others[name]}")
    if name not in by_name:
        which = f"no function {quoted(name)}" if name else "several functions" if by_name else "no public function"
        have = f" It has: {', '.join(by_name)}." if by_name else ""
        raise NotFoundError(f"{Path(where).name} has {which}.{formats.meant(name or '', by_name)}{have}")
    return made(by_name[name], where, shown.format(name), result.sha)


def made(description: Described, where: str, shown: str, sha: str, origin: str | None = None) -> Own:
    """Return the workload of a function's description. Raises BadInputError if it can't be one."""
    if description.problem is not None:
        raise BadInputError(description.problem)
    return Own(
        _absent,
        returns=(),
        small=(),
        referring=tuple(name for name, each in description.form["properties"].items() if signatures.sequence(each)),
        summary_of=function_results.values,
        # Known only after the function has returned.
        arrays_of=function_results.arrays,
        computes=True,
        description=description,
        where=where,
        brought_by=origin or Path(where).name,
        shown=shown,
        sha=sha,
    )


def loaded(function: Function, shown: str) -> Own:
    """Import the function of a record in the run's process, and make its file's folder the working folder.

    Raises FailedError if it is no longer the requested one.
    """
    where, _, name = function.reference.rpartition(":")
    if where.endswith(".py"):
        os.chdir(importing.working_folder(where))
    with _briefly():
        module = importing.load(where, ships=where.endswith(".py"))
    callable_: Callable[..., Any] | None = importing.functions(module).get(name)
    # Check the hash after reading all modules that are sent to workers.
    if importing.sha_of(module) != function.sha:
        raise FailedError(
            f"{Path(where).name}, or a module next to it, was changed after this run was submitted. Run it again."
        )
    if callable_ is None:
        raise FailedError(f"{Path(where).name} has no function {name!r} any more when its run imports it.")
    return replace(again(function.reference), function=callable_, shown=shown)


class _Brief(io.TextIOBase):
    """A limited stream: passes on the first part of what is printed, and says that there was more."""

    def __init__(self, to: IO[str]) -> None:
        self._to = to
        self._left = _MOST_PRINTED

    def write(self, text: str) -> int:
        """Write the part for which there is room."""
        if self._left > 0:
            self._to.write(redact(text[: self._left]))
            self._left -= len(text)
            if self._left <= 0:
                self._to.write("\n… Further output is not stored.\n")
        return len(text)

    def flush(self) -> None:
        """Write the buffer out."""
        self._to.flush()


@contextlib.contextmanager
def _briefly() -> Iterator[None]:
    """Limit what a user's code prints, so that no log fills the disk."""
    with contextlib.redirect_stdout(_Brief(sys.stdout)), contextlib.redirect_stderr(_Brief(sys.stderr)):
        yield


def contents(where: str) -> Contents:
    """Return the contents of a file, or a module; a process finds them if they aren't known already."""
    result = known(where)
    if result is None:
        began = time.time()
        try:
            result = Contents.model_validate(_ask_process(where))
        except BadInputError as err:
            result = Contents(error=str(err), files=(stamp,) if (stamp := importing.stamp(where)) else ())
        answered_at = time.time()
        _remembered[where] = answered_at, result
        # Don't store quick failures: the next command tries again, as a missing package may have been installed.
        if result.files and (result.error is None or answered_at - began > DEADLINE):
            with contextlib.suppress(OSError, FailedError):
                _cache(where).parent.mkdir(mode=0o700, exist_ok=True)
                config.write_atomically(_cache(where), result.model_dump_json())
    return result


def known(where: str) -> Contents | None:
    """Return the known contents of a file if it is unchanged since."""
    answered_at, result = _remembered.get(where, (0.0, None))
    if result is None:
        try:
            result = Contents.model_validate_json(_cache(where).read_bytes())
            answered_at = _cache(where).stat().st_mtime
        except (OSError, ValidationError):
            return None
    if result.error is not None and time.time() - answered_at > _FORGET:
        return None
    same = all(importing.stamp(path) == (path, *state) for path, *state in result.files)
    return result if same and (result.files or result.error) else None


def _cache(where: str) -> Path:
    from workbench import __version__

    whose = f"{where} {sys.executable} {sys.version} {__version__} {sorted(Described.model_fields)}"
    return config.data_folder() / "described" / f"{hashlib.sha256(whose.encode()).hexdigest()[:24]}.json"


def _plain(value: Any) -> Any:
    """Return the facts about a cluster, and a set, as JSON values."""
    return asdict(value) if isinstance(value, Surroundings) else sorted(value)


def _ask_process(
    where: str,
    name: str | None = None,
    method: str = "",
    parameters: Mapping[str, Any] | None = None,
    around: Mapping[str, Any] = {},
) -> Any:
    """Let a separate process describe a file, or call a function of it that was declared with a workload.

    Raises BadInputError if it has no answer, with the line where it was.
    """
    file = Path(where).name
    folder = importing.working_folder(where) if where.endswith(".py") else Path()
    # Unnamed files, so that nothing remains if this process is killed while it waits.
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as stack:
        question: dict[str, Any] = {
            "where": where,
            "name": name,
            "asked": method,
            "parameters": parameters,
            "around": around,
        }
        question["deadline"] = DEADLINE
        question |= {"answer": answer.fileno(), "stack": stack.fileno()}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", importing.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if name else subprocess.DEVNULL,
            cwd=folder,
            start_new_session=True,
            pass_fds=(answer.fileno(), stack.fileno()),
        )
        output = b""
        try:
            _, output = process.communicate(json.dumps(question, default=_plain).encode(), timeout=DEADLINE + _PATIENCE)
        except subprocess.TimeoutExpired:
            pass  # killed below, which its return code shows
        finally:
            # Kill the whole process group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        answer.seek(0)
        stack.seek(0)
        if result := answer.read():
            return json.loads(result)
        late = stack.read().decode(errors="replace")
        line = re.search(rf'File "{re.escape(where)}", line (\d+)', late)
        if late or process.returncode == -signal.SIGKILL:
            still = f"line {line[1]}" if line else "something in it"
            raise BadInputError(
                f"{file} took longer than {formats.duration(DEADLINE)} to be imported: {still} was still going on. "
                "Move work into a function."
            )
        why = (output or b"").decode(errors="replace").strip().splitlines()[-1:]
        raise BadInputError(
            f"{method} of {name} failed: {(why[0] if why else 'it ended its process').removeprefix(_REFUSED)}"
            if name
            else f"{file} can't be imported: it ended the process that imported it."
        )
